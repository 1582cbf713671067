"""The options of `format("millpond")` for writing, checked: an option that is misspelt is an error, not a surprise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.errors import InvalidValue
from millpond.spark.source_options import WHERE, Where, check_names, read_where

HOW = {
    "to": "log (as appends are), or archive (objects straight into its table, for large loads)",
    # What Spark itself hands over with a sink's options.
    "checkpointLocation": "where Spark keeps a streaming query's progress",
    "queryName": "what Spark calls a streaming query",
}
TARGETS = ("log", "archive")
# How Spark hands over what partitionBy named.
PARTITION_COLUMNS = "__partition_columns"


@dataclass(frozen=True)
class WriteOptions:
    """Where and how a frame is written."""

    where: Where
    to: str = "log"


def read_write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write or a sink."""
    if PARTITION_COLUMNS in given:
        raise InvalidValue(
            f"partitionBy({given[PARTITION_COLUMNS]})", hint="a stream has time partitions of its own: leave it out"
        )
    check_names(given, {**WHERE, **HOW})
    found = {name.lower(): value for name, value in given.items()}
    to = found.get("to", "log").strip().lower()
    if to not in TARGETS:
        raise InvalidValue(f"to {to!r}", hint=f"one of {', '.join(TARGETS)}")
    return WriteOptions(read_where(given), to)
