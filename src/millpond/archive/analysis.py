"""The analysis: would another model read less for the queries that are really asked?

A sample of the last period's rows is drawn from the objects, the layout is fitted to it and to the history of queries,
and what both models, the one that counts now and the new one, would read for that history is estimated on the same
sample. Half of the rows are for fitting and half for judging, so that the new model is not judged by the rows it knows.

Sampling reads the columns that are needed, and of as many objects as give enough rows. An object's share of the sample
is drawn by itself (`sample_object`), by this process or by executors: the same rows either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.index.entries import BLOCKS, BYTES, PATH, ROWS
from millpond.archive.layout.arranging import fitted
from millpond.archive.layout.estimate import estimate_bytes
from millpond.archive.layout.layout import Layout, Model
from millpond.archive.layout.sample import SAMPLE_ROWS
from millpond.archive.objects import parse_name
from millpond.archive.partition import row_times
from millpond.archive.reader import ObjectToRead, read_object
from millpond.archive.snapshot import SettledSnapshot
from millpond.errors import InvalidValue
from millpond.model import predicate as predicates
from millpond.model.definition import StreamDefinition
from millpond.model.past_query import PastQuery, past_query
from millpond.model.schema import INGEST_TIME
from millpond.storage.protocol import Storage

# Twice what a model is fitted to: one half judges.
_ROWS = 2 * SAMPLE_ROWS
# More objects make the sample no better, only slower to draw.
_OBJECTS_MAX = 512

# Objects' entries, the columns to read, and how many rows to draw of each: the rows, a table per object.
Draw = Callable[[pa.Table, Sequence[str], Sequence[int]], Iterable[pa.Table]]


@dataclass(frozen=True)
class Analysis:
    """What an analysis found. Bytes are those of the last period's objects that the history would read, each query
    counted as often as it was asked. `swapped`: whether the new model counts from now on."""

    stream: str
    layout: str
    queries: int
    rows_sampled: int
    bytes_sampled: int
    bytes_current: float
    bytes_new: float
    model_current: str | None
    model_new: str
    swapped: bool

    @property
    def ratio(self) -> float | None:
        """What the new model would read of what the current one does; None if nobody asked anything."""
        return self.bytes_new / self.bytes_current if self.bytes_current else None


def check_better_by(better_by: float) -> float:
    """A share of bytes, if it is one."""
    if not 0 <= better_by < 1:
        raise InvalidValue(f"better_by={better_by}", hint="a share of the bytes, e.g. 0.1")
    return better_by


def analysed(
    definition: StreamDefinition,
    layout: Layout,
    current: Model | None,
    snapshot: SettledSnapshot,
    history: Sequence[PastQuery],
    draw: Draw,
    *,
    seconds: float,
    better_by: float,
) -> tuple[Model, Analysis]:
    """All of it: a new model, from the last so many seconds of data, and whether it should count."""
    entries = last_period(snapshot, seconds)
    if not entries.num_rows:
        raise InvalidValue(f"nothing of {definition.name} has settled yet", hint="settle it first")
    sample = draw_sample(definition, layout, history, entries, draw)
    size = sum(entries.column(BYTES).to_pylist())
    return judge(definition, layout, current, sample, size, history, better_by=better_by)


def past_queries(recorded: pa.Table, schema: pa.Schema) -> list[PastQuery]:
    """What is on record of a stream, as a layout can learn from it. `schema`: with the columns of ours."""
    asked = zip(recorded["time"].cast(pa.int64()).to_pylist(), recorded["predicate"].to_pylist(), strict=True)
    learnt = (past_query(predicates.decode(text), schema, at) for at, text in asked)
    return [query for query in learnt if query is not None]


def last_period(snapshot: SettledSnapshot, seconds: float) -> pa.Table:
    """The entries of objects of the last so many seconds of data, by time partitions: at least the newest one."""
    objects = snapshot.objects
    names = [parse_name(path) for path in objects.paths]
    ends = np.array([-1 if name is None else name.start + name.seconds for name in names], np.int64)
    ends[objects.rows < 1] = -1
    if not len(ends) or ends.max() < 0:
        return objects.entries.slice(0, 0)
    return objects.entries.take(pa.array(np.flatnonzero(ends > ends.max() - max(seconds, 1))))


def draw_sample(
    definition: StreamDefinition, layout: Layout, history: Sequence[PastQuery], entries: pa.Table, draw: Draw
) -> pa.Table:
    """Rows that stand for all of these objects'; of each as many as is its share."""
    rng = np.random.default_rng(entries.num_rows)
    if entries.num_rows > _OBJECTS_MAX:
        chosen = np.sort(rng.choice(entries.num_rows, _OBJECTS_MAX, replace=False))
        entries = entries.take(pa.array(chosen))
    rows = np.array(entries.column(ROWS).to_pylist(), np.int64)
    wanted = np.minimum(rows, -(-rows * _ROWS // max(1, int(rows.sum())))).tolist()
    asked = {name for query in history for name in query.ranges}
    times = [definition.event_time] if definition.event_time else []
    known = [field.name for field in definition.schema if field.name in asked | {*layout.columns, *times}]
    return pa.concat_tables(draw(entries, [*known, INGEST_TIME], wanted))


def sample_object(
    storage: Storage, root: str, schema: pa.Schema, wanted: ObjectToRead, columns: Sequence[str], rows: int
) -> pa.Table:
    """So many rows of one object, drawn by chance that is the same every time."""
    part = pa.schema([schema.field(name) for name in columns])
    whole = pa.Table.from_batches(read_object(storage, root, wanted, schema, columns, None), part)
    if whole.num_rows <= rows:
        return whole
    chosen = np.random.default_rng(whole.num_rows).choice(whole.num_rows, rows, replace=False)
    return whole.combine_chunks().take(pa.array(np.sort(chosen)))


def to_read(entries: pa.Table) -> list[ObjectToRead]:
    """What is read of them."""
    columns = (entries.column(name).to_pylist() for name in (PATH, BYTES, BLOCKS))
    return [ObjectToRead(*one) for one in zip(*columns, strict=True)]


def judge(
    definition: StreamDefinition,
    layout: Layout,
    current: Model | None,
    sample: pa.Table,
    bytes_sampled: int,
    history: Sequence[PastQuery],
    *,
    better_by: float,
) -> tuple[Model, Analysis]:
    """A new model, and whether it should count: if it reads at least this share less than the current one, or if there
    is none."""
    judging = np.random.default_rng(sample.num_rows).permutation(sample.num_rows) % 2 == 1
    if sample.num_rows < 2:
        judging[:] = True
    new = fitted(layout, sample.filter(pa.array(~judging)) if not judging.all() else sample, history)
    known = sample.filter(pa.array(judging))
    partitions = _partitions(known, definition)

    def read_by(model: Model | None) -> float:
        return estimate_bytes(known, partitions, model, history, bytes_total=bytes_sampled, buckets=layout.buckets)

    before, after = read_by(current), read_by(new)
    better = current is None or (before > 0 and after <= before * (1 - better_by))
    same = current is not None and current.id == new.id
    return new, Analysis(
        definition.name,
        str(layout.spec),
        len(history),
        sample.num_rows,
        bytes_sampled,
        before,
        after,
        None if current is None else current.id,
        new.id,
        better and not same,
    )


def _partitions(rows: pa.Table, definition: StreamDefinition) -> npt.NDArray[np.int64]:
    times = row_times(rows, definition.event_time)
    micros: npt.NDArray[np.int64] = times.cast(pa.int64()).to_numpy()
    return micros // (definition.partition_seconds * 1_000_000)
