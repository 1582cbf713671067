"""How much past queries would read of data that is laid out by a model: estimated from a sample, without writing it.

The sample's rows are dealt to time partitions and buckets as a settle would deal them; each such group stands for an
object, with the share of all bytes that it has of the sample's rows. A query reads a group if every range that it asks
for meets the range of the group's values there, which is what the index of ranges would say. All in numpy: a table of
queries by groups, one comparison per column.

Rows without a place (null, NaN) widen no range here. What other kinds of indexes would leave out is not counted: it is
the same under any model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.layout.arranging import assigned, suited
from millpond.archive.layout.dimensions import Numbers, dimension_of, numbers_of
from millpond.archive.layout.layout import Model
from millpond.model.past_query import PastQuery

Places = npt.NDArray[np.int64]

# Queries that are compared at a time: with a thousand groups that is eight megabytes of answers.
_QUERIES_AT_ONCE = 8_192


def estimate_bytes(
    sample: pa.Table,
    partitions: Places,
    model: Model | None,
    history: Sequence[PastQuery],
    *,
    bytes_total: int,
    buckets: int,
) -> float:
    """The bytes that all queries together read, each as often as it weighs. `partitions`: that of each row;
    `bytes_total`: what the data takes that the sample stands for. Without a model rows lie as they come, in as many
    objects as there are `buckets`."""
    if not sample.num_rows or not history:
        return 0.0
    if model is None:
        placed = np.arange(sample.num_rows) * buckets // sample.num_rows
    else:
        placed = _placed(sample, partitions, model)
    groups, of_row, rows = np.unique(_joined(partitions, placed), return_inverse=True, return_counts=True)
    share = rows / sample.num_rows
    columns = sorted({name for query in history for name in query.ranges} & set(sample.schema.names))
    bounds = {name: _bounds(sample, name, of_row, len(groups)) for name in columns}
    total = 0.0
    for start in range(0, len(history), _QUERIES_AT_ONCE):
        some = history[start : start + _QUERIES_AT_ONCE]
        weights = np.array([query.weight for query in some])
        total += float(weights @ _read(some, bounds, len(groups)) @ share)
    return total * bytes_total


def _placed(sample: pa.Table, partitions: Places, model: Model) -> Places:
    """The bucket of each row. A partition for which the model is out of date is laid out by one that is suited to it,
    as it is when it is written."""
    placed = np.empty(sample.num_rows, np.int64)
    for partition in np.unique(partitions).tolist():
        own = np.flatnonzero(partitions == partition)
        rows = sample.take(pa.array(own))
        placed[own] = suited(model, assigned(model, rows), rows, model.buckets)[1]
    return placed


def _read(
    history: Sequence[PastQuery], bounds: dict[str, tuple[Numbers, Numbers]], groups: int
) -> npt.NDArray[np.float64]:
    """For each query and group, 1 if it reads it."""
    read = np.ones((len(history), groups), np.bool_)
    for name, (low, high) in bounds.items():
        ranges = [query.ranges.get(name, (None, None)) for query in history]
        lows = np.array([-np.inf if one is None else one for one, _ in ranges])[:, None]
        highs = np.array([np.inf if one is None else one for _, one in ranges])[:, None]
        unasked = np.array([name not in query.ranges for query in history])[:, None]
        read &= unasked | ((lows <= high) & (highs >= low))
    return read.astype(np.float64)


def _joined(partitions: Places, placed: Places) -> Places:
    """One number for each pair of partition and bucket."""
    _, of_row = np.unique(partitions, return_inverse=True)
    joined: Places = of_row.astype(np.int64) * (int(placed.max()) + 1) + placed
    return joined


def _bounds(sample: pa.Table, name: str, of_row: Places, groups: int) -> tuple[Numbers, Numbers]:
    """The least and the greatest number of each group; the wrong way round where it has none, so that nothing meets.
    Of text there are no ranges in a history: all of it meets."""
    dimension = dimension_of(sample.schema.field(name))
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    if dimension is None or dimension.form == "text":
        return high, low
    numbers = numbers_of(sample.select([name]), [dimension])[:, 0]
    there = np.isfinite(numbers)
    np.minimum.at(low, of_row[there], numbers[there])
    np.maximum.at(high, of_row[there], numbers[there])
    return low, high
