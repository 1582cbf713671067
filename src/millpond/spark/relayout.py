"""Relayout and the analysis as Spark jobs: executors read, rewrite and report, the driver commits.

Units are rewritten in waves of about as many parts as there are cores, and each unit of a wave is committed by itself
when the wave is done: a job that is killed loses at most a wave. A task that Spark runs twice writes under other names,
and only the report that Spark took counts; what the other run wrote is left for a vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import metadata

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from millpond.archive.analysis import Draw, to_read
from millpond.archive.relayout import Unit
from millpond.model.definition import StreamDefinition
from millpond.model.stored_definition import decode_definition, encode_definition
from millpond.spark.live import use_our_python
from millpond.spark.travelling import packed_kinds
from millpond.wire.relayout import RelayoutTicket, Rewrite, decode_table, encode_unit

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_WORK, _DONE = "unit int, part int, work binary", "unit int, part int, done binary"
# Objects that one task samples.
_SAMPLED_AT_ONCE = 16


def rewriting(spark: SparkSession) -> Rewrite:
    """What rewrites units in the executors of a session."""

    def rewrite(ticket: RelayoutTicket, units: Sequence[Unit]) -> Iterator[tuple[Unit, list[pa.Table]]]:
        kinds = packed_kinds(decode_definition(ticket.definition))
        task = _rewriting_task(metadata.version("millpond"), msgspec.json.encode(ticket), kinds)
        for wave in _waves(units, spark.sparkContext.defaultParallelism):
            work = [(at, part, encode_unit(unit)) for at, unit in enumerate(wave) for part in range(unit.parts)]
            reports: list[list[pa.Table]] = [[] for _ in wave]
            for at, _, done in sorted(_run(spark, task, work)):
                reports[at].append(decode_table(done))
            yield from zip(wave, reports, strict=True)

    return rewrite


def sampling(spark: SparkSession, definition: StreamDefinition, root: str) -> Draw:
    """What draws a sample in the executors of a session."""

    def draw(entries: pa.Table, columns: Sequence[str], rows: Sequence[int]) -> Iterator[pa.Table]:
        wanted = list(zip(to_read(entries), rows, strict=True))
        groups = [wanted[at : at + _SAMPLED_AT_ONCE] for at in range(0, len(wanted), _SAMPLED_AT_ONCE)]
        work = [(at, 0, msgspec.msgpack.encode(group)) for at, group in enumerate(groups)]
        task = _sampling_task(metadata.version("millpond"), root, encode_definition(definition), list(columns))
        return (decode_table(done) for _, _, done in sorted(_run(spark, task, work)))

    return draw


def _waves(units: Sequence[Unit], cores: int) -> Iterator[list[Unit]]:
    wave: list[Unit] = []
    for unit in units:
        wave.append(unit)
        if sum(one.parts for one in wave) >= cores:
            yield wave
            wave = []
    if wave:
        yield wave


def _run(spark: SparkSession, task: Task, work: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Each piece of work in a task of its own."""
    use_our_python(spark)
    pieces = spark.sparkContext.parallelize([(at, part, bytearray(data)) for at, part, data in work], len(work))
    found = spark.createDataFrame(pieces, _WORK).mapInArrow(task, _DONE).collect()
    return [(row["unit"], row["part"], bytes(row["done"])) for row in found]


# What executors run: functions inside functions travel by value, see `writer`.


def _rewriting_task(version: str, ticket: bytes, kinds: bytes) -> Task:
    """`kinds`: classes of the user's, packed, which travel with the task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        from millpond.client import bulk_tasks

        bulk_tasks.check_version(version)
        bulk_tasks.know_kinds(kinds)
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("unit", "part", "work"))
            for unit, part, work in zip(*columns, strict=True):
                done = bulk_tasks.rewrite_part(ticket, work, part)
                arrays = [pyarrow.array([unit], "int32"), pyarrow.array([part], "int32"), pyarrow.array([done])]
                yield pyarrow.RecordBatch.from_arrays(arrays, ["unit", "part", "done"])

    return run


def _sampling_task(version: str, root: str, definition: str, columns: list[str]) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import msgspec
        import pyarrow

        from millpond.archive.reader import ObjectToRead
        from millpond.client import bulk_tasks

        bulk_tasks.check_version(version)
        for batch in batches:
            for unit, work in zip(batch.column("unit").to_pylist(), batch.column("work").to_pylist(), strict=True):
                wanted = msgspec.msgpack.decode(work, type=list[tuple[ObjectToRead, int]])
                done = bulk_tasks.sample_rows(root, definition, wanted, columns)
                arrays = [pyarrow.array([unit], "int32"), pyarrow.array([0], "int32"), pyarrow.array([done])]
                yield pyarrow.RecordBatch.from_arrays(arrays, ["unit", "part", "done"])

    return run
