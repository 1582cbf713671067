"""Where to split a node of a k-d tree: which dimension, and at which value.

Every split is judged by one figure: which share of the node's rows a query that comes to this node still has to read
once the node is two. It is estimated in two ways, both exact about what the index will know, the tight bounds of the
rows on either side:

- **History.** Past queries that meet the node's bounds are put to both halves; a half that a query does not touch is
  saved. So a dimension counts for as much as queries cut it (its cutting value), and a cut counts for more the nearer
  it leaves equal halves (quality), among queries that come here at all (relevance), newer ones more (recency).
- **Compactness and shape.** A query of the usual width along each dimension, anywhere in the node, touches a half as
  likely as the half's bounds, widened by that query, fill the node's. Gaps between clusters make bounds tight, so cuts
  fall into them; a half that is long and thin is touched by more queries than a square one.

The two are averaged, history with the weight of the queries that were there, shape with that of a few. So where there
is no history, or it does not tell two dimensions apart, compactness decides.

Cuts are sought where they leave both sides as large as objects are meant to be, give or take a quarter. A dimension
whose values repeat too often for that is cut as near to it as can be, and its sides get buckets by their rows. The
same rows and queries always give the same split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.archive.layout.dimensions import Numbers
from millpond.model.past_query import PastQuery

Places = npt.NDArray[np.int64]

# How far an object may be from the mean size for the sake of tight bounds.
SLACK = 0.25
# Without history a query is taken to be this wide, as a share of what a dimension spans.
_WIDTH_SHARE = 0.02
# What shape and compactness weigh, in queries.
_SHAPE_QUERIES = 4.0
# A query counts half as much after a week.
_HALF_LIFE_MICROS = 7 * 86_400_000_000
# The span of a dimension is that of nearly all rows: a stray one in the sea does not change what a usual width is.
_SPAN_QUANTILES = (0.01, 0.99)
_MOST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class Workload:
    """Past queries as boxes: ends of their ranges per dimension, infinite where they are open, and their weights."""

    lows: Numbers
    highs: Numbers
    weights: Numbers
    widths: Numbers  # the usual width of a query along each dimension

    @classmethod
    def of(cls, columns: Sequence[str], history: Sequence[PastQuery], sample: Numbers) -> Workload:
        spans = _spans(sample)
        useful = [query for query in history if query.weight > 0 and any(name in query.ranges for name in columns)]
        ranges = [[query.ranges.get(name, (None, None)) for name in columns] for query in useful]
        shape = (len(useful), len(columns))
        lows = np.array([[-np.inf if low is None else low for low, _ in one] for one in ranges]).reshape(shape)
        highs = np.array([[np.inf if high is None else high for _, high in one] for one in ranges]).reshape(shape)
        newest = max((query.at_micros for query in useful), default=0)
        ages = np.array([newest - query.at_micros for query in useful], dtype=np.float64)
        weights = np.array([query.weight for query in useful], dtype=np.float64) * 0.5 ** (ages / _HALF_LIFE_MICROS)
        widths = _WIDTH_SHARE * spans
        if useful:
            # An open side reaches half of the span, no restriction at all reaches everywhere.
            sides = np.where(np.isinf(lows) & np.isinf(highs), np.inf, np.maximum(highs - lows, 0))
            sides = np.where(np.isinf(lows) ^ np.isinf(highs), spans / 2, sides)
            widths = np.array([_middle(sides[:, at], weights) for at in range(len(columns))])
        return cls(lows, highs, weights, widths)

    def meeting(self, low: Numbers, high: Numbers) -> Workload:
        """The queries that come to a box."""
        met = ((self.lows <= high) & (self.highs >= low)).all(axis=1)
        return Workload(self.lows[met], self.highs[met], self.weights[met], self.widths)


@dataclass(frozen=True, eq=False)
class Split:
    """Rows whose number in `dimension` is less than `cut` go left, with so many of the node's buckets."""

    dimension: int
    cut: float
    buckets_left: int
    cost: float


def best_split(
    numbers: Numbers, buckets: int, bucket_rows: float, workload: Workload, among: Sequence[int]
) -> Split | None:
    """The split of rows (as numbers, at least one) into two nodes of `buckets` together, by one of these dimensions.
    `bucket_rows`: what a bucket is meant to hold. None if no dimension tells any rows apart."""
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    relevant = workload.meeting(low, high)
    found = [
        split
        for dimension in among
        if (split := _best_cut(numbers, dimension, buckets, bucket_rows, relevant)) is not None
    ]
    return min(found, key=lambda split: split.cost, default=None)


def median_split(numbers: Numbers, left: int, buckets: int, dimension: int) -> Split | None:
    """The plain way: as near as can be to the share of the buckets on the left, whatever that costs queries."""
    ordered = np.sort(numbers[:, dimension])
    places = _distinct(ordered)
    if not len(places):
        return None
    at = int(places[np.argmin(np.abs(places - len(ordered) * left / buckets))])
    return Split(dimension, _between(float(ordered[at - 1]), float(ordered[at])), left, 0.0)


def _best_cut(numbers: Numbers, dimension: int, buckets: int, bucket_rows: float, workload: Workload) -> Split | None:
    rows = len(numbers)
    ordered = numbers[np.argsort(numbers[:, dimension], kind="stable")]
    places = _distinct(ordered[:, dimension])
    wanted = _near_wanted(places, rows, buckets, bucket_rows)
    if not len(wanted):
        return _uneven_cut(ordered, dimension, places, buckets, bucket_rows, workload)
    costs = _costs(ordered, dimension, wanted, workload)
    best = int(np.argmin(costs))
    return Split(dimension, _cut(ordered, dimension, int(wanted[best])), buckets // 2, float(costs[best]))


def _uneven_cut(
    ordered: Numbers, dimension: int, places: Places, buckets: int, bucket_rows: float, workload: Workload
) -> Split | None:
    """As near as can be to where it should be. What makes a bucket too large counts as if all of it had to be read."""
    rows = len(ordered)
    # At least half of what a bucket should hold: smaller objects cost more than they save.
    least = max(1.0, bucket_rows / 2)
    places = places[(places >= least) & (rows - places >= least)]
    if not len(places):
        return None
    at = int(places[np.argmin(np.abs(places - rows * (buckets // 2) / buckets))])
    left = min(buckets - 1, max(1, round(buckets * at / rows)))
    fullest = max(at / left, (rows - at) / (buckets - left)) / max(bucket_rows, rows / buckets)
    cost = float(_costs(ordered, dimension, np.array([at]), workload)[0]) * max(1.0, fullest / (1 + SLACK))
    return Split(dimension, _cut(ordered, dimension, at), left, cost)


def _cut(ordered: Numbers, dimension: int, at: int) -> float:
    return _between(float(ordered[at - 1, dimension]), float(ordered[at, dimension]))


def _near_wanted(places: Places, rows: int, buckets: int, bucket_rows: float) -> Places:
    """The places that leave on either side, per bucket, as many rows as wanted, give or take the slack."""
    left = buckets // 2
    right = buckets - left
    # A node that is off already can only keep its share.
    share = rows / (buckets * bucket_rows)
    least, most = min(1 - SLACK, share) * bucket_rows, max(1 + SLACK, share) * bucket_rows
    low = max(left * least, rows - right * most)
    high = min(left * most, rows - right * least)
    # Rows are whole: the very share of the buckets is always near enough.
    low, high = min(low, np.floor(rows * left / buckets)), max(high, np.ceil(rows * left / buckets))
    found: Places = places[(places >= low) & (places <= high)]
    return found


def _costs(ordered: Numbers, dimension: int, places: Places, workload: Workload) -> Numbers:
    """For a cut at each place (the first row that goes right): the share of the rows that a query reads after it."""
    share = places / len(ordered)
    shape = _shape_costs(ordered, places, share, workload.widths)
    weight = float(workload.weights.sum())
    if weight == 0:
        return shape
    column = ordered[:, dimension]
    # A side's rows are saved by queries that begin after its greatest number, or end before its least.
    past_left = _weight_below(-workload.lows[:, dimension], workload.weights, -column[places - 1])
    past_right = _weight_below(workload.highs[:, dimension], workload.weights, column[places])
    history = 1 - (share * past_left + (1 - share) * past_right) / weight
    return (weight * history + _SHAPE_QUERIES * shape) / (weight + _SHAPE_QUERIES)


def _shape_costs(ordered: Numbers, places: Places, share: Numbers, widths: Numbers) -> Numbers:
    left = np.ones(len(places))
    right = np.ones(len(places))
    for at, width in enumerate(widths.tolist()):
        column = np.clip(ordered[:, at], -_MOST / 4, _MOST / 4)
        low, high = float(column.min()), float(column.max())
        whole = high - low + width
        if not 0 < whole < np.inf:  # constant, or queries do not restrict it
            continue
        lows, highs = np.minimum.accumulate(column), np.maximum.accumulate(column)
        left *= (highs[places - 1] - lows[places - 1] + width) / whole
        lows = np.minimum.accumulate(column[::-1])[::-1]
        highs = np.maximum.accumulate(column[::-1])[::-1]
        right *= (highs[places] - lows[places] + width) / whole
    costs: Numbers = share * left + (1 - share) * right
    return costs


def _weight_below(ends: Numbers, weights: Numbers, values: Numbers) -> Numbers:
    """For each value, how much the queries weigh whose end is less."""
    order = np.argsort(ends, kind="stable")
    summed = np.concatenate([[0.0], np.cumsum(weights[order])])
    found: Numbers = summed[np.searchsorted(ends[order], values, side="left")]
    return found


def _distinct(ordered: Numbers) -> Places:
    """The places at which a sorted column grows."""
    return np.flatnonzero(ordered[1:] > ordered[:-1]) + 1


def _between(low: float, high: float) -> float:
    """A finite number above `low` and not above `high`, in the middle where that can be."""
    middle = low / 2 + min(high, _MOST) / 2
    return middle if low < middle <= high else min(high, _MOST)


def _spans(sample: Numbers) -> Numbers:
    """What each dimension spans, nearly."""
    spans = np.zeros(sample.shape[1])
    for at in range(sample.shape[1]):
        column = sample[:, at]
        finite = column[np.isfinite(column)]
        if len(finite):
            low, high = np.quantile(finite, _SPAN_QUANTILES)
            spans[at] = min(high / 2 - low / 2, _MOST / 8) * 2
    return spans


def _middle(values: Numbers, weights: Numbers) -> float:
    order = np.argsort(values, kind="stable")
    summed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(summed, summed[-1] / 2)])
