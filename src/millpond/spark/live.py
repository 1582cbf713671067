"""The live half of one scan: what the node's door gives for the scan's ranges, filtered and projected there (K13).

A little is fetched by the driver while it plans, and goes to executors with their tasks: that spares starting Python
in them, which takes longer than the rest of a small query. Anything larger is fetched by tasks. Their RDD is planned
as a DataFrame of its own (one row per task, mapped to what the task fetches), because that is the way by which Spark
takes Arrow batches from Python without copying them row by row. No job runs here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millpond.flight import fetch, fetch_live
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import JSON_BYTES_MAX, Predicate, encode
from millpond.wire.served import Door
from millpond.wire.ticket import LiveTicket, encode_ticket

# Below this a task costs more than it fetches.
ROWS_PER_TASK_MIN = 65_536
# A few for each core, so that uneven ones level out.
TASKS_PER_CORE = 2
# What the driver may fetch while it plans. Rows are those that the node must look at, which takes it milliseconds;
# bytes are those that come back, and go on through py4j.
ROWS_HELD_MAX = 65_536
BYTES_HELD_MAX = 1 << 20

# Executors get the code with the task, so that pyarrow is all they need.
cloudpickle.register_pickle_by_value(fetch)  # type: ignore[no-untyped-call]


def fetch_little(door: Door, tickets: Sequence[LiveTicket]) -> list[bytes] | None:
    """What each ticket fetches, as an Arrow stream; None if it is too much for the driver to hold."""
    if sum(len(offsets) for ticket in tickets for offsets in ticket.ranges.values()) > ROWS_HELD_MAX:
        return None
    held: list[bytes] = []
    for ticket in tickets:
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in fetch_live(door.location, door.token, ticket, door.tls):
            size += batch.nbytes
            if size > BYTES_HELD_MAX:
                return None
            batches.append(batch)
        held.append(_as_stream(batches) if batches else b"")
    return held


def _as_stream(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def live_frame(spark: SparkSession, door: Door, tickets: Sequence[LiveTicket], schema: StructType) -> DataFrame:
    """What the tickets' tasks fetch. `schema`: the tickets' columns, as Spark has them."""
    encoded = [encode_ticket(ticket) for ticket in tickets]
    use_our_python(spark)
    return spark.range(0, len(encoded), 1, len(encoded)).mapInArrow(_reader(door, encoded), schema)


def use_our_python(spark: SparkSession) -> None:
    """In local mode executors are this machine: unless told otherwise, let them run the interpreter that has pyarrow
    (Spark's own default is whatever `python3` the PATH finds, which in a virtual environment need not be it)."""
    context = spark.sparkContext
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def _reader(door: Door, tickets: list[bytes]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return fetch.ticket_reader(door.location, door.token, tickets, dict(door.tls))


def tickets_for(
    stream: int,
    generation: int,
    ranges: Mapping[int, OffsetRange],
    columns: Sequence[str],
    predicate: Predicate | None,
    cores: int,
    *,
    cutoff_micros: int | None = None,
    apart: bool = False,
) -> list[LiveTicket]:
    """The ranges, dealt out to tasks of about equal numbers of offsets.

    `apart`: as a stream's consumers expect it, a task has records of one streamlet alone. Where so few are wanted that
    the driver fetches them, a streamlet is at least in one partition alone: there are as many as cores, not more."""
    if predicate is not None and len(encode(predicate)) > JSON_BYTES_MAX:
        predicate = None  # too large to send, and Spark filters again
    total = sum(map(len, ranges.values()))
    share = max(ROWS_PER_TASK_MIN, -(-total // (cores * TASKS_PER_CORE)))
    if not apart:
        parts = list(_shares(ranges, share))
    elif total <= ROWS_HELD_MAX:
        parts = _dealt(ranges, cores)
    else:
        parts = [part for s, offsets in sorted(ranges.items()) for part in _shares({s: offsets}, share)]
    return [LiveTicket(stream, generation, part, tuple(columns), predicate, cutoff_micros) for part in parts]


def _dealt(ranges: Mapping[int, OffsetRange], hands: int) -> list[dict[int, OffsetRange]]:
    """Whole streamlets in so many hands, the largest first, each to the one that has least."""
    dealt: list[dict[int, OffsetRange]] = [{} for _ in range(min(hands, len(ranges)))]
    for streamlet, offsets in sorted(ranges.items(), key=lambda item: -len(item[1])):
        min(dealt, key=lambda hand: sum(map(len, hand.values())))[streamlet] = offsets
    return dealt


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
