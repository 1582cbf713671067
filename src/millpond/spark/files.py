"""Any output of Spark's own file formats, written and read by way of manifests: see `manifest`.

Spark writes, with all its options; only where files go and when they count is ours (`java/OneCommit.java`). The frame
is planned in a session of its own, because that is decided by a setting of the session.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millpond.errors import InvalidValue
from millpond.spark.manifest import (
    Manifest,
    check_alike,
    checked_options,
    commit,
    read_data_set,
    reported_files,
)
from millpond.spark.planner import planner_of
from millpond.spark.workshop import Java
from millpond.spark.write_options import PARTITION_COLUMNS

FORMATS = ("csv", "json", "text", "orc", "parquet")
_WRITE = "millpond.write"


def write_files(frame: DataFrame, given: Mapping[str, str], mode: str) -> None:
    """Write a frame as files of a format, all of them or none."""
    options = checked_options(given)
    root, kind = _directory(options.pop("path")), options.pop("format", "").lower()
    partitioned_by: list[str] = json.loads(options.pop(PARTITION_COLUMNS, "[]"))
    if kind not in FORMATS:
        raise InvalidValue(f"format {kind!r} for files", hint=f'.option("format", ...) is one of {", ".join(FORMATS)}')
    known = read_data_set(root)
    fresh = Manifest(kind, _nullable(frame.schema), (), options, tuple(partitioned_by))
    if mode not in ("Append", "ErrorIfExists") or (mode == "ErrorIfExists" and known.manifests):
        raise InvalidValue(f"mode {mode!r} into {root}", hint='.mode("append"), or a directory without a commit')
    check_alike(known, fresh)
    write = secrets.token_hex(8)
    planner, context = planner_of(frame.sparkSession), frame.sparkSession.sparkContext
    inner = planner.jvm.with_one_commit(frame)
    before = context.getLocalProperty(_WRITE)
    context.setLocalProperty(_WRITE, write)
    try:
        inner.write.format(kind).options(**options).partitionBy(*partitioned_by).mode("append").save(root)
    finally:
        context.setLocalProperty(_WRITE, before)  # type: ignore[arg-type]
    reported = planner.jvm.workshop.reported(write)
    commit(root, Manifest(kind, fresh.schema, reported_files(reported or ""), options, tuple(partitioned_by)))


def files_relation(spark: SparkSession, given: Mapping[str, str]) -> Java:
    """Exactly what the manifests of a directory name, as Spark's own relation."""
    options = checked_options(given)
    root = _directory(options.pop("path"))
    known = read_data_set(root)
    paths = known.paths
    if not paths:
        raise InvalidValue(f"{root} holds no files that a commit names", hint='.option("format", "csv") writes some')
    manifest = known.manifests[-1]
    asked = {**manifest.options, **options, "basePath": root}
    schema = StructType.fromJson(json.loads(manifest.schema))
    frame = spark.read.format(manifest.format).options(**asked).schema(schema).load(paths)
    return planner_of(spark).jvm.relation_of(frame)


def _nullable(schema: StructType) -> str:
    """A schema in Spark's JSON, in which everything may be null, as in every file that Spark reads."""
    text = schema.json()
    for key in ("nullable", "containsNull", "valueContainsNull"):
        text = text.replace(f'"{key}":false', f'"{key}":true')
    return text


def _directory(path: str) -> str:
    if "://" in path and not path.startswith("file://"):
        raise InvalidValue(f"path {path!r} is not a local directory", hint="name a directory of this machine")
    return os.path.abspath(path.removeprefix("file://").removeprefix("file:"))
