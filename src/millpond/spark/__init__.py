"""Spark over the pond: everything that touches pyspark or py4j.

`to_spark` and `attach` are called by `Stream.to_spark` and `Pond.attach`; `register` and `last_query` are for users.

How a query runs. A stream is a DataFrame: the union of a file scan of its settled objects, by Spark's own Parquet
reader, and a scan of its live ranges, fetched by Flight. Both are open until a query is optimised: then a rule of ours
pins every scan of the stream in that query to one snapshot (see `java/SnapshotRule.java`). While planning, Spark hands
the predicates of each scan to us: objects that cannot match are ruled out before anything is opened (F4), and live
records are filtered and projected by the node (K13).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from millpond.errors import InvalidInput
from millpond.spark.planner import planner_of
from millpond.spark.provider import register
from millpond.spark.report import QueryFigures
from millpond.spark.views import Attachment, attach
from millpond.wire.served import ServedStream

__all__ = ["to_spark", "attach", "register", "last_query", "Attachment", "QueryFigures"]


def to_spark(stream: ServedStream, spark: SparkSession) -> DataFrame:
    """The stream as a DataFrame, live ∪ settled. A query of it sees one exact snapshot, taken when it is planned.

    Whatever is made from the frame (`frame.where(...)`, `frame.count()`, a view) is a new query with a new snapshot. To
    collect one and the same DataFrame twice is to run one plan twice: it sees the first snapshot again, because Spark
    re-uses what the plan has broadcast and shuffled, and half of a newer one would be wrong."""
    return planner_of(spark).frame(stream)


def last_query(spark: SparkSession) -> QueryFigures:
    """What the session's last query over a pond's streams read, and what it was spared."""
    figures = planner_of(spark).last_query()
    if figures is None:
        raise InvalidInput("no query over a pond's streams has run in this session", hint="run one, then ask again")
    return figures
