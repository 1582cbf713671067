"""Writing a DataFrame to a stream: tasks write under names of their own and report them, the driver commits once.

Tasks retry, run twice (speculation) or die: Spark takes the report of one run of each, and the commit names what those
say. So readers see all of a write or nothing of it. What other runs left behind is invisible: stages are forgotten,
objects are left for a vacuum.

Whether a frame fits its stream is checked before any task runs, and by the very code that takes in appends.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from millpond.archive.load import ROW_BITS, Load
from millpond.errors import Backpressure, Fenced, InvalidValue, MillpondError, TooLarge
from millpond.ingest import Ingest
from millpond.model.definition import StreamDefinition
from millpond.model.schema import SYSTEM_COLUMNS
from millpond.spark.live import use_our_python
from millpond.spark.ponds import open_stream
from millpond.spark.travelling import packed_kinds
from millpond.spark.write_options import read_write_options
from millpond.wire.bulk import Bulk, LoadTicket
from millpond.wire.requests import Append

logger = logging.getLogger(__name__)

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# How long a job waits for another one that loads the same stream.
WAIT_SECONDS = 180.0
_LOOK_SECONDS = 1.0


def write_stream(frame: DataFrame, given: Mapping[str, str], mode: str) -> None:
    """Append a frame to a stream, all of it or nothing. `mode`: as Spark calls it."""
    options = read_write_options(given)
    if mode != "Append":
        raise InvalidValue(
            f"mode {mode!r}: a stream is only ever appended to",
            hint='.mode("append"); to begin anew, truncate the stream first',
        )
    opened = open_stream(options.where)
    job = f"spark/{secrets.token_hex(8)}"
    with contextlib.closing(opened):
        bulk: Bulk = opened.stream.bulk
        ready = fitting(frame, bulk.definition)
        if options.to == "archive":
            load(ready, bulk, job)
        else:
            append(ready, bulk, job, sequence=0)


def fitting(frame: DataFrame, definition: StreamDefinition) -> DataFrame:
    """The frame without columns that are the system's to give; an error that names the columns if it does not fit."""
    own = [name for name in frame.columns if name not in SYSTEM_COLUMNS]
    if len(set(own)) != len(own):
        raise InvalidValue(f"a column is there twice: {', '.join(own)}", hint="select each column once")
    chosen = frame if len(own) == len(frame.columns) else frame.select([frame[f"`{name}`"] for name in own])
    arrow = to_arrow_schema(chosen.schema, timezone="UTC")
    Ingest(definition).checked(pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in arrow], schema=arrow), 0)
    return chosen


def append(frame: DataFrame, bulk: Bulk, job: str, sequence: int) -> None:
    """Append to the log, as one group. The same job and sequence append once, however often they are tried."""
    bulk.forget_staged(f"{job}/")
    door, definition = bulk.door(), bulk.definition
    request = msgspec.json.encode(Append(definition.name, id=definition.id))
    try:
        task = _staging_task(
            metadata.version("millpond"), door.location, door.token, dict(door.tls), request, f"{job}/"
        )
        found = _run(frame, task, "task int, rows long, stage string")
        stages = [row["stage"] for row in sorted(found, key=lambda row: row["task"]) if row["rows"]]
        if stages:
            bulk.commit_staged(stages, producer=job, sequence=sequence)
    except TooLarge as error:
        raise TooLarge(error.message, hint='.option("to", "archive") has no such bound') from error
    finally:
        with contextlib.suppress(MillpondError):  # they go by themselves after a while
            bulk.forget_staged(f"{job}/")


def load(frame: DataFrame, bulk: Bulk, job: str, *, number: int | None = None, row_bits: int = ROW_BITS) -> None:
    """Load into the archive, with one commit. With a number, the same job and number load once."""
    ticket = _begin(bulk, job, number)
    if ticket is None:
        return
    try:
        with _renewed(bulk, ticket):
            kinds = packed_kinds(bulk.definition)
            task = _loading_task(metadata.version("millpond"), msgspec.json.encode(ticket), row_bits, kinds)
            found = _run(frame, task, "task int, rows long, report binary")
            reports = [pa.ipc.open_stream(row["report"]).read_all() for row in found if row["rows"]]
            if reports:
                bulk.commit_load(ticket.load, pa.concat_tables(reports, promote_options="default"))
    finally:
        with contextlib.suppress(MillpondError):  # its lease ends by itself
            bulk.abort_load(ticket.load)


def _run(frame: DataFrame, task: Task, schema: str) -> list[Any]:
    use_our_python(frame.sparkSession)
    return frame.mapInArrow(task, schema).collect()


def _begin(bulk: Bulk, job: str, number: int | None) -> LoadTicket | None:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return bulk.begin_load(job, mark="" if number is None else job, number=number or 0)
        except Backpressure as busy:
            left = until - time.monotonic()
            if left <= 0:
                raise
            time.sleep(min(left, _LOOK_SECONDS, busy.retry_after_seconds))


@contextlib.contextmanager
def _renewed(bulk: Bulk, ticket: LoadTicket) -> Iterator[None]:
    """While inside, the load's lease is kept alive."""
    over = threading.Event()

    def renew(load: Load) -> None:
        while not over.wait(ticket.lease_seconds / 4):
            try:
                bulk.renew_load(load)
            except Fenced as error:
                logger.warning("%s", error.message)  # the commit will be told
                return
            except MillpondError as error:
                logger.warning("a load's lease was not renewed: %s", error.message)

    thread = threading.Thread(target=renew, args=(ticket.load,), name="millpond-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# What executors run. Functions inside functions travel by value, so that an executor need not have this module, which
# would import the driver's half of Spark in every one of its workers.


def _staging_task(version: str, location: str, token: str, tls: dict[str, bytes], request: bytes, prefix: str) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json
        import secrets

        import pyarrow
        from pyspark import TaskContext

        from millpond.client import bulk_tasks

        bulk_tasks.check_version(version)
        context = TaskContext.get()
        assert context is not None
        task, stage = context.partitionId(), f"{prefix}{context.partitionId()}-{secrets.token_hex(8)}"
        asking = json.dumps({**json.loads(request), "stage": stage}).encode()
        rows = bulk_tasks.stage_rows(location, token, tls, asking, batches)
        columns = [pyarrow.array([task], "int32"), pyarrow.array([rows], "int64"), pyarrow.array([stage])]
        yield pyarrow.RecordBatch.from_arrays(columns, ["task", "rows", "stage"])

    return run


def _loading_task(version: str, ticket: bytes, row_bits: int, kinds: bytes) -> Task:
    """`kinds`: classes of the user's, packed, which travel with the task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        from millpond.client import bulk_tasks

        bulk_tasks.check_version(version)
        bulk_tasks.know_kinds(kinds)
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        rows, report = bulk_tasks.load_rows(ticket, task, row_bits, batches)
        columns = [pyarrow.array([task], "int32"), pyarrow.array([rows], "int64"), pyarrow.array([report], "binary")]
        yield pyarrow.RecordBatch.from_arrays(columns, ["task", "rows", "report"])

    return run
