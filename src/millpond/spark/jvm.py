"""Spark's JVM, as Python talks to it: every use of py4j is here, and nowhere else.

`Jvm` is what one session's JVM is asked; what answers there, and which names of Spark it needs, is in `workshop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millpond.errors import SparkUnavailable
from millpond.spark.workshop import VERSION, Java, workshop_of

# What a call to the JVM may raise: some of Java's exceptions have a counterpart in PySpark, the others come as py4j's.
FAILURES: tuple[type[Exception], ...] = (PySparkException, Py4JError)


class Jvm:
    """One Spark session's JVM side. Thread-safe, as py4j is."""

    def __init__(self, spark: SparkSession) -> None:
        check_session(spark)
        self._spark = spark
        self._session: Java = spark._jsparkSession
        self._jvm: Java = spark._jvm
        self.workshop: Java = workshop_of(spark)

    @property
    def spark(self) -> SparkSession:
        return self._spark

    def time_zone(self) -> str:
        """The zone of the JVM itself, which some readers use whatever the session's is."""
        return str(self._jvm.java.util.TimeZone.getDefault().getID())

    @property
    def session_id(self) -> str:
        """The same for every Python object of one session."""
        return str(self._session.sessionUUID())

    def settled_and_live(
        self, key: str, name: str, known: Java, schema: StructType, options: dict[str, str]
    ) -> DataFrame:
        """A DataFrame of both halves of the stream `key`, still open: each query of it gets a snapshot of its own."""
        struct = self.struct(schema)
        settled = self.workshop.settled(key, name, known, struct, self._java_map(options), self._session)
        live = self.workshop.live(key, name, self._session.sqlContext(), struct)
        frame = self._session.baseRelationToDataFrame(settled).union(self._session.baseRelationToDataFrame(live))
        return DataFrame(frame, self._spark)

    def struct(self, schema: StructType) -> Java:
        return self._session.parseDataType(schema.json())

    def install(self, rule: Java) -> None:
        """Let the session's optimiser run the rule, behind those that are there."""
        experimental = self._session.experimental()
        rules = self._jvm.java.util.ArrayList()
        present = experimental.extraOptimizations()
        for at in range(present.size()):
            rules.add(present.apply(at))
        rules.add(rule)
        getattr(experimental, "extraOptimizations_$eq")(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(rules))

    def rows_of(self, frame: DataFrame) -> Java:
        """The RDD of Spark's internal rows that computes a DataFrame."""
        return frame._jdf.queryExecution().toRdd()

    def rows_held(self, streams: Sequence[bytes], schema: StructType) -> Java:
        """The RDD of the rows in Arrow streams, which the driver holds: a partition each."""
        held = self._jvm.java.util.ArrayList()
        for stream in streams:
            held.add(stream)
        return self.workshop.rows(held, self.struct(schema), self._session.sparkContext())

    def whole(self, key: str, name: str, known: Java, schema: Java, options: dict[str, str]) -> Java:
        """The relation of a stream, live and settled in one, still open."""
        return self.workshop.whole(key, name, known, self._session, schema, self._java_map(options))

    def parsed(self, schema: str) -> Java:
        """A schema in Spark's JSON."""
        return self._session.parseDataType(schema)

    def with_one_commit(self, frame: DataFrame) -> DataFrame:
        """The same frame, whose files are written as `java/OneCommit.java` says."""
        return DataFrame(self.workshop.inOneCommit(frame._jdf), self._spark)

    def relation_of(self, frame: DataFrame) -> Java:
        """The relation that a frame reads, and nothing else."""
        return frame._jdf.queryExecution().analyzed().relation()

    def frame_of(self, relation: Java) -> DataFrame:
        """A DataFrame of one relation."""
        return DataFrame(self._session.baseRelationToDataFrame(relation), self._spark)

    def resolved(self, kind: str, path: str, schema: StructType | None, options: dict[str, str]) -> Java:
        """The relation of files at a path, as Spark itself finds them; without a schema it is inferred."""
        struct = None if schema is None else self.struct(schema)
        return self.workshop.resolved(self._session, kind, path, struct, self._java_map(options))

    def dataset(
        self,
        key: str,
        name: str,
        size: int,
        kind: str,
        data: StructType,
        partitions: StructType,
        options: dict[str, str],
    ) -> DataFrame:
        """A DataFrame of the data set `key`, still open: each query of it gets its files."""
        relation = self.workshop.dataset(
            key, name, size, kind, self.struct(data), self.struct(partitions), self._java_map(options), self._session
        )
        return self.frame_of(relation)

    def numbered(
        self, resolved: Java, files: Java, chosen: bytes, data: StructType, number: StructType, options: dict[str, str]
    ) -> DataFrame:
        """The rows of some files of a list, each file read whole by one task, with its number in the last column."""
        relation = self.workshop.numbered(
            resolved, files, bytearray(chosen), self.struct(data), self.struct(number), self._java_map(options)
        )
        return self.frame_of(relation)

    def views(self) -> OwnViews:
        """Views of the session for one who makes them."""
        return OwnViews(self.workshop.views(self._session))

    def serve(self, opening: Callback) -> None:
        """Let `format("millpond")` ask `opening` in all sessions of this JVM."""
        self.workshop.serve(opening)

    def _java_map(self, items: dict[str, str]) -> Java:
        found = self._jvm.java.util.HashMap()
        for name, value in items.items():
            found.put(name, value)
        return found


class OwnViews:
    """The temporary views that somebody has made in a session, and which nobody has replaced since. Thread-safe."""

    def __init__(self, views: Java) -> None:
        self._views = views

    def make(self, frame: DataFrame, name: str) -> bool:
        """A view, or one of these anew. False, and nothing done, if the name is somebody else's."""
        return bool(self._views.make(frame._jdf, name))

    def drop(self, name: str) -> None:
        """Without one of these; nothing happens if it is not among them any more."""
        self._views.drop(name)

    def drop_all(self) -> None:
        self._views.dropAll()

    @property
    def names(self) -> set[str]:
        """In lower case."""
        return set(str(self._views.names()).split("\0")) - {""}


class Callback:
    """A Python function of two strings that the JVM may call, in any of its threads. It must not raise: an exception
    reaches the user as py4j's, without its text; one that ends threads leaves the JVM waiting for an answer for good.

    Python holds it for as long as the JVM does."""

    class Java:
        implements = ("java.util.function.BiFunction",)

    def __init__(self, function: Callable[[str, str], Any]) -> None:
        self._function = function

    def apply(self, first: str, second: str) -> Any:
        try:
            return self._function(first, second)
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error


def session_of(session: Java) -> SparkSession:
    """Python's face of a session that the JVM speaks of."""
    context = SparkContext._active_spark_context
    if context is None:
        raise SparkUnavailable("Spark was stopped", hint="get a new session from SparkSession.builder")
    return SparkSession(context, session)


def check_session(spark: SparkSession) -> None:
    """`SparkUnavailable` unless this is a classic session of the Spark that Millpond is made for."""
    if not pyspark.__version__.startswith(f"{VERSION}."):
        raise SparkUnavailable(
            f"pyspark {pyspark.__version__} is installed, Millpond needs {VERSION}",
            hint=f"pip install 'pyspark=={VERSION}.*'",
        )
    if getattr(spark, "_jsparkSession", None) is None or getattr(spark, "_jvm", None) is None:
        raise SparkUnavailable(
            "this Spark session has no JVM of its own (Spark Connect?)",
            hint="use SparkSession.builder.master(...).getOrCreate() in the process of the pond",
        )
    if spark.sparkContext._jsc is None:
        raise SparkUnavailable("this Spark session was stopped", hint="get a new one from SparkSession.builder")
