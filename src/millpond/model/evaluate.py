"""Which rows satisfy a predicate: on Arrow batches in memory, or as an expression for pyarrow's scanners.

The predicate is bound to the schema (literals get their columns' types), reduced to "when is it true" (`truth`), and
each leaf becomes one or two Arrow kernels. The same code builds both forms, because Arrow's functions take arrays and
expressions alike.

Invariant: a row passes exactly if Spark would find the predicate true for it; with `loose`, at least then. Elsewhere
the answer is false or null, which filters treat alike. Three places where Arrow differs from Spark are put right here:
- Arrow compares NaN as IEEE does; Spark holds it equal to itself and greater than every number.
- `is_in` tells -0.0 from 0.0, and answers false, not null, for null.
- Parquet statistics leave NaN out, and pyarrow's scanner believes them: a row group of 5.0 and NaN counts as "x is 5",
  and a filter that NaN would satisfy skips it. Such filters get a term that the scanner cannot see through.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.bind import bind, column_type, common_type
from millpond.model.like import parse_like
from millpond.model.predicate import (
    FALSE,
    TRUE,
    And,
    Column,
    Compare,
    CompareColumns,
    In,
    IsNull,
    Like,
    Near,
    Not,
    Or,
    Predicate,
    StartsWith,
    columns_of,
    truth,
)
from millpond.model.sphere import RADIUS_METERS

_KERNELS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Filter:
    """A predicate made ready for one schema; use it for any number of batches. Immutable, safe to share by threads."""

    def __init__(self, predicate: Predicate, schema: pa.Schema, *, loose: bool = False) -> None:
        self._schema = schema
        self._truth = truth(bind(predicate, schema, loose=loose), loose=loose)

    @property
    def columns(self) -> frozenset[str]:
        """The columns a batch must have."""
        return columns_of(self._truth)

    @property
    def passes_all(self) -> bool:
        return self._truth == TRUE

    @property
    def passes_none(self) -> bool:
        return self._truth == FALSE

    @property
    def expression(self) -> pc.Expression:
        """For `pyarrow.dataset` scanners and `Table.filter`."""
        if self.passes_all or self.passes_none:
            return pc.scalar(self.passes_all)
        return _Compiler(self._schema, None).compile(self._truth)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True, or false, for every row; never null."""
        if self.passes_all or self.passes_none:
            return pa.repeat(pa.scalar(self.passes_all), batch.num_rows)
        return pc.fill_null(_Compiler(self._schema, batch).compile(self._truth), False)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that pass, in order; the batch itself if all do."""
        if self.passes_all:
            return batch
        if self.passes_none:
            return batch.slice(0, 0)
        mask = self.mask(batch)
        return batch if mask.true_count == batch.num_rows else batch.filter(mask)


def to_expression(predicate: Predicate, schema: pa.Schema, *, loose: bool = False) -> pc.Expression:
    return Filter(predicate, schema, loose=loose).expression


def mask(batch: pa.RecordBatch, predicate: Predicate, *, loose: bool = False) -> pa.BooleanArray:
    return Filter(predicate, batch.schema, loose=loose).mask(batch)


def bound_mask(batch: pa.RecordBatch, term: Predicate) -> pa.BooleanArray:
    """As `mask`, for a predicate that is bound to these columns, and reduced by `truth`."""
    answer = _Compiler(batch.schema, batch).compile(term)
    return pc.fill_null(answer, False) if answer.null_count else answer


def filter_batch(batch: pa.RecordBatch, predicate: Predicate, *, loose: bool = False) -> pa.RecordBatch:
    return Filter(predicate, batch.schema, loose=loose).apply(batch)


class _Compiler:
    """Builds the answer from a batch's arrays, or, without a batch, from references to fields."""

    def __init__(self, schema: pa.Schema, batch: pa.RecordBatch | None) -> None:
        self._schema = schema
        self._batch = batch

    def compile(self, node: Predicate) -> Any:
        match node:
            case And(terms):
                return self._join(pc.and_kleene, terms)
            case Or(terms):
                return self._join(pc.or_kleene, terms)
            case Not(In(column, values)):
                return self._in(column, values, negated=True)
            case Not(CompareColumns("<=>", left, right)):
                return self._with_nan(pc.invert(self._compare_columns("<=>", left, right)))
            case Not(term):
                return pc.invert(self.compile(term))
            case Compare(op, column, value):
                return self._compare(op, column, value)
            case In(column, values):
                return self._in(column, values, negated=False)
            case IsNull(column):
                return pc.is_null(self._column(column))
            case StartsWith(column, prefix):
                return pc.starts_with(self._column(column), pattern=prefix)
            case Like(column, pattern):
                return pc.match_substring_regex(self._column(column), pattern=parse_like(pattern).regex)
            case CompareColumns(op, left, right):
                return self._compare_columns(op, left, right)
            case Near():
                return self._near(node)
        raise AssertionError(f"{type(node).__name__} does not survive binding")

    def _join(self, kernel: Any, terms: tuple[Predicate, ...]) -> Any:
        # In halves, so that an expression of ten thousand terms is not ten thousand levels deep.
        if len(terms) == 1:
            return self.compile(terms[0])
        middle = len(terms) // 2
        return kernel(self._join(kernel, terms[:middle]), self._join(kernel, terms[middle:]))

    def _column(self, column: Column) -> Any:
        path = (column,) if isinstance(column, str) else column
        top = pc.field(path[0]) if self._batch is None else self._batch.column(path[0])
        return pc.struct_field(top, list(path[1:])) if len(path) > 1 else top

    def _compare(self, op: str, column: Column, value: Any) -> Any:
        x = self._column(column)
        if isinstance(value, float) and math.isnan(value):
            # Binding has turned `> NaN` and `<= NaN` into never and always.
            return self._with_nan(pc.is_nan(x)) if op in ("=", ">=") else pc.invert(pc.is_nan(x))
        found = _KERNELS[op](x, pa.scalar(value, column_type(self._schema, column)))
        if isinstance(value, float) and op in (">", ">=", "!="):
            return self._with_nan(pc.or_kleene(found, pc.is_nan(x)))
        return found

    def _in(self, column: Column, values: tuple[Any, ...], *, negated: bool) -> Any:
        x = self._column(column)
        kind = column_type(self._schema, column)
        wanted = [value for value in values if value == value]
        if pa.types.is_floating(kind) and 0.0 in wanted:
            wanted += [0.0, -0.0]
        found = pc.is_in(x, value_set=pa.array(wanted, kind))
        if any(value != value for value in values):
            found = pc.or_kleene(found, pc.is_nan(x))
        if negated:
            found = pc.and_kleene(pc.is_valid(x), pc.invert(found))
        return self._with_nan(found) if pa.types.is_floating(kind) else found

    def _compare_columns(self, op: str, left: Column, right: Column) -> Any:
        kinds = column_type(self._schema, left), column_type(self._schema, right)
        common = common_type(*kinds)
        a, b = (
            self._column(column) if kind == common else self._column(column).cast(common, safe=False)
            for column, kind in zip((left, right), kinds, strict=True)
        )
        if op == "<=>":
            both_null = pc.and_kleene(pc.is_null(a), pc.is_null(b))
            both_valid = pc.and_kleene(pc.is_valid(a), pc.is_valid(b))
            return pc.or_kleene(both_null, pc.and_kleene(both_valid, self._ordered("=", a, b, common)))
        return self._ordered(op, a, b, common)

    def _ordered(self, op: str, a: Any, b: Any, kind: pa.DataType) -> Any:
        found = _KERNELS[op](a, b)
        if not pa.types.is_floating(kind):
            return found
        a_nan, b_nan = pc.is_nan(a), pc.is_nan(b)
        match op:
            case "=":
                found = pc.or_kleene(found, pc.and_kleene(a_nan, b_nan))
            case "!=":
                found = pc.and_kleene(found, pc.invert(pc.and_kleene(a_nan, b_nan)))
            case "<":
                found = pc.or_kleene(found, pc.and_kleene(pc.invert(a_nan), b_nan))
            case "<=":
                found = pc.or_kleene(found, pc.and_kleene(pc.is_valid(a), b_nan))
            case ">":
                found = pc.or_kleene(found, pc.and_kleene(a_nan, pc.invert(b_nan)))
            case ">=":
                found = pc.or_kleene(found, pc.and_kleene(a_nan, pc.is_valid(b)))
        return self._with_nan(found)

    def _near(self, node: Near) -> Any:
        """The haversine formula, in the order of operations of `sphere.distance_meters` and of Spark's function."""
        lat, lon = (self._degrees(column) for column in (node.lat, node.lon))
        here, there = _radians(lat), math.radians(node.to_lat)
        across = pc.sin(pc.divide(pc.subtract(here, there), 2.0))
        along = pc.sin(pc.divide(_radians(pc.subtract(lon, node.to_lon)), 2.0))
        cosines = pc.multiply(pc.cos(here), math.cos(there))
        square = pc.add(pc.multiply(across, across), pc.multiply(cosines, pc.multiply(along, along)))
        # Of what is no place (NaN and infinities too) the answer is taken away below; until then no kernel may fail.
        some = pc.if_else(pc.less_equal(square, 1.0), square, 1.0)
        meters = pc.multiply(pc.asin(pc.sqrt(some)), 2 * RADIUS_METERS)
        place = pc.and_kleene(
            pc.and_kleene(pc.greater_equal(lat, -90.0), pc.less_equal(lat, 90.0)),
            pc.and_kleene(pc.greater_equal(lon, -180.0), pc.less_equal(lon, 180.0)),
        )
        return pc.if_else(place, pc.less_equal(meters, node.meters), pa.scalar(None, pa.bool_()))

    def _degrees(self, column: Column) -> Any:
        degrees = self._column(column)
        return degrees if column_type(self._schema, column) == pa.float64() else degrees.cast(pa.float64())

    def _with_nan(self, found: Any) -> Any:
        """Mark an answer that NaN may satisfy: `OR false`, in a form that Arrow's simplifier cannot fold away.

        It must stand outside of any NOT, or the simplifier sees through it.
        """
        if self._batch is not None:
            return found
        never = pc.is_null(pc.Expression._call("random", [], pc.RandomOptions(initializer=0)))
        return pc.or_kleene(found, never)


def _radians(degrees: Any) -> Any:
    return pc.multiply(degrees, math.pi / 180.0)
