"""The live half of one scan: an RDD whose tasks fetch their ranges from the node's door, filtered and projected there.

It is planned as a DataFrame of its own (one row per task, mapped to what the task fetches), because that is the way by
which Spark takes Arrow batches from Python without copying them row by row. No job runs here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millpond.flight import fetch
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import JSON_BYTES_MAX, Predicate, encode
from millpond.wire.served import Door
from millpond.wire.ticket import LiveTicket, encode_ticket

# Below this a task costs more than it fetches.
ROWS_PER_TASK_MIN = 65_536
# A few for each core, so that uneven ones level out.
TASKS_PER_CORE = 2

# Executors get the code with the task, so that pyarrow is all they need.
cloudpickle.register_pickle_by_value(fetch)  # type: ignore[no-untyped-call]


def live_frame(spark: SparkSession, door: Door, tickets: Sequence[LiveTicket], schema: StructType) -> DataFrame:
    """What the tickets' tasks fetch. `schema`: the tickets' columns, as Spark has them."""
    encoded = [encode_ticket(ticket) for ticket in tickets]
    _use_our_python(spark)
    return spark.range(0, len(encoded), 1, len(encoded)).mapInArrow(_reader(door, encoded), schema)


def _use_our_python(spark: SparkSession) -> None:
    """In local mode executors are this machine: unless told otherwise, let them run the interpreter that has pyarrow
    (Spark's own default is whatever `python3` the PATH finds, which in a virtual environment need not be it)."""
    context = spark.sparkContext
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def _reader(door: Door, tickets: list[bytes]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return fetch.ticket_reader(door.location, door.token, tickets)


def tickets_for(
    stream: int,
    generation: int,
    ranges: Mapping[int, OffsetRange],
    columns: Sequence[str],
    predicate: Predicate | None,
    cores: int,
) -> list[LiveTicket]:
    """The ranges, dealt out to tasks of about equal numbers of offsets."""
    if predicate is not None and len(encode(predicate)) > JSON_BYTES_MAX:
        predicate = None  # too large to send, and Spark filters again
    total = sum(map(len, ranges.values()))
    share = max(ROWS_PER_TASK_MIN, -(-total // (cores * TASKS_PER_CORE)))
    return [LiveTicket(stream, generation, part, tuple(columns), predicate) for part in _shares(ranges, share)]


def _shares(ranges: Mapping[int, OffsetRange], share: int) -> Iterator[dict[int, OffsetRange]]:
    part: dict[int, OffsetRange] = {}
    room = share
    for streamlet, offsets in sorted(ranges.items()):
        at = offsets.start
        while at < offsets.stop:
            stop = min(offsets.stop, at + room)
            part[streamlet] = OffsetRange(at, stop)
            room -= stop - at
            at = stop
            if room == 0:
                yield part
                part, room = {}, share
    if part:
        yield part
