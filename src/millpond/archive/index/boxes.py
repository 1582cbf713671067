"""Boxes: where in the plane of two (or more) columns the rows of an object lie, as a few boxes instead of one.

An object with the meters of two towns has one range of latitudes and one of longitudes, which cover everything between
the towns; two boxes do not. Boxes never wrap: an object on both sides of the antimeridian has boxes on either side, and
a query across it asks for two. A box is bounds like those of an object, so a term is decided by the same rules as
ranges are, for all boxes at once; an object is kept if one of its boxes is.

An entry says: every row in which no column is null lies in one of these boxes. It is not made if there is NaN, or a row
in which some of the columns are null and others not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.index.gather import items_of
from millpond.archive.index.kind import IndexKind, Mask, unfit
from millpond.archive.index.view import Entries
from millpond.errors import InvalidValue
from millpond.model.predicate import Predicate, may_be_true_of_null
from millpond.model.prune import keep_by_ranges, mask_of
from millpond.model.stats import ReadyStats, Stats

Points = npt.NDArray[np.float64]

BOXES_MAX = 256
# Where to cut is decided by so many rows; the bounds are those of all.
_SAMPLE_ROWS = 4_096
# A side shorter than this part of the whole counts as this long: a line has no area, and yet can be cut.
_THIN = 1e-3


class Boxes(IndexKind):
    """Of two to four columns of numbers, such as latitude and longitude."""

    name = "boxes"
    stage = 1

    def __init__(self, *columns: str, boxes: int = 8) -> None:
        super().__init__(*columns, boxes=boxes)
        if not 2 <= len(columns) <= 4:
            raise InvalidValue(f"{self.spec.key} is over {len(columns)} columns", hint='two to four: "boxes:lat,lon"')
        if isinstance(boxes, bool) or not isinstance(boxes, int) or not 1 <= boxes <= BOXES_MAX:
            raise InvalidValue(f"{self.spec.key}: {boxes!r} boxes", hint=f"1 to {BOXES_MAX}")
        self._boxes = boxes

    @property
    def entry_key(self) -> str:
        return self.spec.key

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        for column in self.columns:
            found = schema.field(column).type
            exact = pa.types.is_integer(found) and found.bit_width <= 32
            if not (pa.types.is_float32(found) or pa.types.is_float64(found) or exact):
                raise unfit(self, column, found, "a float, a double, or an integer of up to 32 bits")
        return [pa.field("bounds", pa.list_(pa.float64()))]

    def describe(self, rows: pa.Table) -> Mapping[str, Any]:
        columns = [rows.column(name) for name in self.columns]
        valid = [np.asarray(column.is_valid()) for column in columns]
        if any(bool((one != valid[0]).any()) for one in valid[1:]):
            return {}
        points = np.stack([np.asarray(column.drop_null().cast(pa.float64())) for column in columns])
        if np.isnan(points).any():
            return {}
        found = [bounds for part in _parts(points, self._boxes) for bounds in _bounds(part)]
        return {"bounds": pa.array(found, pa.float64())}

    def keep(self, term: Predicate, entries: Entries) -> Mask | None:
        if may_be_true_of_null(term):
            return None  # of rows without a place nothing is known
        boxes = entries.cached("boxes", lambda all: _Boxes.of(all.column("bounds"), 2 * len(self.columns)))
        owners, places = items_of(boxes.starts, entries.selected)
        found = keep_by_ranges(term, _as_stats(boxes.bounds[places], self.columns))
        return mask_of(owners[found], len(entries))


@dataclass(frozen=True, eq=False)
class _Boxes:
    """The boxes of all objects: object i has those from `starts[i]` to `starts[i + 1]`."""

    starts: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.float64]

    @classmethod
    def of(cls, lists: pa.ChunkedArray, width: int) -> _Boxes:
        lengths = np.asarray(lists.combine_chunks().value_lengths().fill_null(0)) // width
        starts = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        flat = np.asarray(lists.combine_chunks().flatten())
        return cls(starts, flat.reshape(-1, width))


def _as_stats(bounds: npt.NDArray[np.float64], columns: tuple[str, ...]) -> Stats:
    """Boxes as if each was an object."""
    unknown = np.full(len(bounds), -1, dtype=np.int64)  # how many nulls and rows a box has
    sides = bounds.T
    known = {name: ReadyStats(sides[2 * at], sides[2 * at + 1], unknown) for at, name in enumerate(columns)}
    return Stats.ready(unknown - 1, known)


def _bounds(part: Points) -> list[float]:
    return [bound for row in part for bound in (float(row.min()), float(row.max()))]


def _parts(points: Points, count: int) -> list[Points]:
    """The points in up to so many groups that lie apart: the cut that frees the most room first."""
    if points.shape[1] == 0:
        return []
    with np.errstate(invalid="ignore", over="ignore"):
        sides = points.max(axis=1) - points.min(axis=1)
    scale = np.where(np.isfinite(sides) & (sides > 0), sides, 1.0)
    parts = [(points, _best_cut(points, scale))]
    while len(parts) < count:
        at = max(range(len(parts)), key=lambda number: parts[number][1][0])
        part, (gain, row, where) = parts[at]
        if gain <= 0:
            break
        low = part[row] <= where
        halves = part[:, low], part[:, ~low]
        parts[at : at + 1] = [(half, _best_cut(half, scale)) for half in halves if half.shape[1]]
    return [part for part, _ in parts]


def _best_cut(points: Points, scale: Points) -> tuple[float, int, float]:
    """The widest gap, weighted by the room it frees: (room, row, the value below the gap)."""
    step = max(1, points.shape[1] // _SAMPLE_ROWS)
    sample = np.sort(points[:, ::step], axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.diff(sample, axis=1) / scale[:, None]
        sides = np.maximum((sample[:, -1] - sample[:, 0]) / scale, _THIN)
        best = (0.0, 0, 0.0)
        for row in range(len(sample)):
            if gaps.shape[1]:
                at = int(np.nanargmax(np.where(np.isfinite(gaps[row]), gaps[row], 0.0)))
                room = float(gaps[row, at] * np.prod(np.delete(sides, row)))
                if np.isfinite(room) and room > best[0]:
                    best = (room, row, float(sample[row, at]))
    return best
