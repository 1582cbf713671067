"""How the files of a data set are read, and what decides it.

Spark itself finds the files, their partitions and, once, their schema. From then on schema and options are those of the
data set, the time zone among them, whatever the session's are. The types of partitions are kept for as long as all
values that are there are of them: a directory `k=abc` beside `k=1` makes texts of both, as it does for Spark. Some
settings of a session have a say in reading and no option to hold them by: their values are on record with the index,
and in a session where one differs the index is not believed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millpond.archive.dataset.definition import FORMATS, DatasetDefinition
from millpond.errors import InvalidInput, InvalidSchema, InvalidValue, SparkUnavailable
from millpond.spark.jvm import FAILURES, Jvm
from millpond.spark.schema import arrow_schema, spark_schema
from millpond.spark.workshop import Java

TIME_ZONE = "timeZone"
_INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"
_LONG_DIGITS = 19
# A type, and one whose every value it has as it is.
_WIDER = ((LongType(), IntegerType()), (DoubleType(), IntegerType()), (TimestampType(), DateType()))
# Settings under these names have a say in what a reader returns ...
_READING = (
    "spark.sql.avro.",
    "spark.sql.caseSensitive",
    "spark.sql.columnNameOfCorruptRecord",
    "spark.sql.csv.",
    "spark.sql.json.",
    "spark.sql.legacy.",
    "spark.sql.orc.",
    "spark.sql.parquet.",
)
# ... but for these, which are about speed, about writing, or decide a schema that is on record.
_HARMLESS = re.compile(
    r"compression|pushdown|vectorized|batchsize|output|write|inferTimestamp|mergeSchema", re.IGNORECASE
)
_ZONE_OF_JVM = "user.timezone"
_SECRET = re.compile(r"secret|password|token|credential|access\.?key|account\.?key", re.IGNORECASE)
# What Spark says first, without the trace behind it.
_REASON_LENGTH_MAX = 600


@dataclass(frozen=True)
class Found:
    """What Spark found at a path."""

    relation: Java
    data: StructType
    partitions: StructType
    typed: tuple[str, ...] = ()
    """The partitions whose types were given."""


class Reader:
    """Reads one data set in one session."""

    def __init__(self, jvm: Jvm, definition: DatasetDefinition) -> None:
        self.jvm, self.definition = jvm, definition

    @cached_property
    def data(self) -> StructType:
        return StructType.fromJson(json.loads(self.definition.schema))

    @cached_property
    def partitions(self) -> StructType:
        return StructType.fromJson(json.loads(self.definition.partitions))

    @cached_property
    def columns(self) -> pa.Schema:
        """The columns of files that indexes can be about. What is also a partition's name has the partition's value."""
        names = {field.name.lower() for field in self.partitions}
        return pa.schema([field for field in arrow_schema(self.data) if field.name.lower() not in names])

    @cached_property
    def known(self) -> pa.Schema:
        """Those, and the columns of partitions."""
        return pa.schema([*self.columns, *arrow_schema(self.partitions)])

    def resolve(self) -> Java:
        """The relation of the files that are there now. `InvalidInput` if values of partitions are not of the types
        that this reader knows."""
        reader, relation = self.now()
        if reader is not self:
            changed = [
                f"{old.name} is {new.dataType.simpleString()} and was {old.dataType.simpleString()}"
                for old, new in zip(self.partitions, reader.partitions, strict=True)
                if old.dataType != new.dataType
            ]
            raise InvalidInput(
                f"the types of partitions of {self.definition.name!r} have changed by what is there now: "
                f"{', '.join(changed)}",
                hint="make the DataFrame anew (to_spark); for a view, refresh the data set",
            )
        return relation

    def now(self) -> tuple[Reader, Java]:
        """The relation of the files that are there now, and how they are read: as by this reader, unless there are
        values of partitions that its types do not hold. Those have the types that Spark finds."""
        kept = self.partitions
        infers = str(self.jvm.spark.conf.get(_INFERENCE)).lower() == "true"
        found = self._found([field for field in kept if not infers or field.name in self.definition.typed])
        names = [field.name.lower() for field in found.partitions]
        if not kept.fields or names != [field.name.lower() for field in kept]:
            return self, found.relation if not kept.fields else self._found(kept.fields).relation
        types = [
            old.dataType if _holds(old.dataType, new.dataType) else new.dataType
            for old, new in zip(kept, found.partitions, strict=True)
        ]
        merged = StructType([StructField(old.name, kind, True) for old, kind in zip(kept, types, strict=True)])
        same = [(field.name, field.dataType) for field in found.partitions] == list(zip(kept.names, types, strict=True))
        relation = found.relation if same else self._found(merged.fields).relation
        if types == [field.dataType for field in kept]:
            return self, relation
        return Reader(self.jvm, msgspec.structs.replace(self.definition, partitions=merged.json())), relation

    def _found(self, partitions: Sequence[StructField]) -> Found:
        """What is there, with these types of partitions, and those of the others inferred."""
        definition = self.definition
        names = {field.name.lower() for field in self.partitions}
        whole = StructType([*(field for field in self.data if field.name.lower() not in names), *partitions])
        return _resolved(self.jvm, definition.files, definition.path, whole, dict(definition.options))


def _holds(kept: DataType, inferred: DataType) -> bool:
    """Whether a type has every value of another as it is."""
    if kept == inferred or isinstance(kept, StringType):
        return True
    if isinstance(kept, DecimalType) and isinstance(inferred, IntegerType | LongType):
        return kept.precision - kept.scale >= _LONG_DIGITS
    return (kept, inferred) in _WIDER


def find(
    spark: SparkSession,
    jvm: Jvm,
    path: str,
    files: str,
    schema: StructType | str | pa.Schema | None,
    options: Mapping[str, str],
) -> Found:
    """What is at a path, with a schema that was given or is inferred."""
    if files not in FORMATS:
        raise InvalidValue(f"no format {files!r}", hint=f"formats: {', '.join(FORMATS)}")
    given = _given_schema(schema)
    found = _resolved(jvm, files, path, given, dict(options))
    names = {field.name.lower() for field in given or ()}
    return replace(found, typed=tuple(field.name for field in found.partitions if field.name.lower() in names))


def active_session() -> SparkSession:
    """The session that is at work in this thread or process."""
    found = SparkSession.getActiveSession()
    if found is None:
        raise SparkUnavailable(
            "there is no Spark session", hint="pass spark=..., or make one with SparkSession.builder.getOrCreate()"
        )
    return found


def place(path: str | os.PathLike[str]) -> str:
    """A path as it is kept: absolute, or a URL."""
    text = os.fspath(path)
    if not text.strip():
        raise InvalidValue("the path is empty", hint="name a directory, a file, a pattern or a URL")
    return text if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text) else os.path.abspath(text)


def kept_options(spark: SparkSession, options: Mapping[str, object] | None) -> dict[str, str]:
    """Options as Spark takes them, and the time zone that they are read in."""
    found: dict[str, str] = {}
    for name, value in (options or {}).items():
        if not isinstance(name, str) or value is None:
            raise InvalidValue(f"option {name!r} is {value!r}", hint="options are texts, numbers, true or false")
        if name.lower() in ("path", "paths"):
            raise InvalidValue(f"option {name!r} is not for data sets", hint="give the path as the first argument")
        if _SECRET.search(name):
            raise InvalidValue(
                f"option {name!r} would be kept with the data set in clear text",
                hint="set credentials in the Spark session instead (spark.hadoop.…)",
            )
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    if TIME_ZONE.lower() not in {name.lower() for name in found}:
        found[TIME_ZONE] = str(spark.conf.get("spark.sql.session.timeZone"))
    return found


def session_reading(spark: SparkSession, jvm: Jvm, files: str) -> dict[str, str]:
    """Those settings of a session that have a say in reading and were changed; in ORC files the JVM's zone as well."""
    found = {
        name: str(value)
        for name, value in spark.conf.getAll.items()
        if name.startswith(_READING) and not _HARMLESS.search(name)
    }
    if files == "orc":
        found[_ZONE_OF_JVM] = jvm.time_zone()
    return dict(sorted(found.items()))


def corrupt_column(spark: SparkSession, options: Mapping[str, str]) -> str:
    """The column that holds what could not be parsed, if a schema names it."""
    given = {name.lower(): value for name, value in options.items()}
    return given.get("columnnameofcorruptrecord") or str(spark.conf.get("spark.sql.columnNameOfCorruptRecord"))


def reason_of(error: Exception) -> str:
    """Spark's complaint without its trace."""
    whole = str(error).strip().split("\n\nJVM stacktrace")[0]
    text = whole.split("\n\tat ")[0].strip()
    text = re.sub(r"\AAn error occurred while calling \S+\s*:?\s*", "", text)
    causes = re.findall(r"^Caused by: (.+)$", whole, re.MULTILINE)
    if causes:
        text = f"{text} ({causes[-1]})"
    return text if len(text) <= _REASON_LENGTH_MAX else text[:_REASON_LENGTH_MAX] + " …"


def _given_schema(schema: StructType | str | pa.Schema | None) -> StructType | None:
    if schema is None or isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return spark_schema(schema)
    if not isinstance(schema, str):
        raise InvalidSchema(
            f"a schema of {type(schema).__name__}", hint='a StructType, a pyarrow.Schema, or "vid string, temp double"'
        )
    try:
        found = StructType.fromDDL(schema)
    except PySparkException as error:
        raise InvalidSchema(f"{schema[:200]!r}: {reason_of(error)}", hint='e.g. "vid string, temp double"') from None
    if not isinstance(found, StructType):
        raise InvalidSchema(f"{schema[:200]!r} is one type, not columns", hint='e.g. "vid string, temp double"')
    return found


def _resolved(jvm: Jvm, files: str, path: str, schema: StructType | None, options: dict[str, str]) -> Found:
    try:
        relation = jvm.resolved(files, path, schema, options)
    except AnalysisException as error:
        hint = "name a directory, a file or a pattern that is there; give a schema if none can be inferred"
        raise InvalidInput(f"{path} cannot be read as {files}: {reason_of(error)}", hint=hint) from None
    except FAILURES as error:
        raise InvalidInput(
            f"{path} cannot be read as {files}: {reason_of(error)}", hint="look at the path, the options and the schema"
        ) from None
    data = StructType.fromJson(json.loads(relation.dataSchema().json()))
    partitions = StructType.fromJson(json.loads(relation.partitionSchema().json()))
    return Found(relation, data, partitions)
