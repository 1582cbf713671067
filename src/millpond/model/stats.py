"""Column statistics: what is known of the values in one segment or object, and the same for many side by side.

`collect_stats` looks at data; `Stats` holds the answers for N objects in columns, the form in which pruning compares a
literal with all of them at once.

Invariant: every value x of a column satisfies min <= x <= max in Spark's order, or the bound in question is None.
Hence a column with NaN has no bounds (most comparisons would have to treat it apart), and long text has bounds cut to
`TEXT_BYTES_MAX`, the upper one rounded up. Nulls are counted beside. Left out: columns without an order (lists,
structs, maps).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.cut import comparable
from millpond.model.text_bounds import TextBounds

# Enough to tell names, paths and keys apart; an index row of a hundred such columns stays below 16 KB.
TEXT_BYTES_MAX = 64

# Bounds ready to compare: an array of numpy's where the type has a machine form, `TextBounds` of text and bytes, an
# array of Arrow's of decimals.
Bounds: TypeAlias = Any


class ColumnRange(NamedTuple):
    """The extremes of one column of one object, as Python values; None means unknown."""

    min: Any
    max: Any
    nulls: int


def collect_stats(data: pa.RecordBatch | pa.Table) -> dict[str, ColumnRange]:
    """The ranges of all ordered columns. Of an all-null column: None, None, as many nulls as rows."""
    return {
        field.name: _range(data.column(position))
        for position, field in enumerate(data.schema)
        if comparable(field.type)
    }


def _range(column: pa.Array | pa.ChunkedArray) -> ColumnRange:
    low, high = _float_extremes(column) if pa.types.is_floating(column.type) else _extremes(column)
    return ColumnRange(lower_bound(low), upper_bound(high), column.null_count)


def _extremes(column: pa.Array | pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(column)
    return as_python(found["min"]), as_python(found["max"])


def _float_extremes(column: pa.Array | pa.ChunkedArray) -> tuple[float | None, float | None]:
    """numpy is ten times as quick here as Arrow's kernel, and tells of NaN in the same pass."""
    values = np.asarray(column.drop_null() if column.null_count else column)
    if not len(values) or np.isnan(low := values.min()):
        return None, None
    return float(low), float(values.max())


def as_python(value: pa.Scalar) -> Any:
    """The value, or None where Python has none for it."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # Arrow's dates and timestamps reach beyond the years 1 to 9999
        return None


def lower_bound(value: Any) -> Any:
    """`value`, or something short that sorts at or before it."""
    if isinstance(value, str) and len(value) > TEXT_BYTES_MAX // 4:
        return value.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
    if isinstance(value, bytes):
        return value[:TEXT_BYTES_MAX]
    return value


def upper_bound(value: Any) -> Any:
    """`value`, or something short that sorts at or after it; None if there is nothing."""
    short = lower_bound(value)
    if not isinstance(value, str | bytes) or len(short) == len(value):
        return value
    return _next_text(short) if isinstance(short, str) else after_prefix(short)


def after_prefix(prefix: bytes) -> bytes | None:
    """The least bytes that sort after everything starting with `prefix`; None if nothing does."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _next_text(prefix: str) -> str | None:
    """Like `after_prefix`, but text. UTF-8 sorts by code point."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are not characters


@dataclass(frozen=True, eq=False)
class ColumnStats:
    """One column of N objects. A null in any of the arrays means: not known of that object."""

    mins: pa.Array | pa.ChunkedArray
    maxs: pa.Array | pa.ChunkedArray
    nulls: pa.Array | pa.ChunkedArray

    def __post_init__(self) -> None:
        if not len(self.mins) == len(self.maxs) == len(self.nulls) or self.mins.type != self.maxs.type:
            raise ValueError("mins, maxs and nulls must be of one length, mins and maxs of one type")

    def __len__(self) -> int:
        return len(self.mins)

    @property
    def type(self) -> pa.DataType:
        return self.mins.type

    @cached_property
    def lows(self) -> Bounds:
        return _bounds(self.mins, lowest=True)

    @cached_property
    def highs(self) -> Bounds:
        return _bounds(self.maxs, lowest=False)

    def some(self, places: npt.NDArray[np.int64]) -> ColumnStats:
        """Of some objects."""
        return SomeStats(self, places)

    @cached_property
    def null_counts(self) -> npt.NDArray[np.int64]:
        """-1 where unknown, which is no object's number of rows."""
        counts: npt.NDArray[np.int64] = _whole(self.nulls).cast(pa.int64()).fill_null(-1).to_numpy()
        return counts


class ReadyStats(ColumnStats):
    """Given in the form in which it is compared: bounds in which what is unknown rules out nothing."""

    def __init__(self, lows: Bounds, highs: Bounds, null_counts: npt.NDArray[np.int64]) -> None:
        vars(self).update(mins=lows, maxs=highs, nulls=null_counts, lows=lows, highs=highs, null_counts=null_counts)

    @property
    def type(self) -> pa.DataType:
        return pa.from_numpy_dtype(self.mins.dtype) if isinstance(self.mins, np.ndarray) else self.mins.type


class SomeStats(ColumnStats):
    """Some of the objects of another. What is never asked for is not taken from there."""

    _among: ColumnStats
    _places: npt.NDArray[np.int64]

    def __init__(self, among: ColumnStats, places: npt.NDArray[np.int64]) -> None:
        vars(self).update(_among=among, _places=places)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def type(self) -> pa.DataType:
        return self._among.type

    @cached_property
    def lows(self) -> Bounds:
        return self._among.lows.take(self._places)

    @cached_property
    def highs(self) -> Bounds:
        return self._among.highs.take(self._places)

    @cached_property
    def null_counts(self) -> npt.NDArray[np.int64]:
        return self._among.null_counts.take(self._places)


@dataclass(frozen=True, eq=False)
class Stats:
    """What is known of N objects: how many rows each has, and the statistics of some of their columns.

    Immutable, and keeps what it derives: hold on to one as long as the objects are the same.
    """

    rows: pa.Array | pa.ChunkedArray
    columns: Mapping[str, ColumnStats]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column) != len(self.rows):
                raise ValueError(f"column {name!r} knows {len(column)} objects, there are {len(self.rows)}")

    @classmethod
    def gather(cls, schema: pa.Schema, ranges: Sequence[Mapping[str, ColumnRange]], rows: Sequence[int]) -> Stats:
        """From what `collect_stats` said of each object. A column it did not know is unknown."""
        columns = {}
        for field in schema:
            if comparable(field.type):
                known = [each.get(field.name) for each in ranges]
                columns[field.name] = ColumnStats(
                    pa.array([None if k is None else k.min for k in known], field.type),
                    pa.array([None if k is None else k.max for k in known], field.type),
                    pa.array([None if k is None else k.nulls for k in known], pa.int64()),
                )
        return cls(pa.array(rows, pa.int64()), columns)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, column.type) for name, column in self.columns.items()])

    @cached_property
    def row_counts(self) -> npt.NDArray[np.int64]:
        """-2 where unknown, which is no column's number of nulls."""
        counts: npt.NDArray[np.int64] = _whole(self.rows).cast(pa.int64()).fill_null(-2).to_numpy()
        return counts

    def all_null(self, column: str) -> npt.NDArray[np.bool_]:
        """The objects in which no row has a value in that column."""
        if column not in self._all_null:
            self._all_null[column] = self.columns[column].null_counts == self.row_counts
        return self._all_null[column]

    def has_all_null(self, column: str) -> bool:
        """Whether there are such objects."""
        if column not in self._has_all_null:
            self._has_all_null[column] = bool(self.all_null(column).any())
        return self._has_all_null[column]

    def some(self, places: npt.NDArray[np.int64], names: Iterable[str]) -> Stats:
        """What is known of some of the objects, of these columns only."""
        return _Some(self, places, names)

    @classmethod
    def ready(cls, row_counts: npt.NDArray[np.int64], columns: Mapping[str, ColumnStats]) -> Stats:
        """From what is in the form in which it is compared."""
        made = cls(row_counts, columns)
        vars(made)["row_counts"] = row_counts
        return made

    @cached_property
    def _has_all_null(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _all_null(self) -> dict[str, npt.NDArray[np.bool_]]:
        return {}


class _Some(Stats):
    """Some of the objects of another. What is never asked for is not taken from there."""

    _among: Stats
    _places: npt.NDArray[np.int64]

    def __init__(self, among: Stats, places: npt.NDArray[np.int64], names: Iterable[str]) -> None:
        columns = {name: among.columns[name].some(places) for name in names}
        absent = {name: False for name in columns if not among.has_all_null(name)}
        vars(self).update(_among=among, _places=places, columns=columns, _has_all_null=absent)

    def __len__(self) -> int:
        return len(self._places)

    @cached_property
    def row_counts(self) -> npt.NDArray[np.int64]:
        return self._among.row_counts.take(self._places)


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _bounds(array: pa.Array | pa.ChunkedArray, *, lowest: bool) -> Bounds:
    """Unknown becomes a value that rules nothing out: the type's extreme, for floats NaN, in Arrow null."""
    array, kind = _whole(array), array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return TextBounds.of(array.cast(pa.binary()), lowest=lowest)  # the order of text is that of its bytes
    if pa.types.is_binary(kind):
        return TextBounds.of(array, lowest=lowest)
    if pa.types.is_decimal(kind):
        return array
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
        return array.fill_null(0 if lowest else 1).to_numpy()
    if pa.types.is_floating(kind):
        return array.fill_null(np.nan).to_numpy()
    if pa.types.is_date32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        array = array.view(pa.int64())
    extremes = np.iinfo(array.type.to_pandas_dtype())
    return array.fill_null(int(extremes.min if lowest else extremes.max)).to_numpy()
