"""The files that Spark lists, brought over from the JVM: one text for the files, one for their partitions."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from millpond.archive.dataset.files import Listing, PartitionColumn
from millpond.spark.catalyst import literals
from millpond.spark.schema import arrow_schema
from millpond.spark.workshop import Java

_FIELDS = 4


def listing_of(files: Java, partitions: StructType) -> Listing:
    """`files`: a FileList; see there for the form of its texts."""
    return parse_listing(str(files.text()), str(files.partitions()), partitions)


def parse_listing(text: str, values: str, partitions: StructType) -> Listing:
    parts = text.split("\0") if text else []
    numbers = [np.array(parts[at::_FIELDS], dtype=np.int64) for at in range(3)]
    return Listing(
        paths=parts[3::_FIELDS],
        partition_of=numbers[0],
        sizes=numbers[1],
        modified_millis=numbers[2],
        partitions=_columns(values, partitions),
    )


def _columns(values: str, partitions: StructType) -> dict[str, PartitionColumn]:
    """Values of types that indexes do not know are left to Spark."""
    rows = [literals(row) for row in values.split("\0")] if values and len(partitions) else []
    names = [field.name for field in partitions]
    found = {}
    for field in arrow_schema(partitions):
        column = [row[names.index(field.name)] for row in rows]
        known = pa.array([_bound(value) for value, _ in column], field.type)
        found[field.name] = PartitionColumn(known, np.array([null for _, null in column], dtype=np.bool_))
    return found


def _bound(value: object) -> object:
    """A NaN has no place among bounds."""
    return None if isinstance(value, float) and math.isnan(value) else value
