"""Predicates: a small tree that says which rows are wanted, and the rules for turning it about safely.

The tree comes from SQL (`query.sql`), from Spark's planner, or from JSON on the wire; it is evaluated on Arrow data
(`model.evaluate`) and used to rule out objects (`model.prune`). Semantics are Spark's: three-valued logic, NaN equal to
itself and greater than every number, strings in the order of their UTF-8 bytes.

Invariant: nothing here makes a predicate true for fewer rows than it was. `Unknown` stands for what a translator did
not understand; under any rewriting it stays Unknown, also below a NOT, because "not understood" negated is still not
understood.

In JSON a node is an object whose `is` names its class: `{"is": "compare", "op": "<", "column": "lat", "value": 48}`.
Literals are described in `model.literal`. Left out: expressions over columns (arithmetic, functions; the distance to a
point is a leaf of its own), and anything that could not be decided from one row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from millpond.errors import InvalidPredicate
from millpond.model import literal
from millpond.model.literal import Value
from millpond.model.sphere import Around, around

# A column of the stream, or the path of a field inside a struct column.
Column: TypeAlias = str | tuple[str, ...]

OPS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

# Far above what people and planners write, far below what the interpreter's stack holds.
DEPTH_MAX = 100
NODES_MAX = 10_000
JSON_BYTES_MAX = 4 * 2**20


class _Node(msgspec.Struct, frozen=True, tag_field="is", forbid_unknown_fields=True):
    def __invert__(self) -> Predicate:
        return Not(self)  # type: ignore[arg-type]


class And(_Node, frozen=True, tag="and"):
    """True if all terms are true. Without terms: true."""

    terms: tuple[Predicate, ...]


class Or(_Node, frozen=True, tag="or"):
    """True if any term is true. Without terms: false."""

    terms: tuple[Predicate, ...]


class Not(_Node, frozen=True, tag="not"):
    term: Predicate


class Compare(_Node, frozen=True, tag="compare"):
    """A column against a literal. `<=>` is equality that never answers NULL."""

    op: str
    column: Column
    value: Any

    def __post_init__(self) -> None:
        _check_op(self.op)
        _own_column(self, "column")
        msgspec.structs.force_setattr(self, "value", _literal(self.value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Compare):
            return NotImplemented
        return (self.op, self.column) == (other.op, other.column) and literal.same(self.value, other.value)

    def __hash__(self) -> int:
        return hash((self.op, self.column))


class In(_Node, frozen=True, tag="in"):
    """Equal to any of the values. Without values: false, whatever the column holds (as in Spark)."""

    column: Column
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        _own_column(self, "column")
        msgspec.structs.force_setattr(self, "values", tuple(map(_literal, self.values)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, In):
            return NotImplemented
        return (
            self.column == other.column
            and len(self.values) == len(other.values)
            and all(map(literal.same, self.values, other.values))
        )

    def __hash__(self) -> int:
        return hash((self.column, len(self.values)))


class IsNull(_Node, frozen=True, tag="is_null"):
    column: Column

    def __post_init__(self) -> None:
        _own_column(self, "column")


class StartsWith(_Node, frozen=True, tag="starts_with"):
    column: Column
    prefix: str

    def __post_init__(self) -> None:
        _own_column(self, "column")
        _literal(self.prefix)


class Like(_Node, frozen=True, tag="like"):
    r"""SQL's LIKE: `%` any run of characters, `_` any one, `\` before either (or itself) makes it plain."""

    column: Column
    pattern: str

    def __post_init__(self) -> None:
        _own_column(self, "column")
        _literal(self.pattern)


class CompareColumns(_Node, frozen=True, tag="compare_columns"):
    op: str
    left: Column
    right: Column

    def __post_init__(self) -> None:
        _check_op(self.op)
        _own_column(self, "left")
        _own_column(self, "right")


class Near(_Node, frozen=True, tag="near"):
    """The place in two columns is within so many meters of a point. Null where the columns hold no place.

    See `model.sphere` for what a place and a distance are."""

    lat: Column
    lon: Column
    to_lat: float
    to_lon: float
    meters: float

    def __post_init__(self) -> None:
        _own_column(self, "lat")
        _own_column(self, "lon")
        for name, most in (("to_lat", 90.0), ("to_lon", 180.0), ("meters", math.inf)):
            value = float(getattr(self, name))
            if not abs(value) <= most or math.isinf(value):
                raise InvalidPredicate(
                    f"{name} of a distance cannot be {value}",
                    hint="latitudes are within -90 and 90, longitudes within -180 and 180, meters a number",
                )
            msgspec.structs.force_setattr(self, name, value)


class Const(_Node, frozen=True, tag="const"):
    """TRUE, FALSE or (None) NULL."""

    value: bool | None


class Unknown(_Node, frozen=True, tag="unknown"):
    """Something a translator did not understand: any row may satisfy it, and any row may not."""

    reason: str


Predicate: TypeAlias = (
    And | Or | Not | Compare | In | IsNull | StartsWith | Like | CompareColumns | Near | Const | Unknown
)

TRUE, FALSE, NULL = Const(True), Const(False), Const(None)


def children(predicate: Predicate) -> tuple[Predicate, ...]:
    match predicate:
        case And(terms) | Or(terms):
            return terms
        case Not(term):
            return (term,)
        case _:
            return ()


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """Every node, without recursion."""
    waiting = [predicate]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def columns_of(predicate: Predicate) -> frozenset[str]:
    """The top-level columns that must be read to decide the predicate."""
    if isinstance(predicate, Compare | In):  # most of what is asked, and often
        column = predicate.column
        return frozenset((column if isinstance(column, str) else column[0],))
    found: set[Column] = set()
    for node in walk(predicate):
        match node:
            case Compare() | In() | IsNull() | StartsWith() | Like():
                found.add(node.column)
            case CompareColumns():
                found.update((node.left, node.right))
            case Near():
                found.update((node.lat, node.lon))
    return frozenset(column if isinstance(column, str) else column[0] for column in found)


def may_be_true_of_null(predicate: Predicate) -> bool:
    """Whether a row in which all columns are null may satisfy it: only if what it asks for are nulls."""
    match predicate:
        case And(terms):
            return all(map(may_be_true_of_null, terms))
        case Or(terms):
            return any(map(may_be_true_of_null, terms))
        case Not(Compare() | In() | IsNull() | StartsWith() | Like() | Near()):
            return False
        case Const(value):
            return bool(value)
    return isinstance(predicate, IsNull | CompareColumns | Unknown | Not)


def check_bounds(predicate: Predicate) -> None:
    """Refuse a tree too deep or too large for the recursive rules below (I8)."""
    nodes = 0
    waiting = [(predicate, 1)]
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if depth > DEPTH_MAX:
            raise InvalidPredicate(
                f"the predicate is nested deeper than {DEPTH_MAX} levels",
                hint="write long chains of AND or OR side by side instead of inside each other",
            )
        if nodes > NODES_MAX:
            raise InvalidPredicate(
                f"the predicate has more than {NODES_MAX} terms", hint="use IN for many values of one column"
            )
        waiting.extend((child, depth + 1) for child in children(node))


def nnf(predicate: Predicate) -> Predicate:
    """The same predicate with NOT only directly around leaves, true, false and null for the same rows."""
    match predicate:
        case And(terms):
            return And(tuple(map(nnf, terms)))
        case Or(terms):
            return Or(tuple(map(nnf, terms)))
        case Not(term):
            return negate(term)
        case _:
            return predicate


def negate(predicate: Predicate) -> Predicate:
    """NOT predicate, in the form of `nnf`. Sound under three values: null stays null, Unknown stays Unknown."""
    match predicate:
        case And(terms):
            return Or(tuple(map(negate, terms)))
        case Or(terms):
            return And(tuple(map(negate, terms)))
        case Not(term):
            return nnf(term)
        case Compare(op, column, value) if op in _OPPOSITE:
            return Compare(_OPPOSITE[op], column, value)
        case CompareColumns(op, left, right) if op in _OPPOSITE:
            return CompareColumns(_OPPOSITE[op], left, right)
        case Const(value):
            return NULL if value is None else Const(not value)
        case Unknown():
            return predicate
        case _:
            return Not(predicate)


def truth(predicate: Predicate, *, loose: bool = False) -> Predicate:
    """When is the predicate *true*? The answer has no constants but at its root, no Unknown, and NOT only at leaves.

    Without NOT above them, null and false are the same to whoever asks only for true, so both fold to FALSE. With
    `loose` an Unknown may be true: since it, too, stands under no NOT, reading it as TRUE only ever adds rows.

    A `Near` is joined by the comparisons that it implies: what knows nothing of distances can use those.
    """
    return _fold(nnf(predicate), loose)


def _fold(node: Predicate, loose: bool) -> Predicate:
    match node:
        case Const(value):
            return TRUE if value else FALSE
        case Unknown(reason):
            if loose:
                return TRUE
            raise InvalidPredicate(
                f"part of the predicate was not understood: {reason}", hint="write it with supported comparisons only"
            )
        case Near(lat, lon, to_lat, to_lon, meters):
            implied = inside(lat, lon, around(to_lat, to_lon, meters))
            return And((*(implied.terms if isinstance(implied, And) else (implied,)), node))
        case And(terms) | Or(terms):
            neutral, absorbing = (TRUE, FALSE) if isinstance(node, And) else (FALSE, TRUE)
            kept: list[Predicate] = []
            for term in (_fold(term, loose) for term in terms):
                if term == absorbing:
                    return absorbing
                if type(term) is type(node):
                    kept.extend(_unsaid(children(term), kept))
                elif term != neutral:
                    kept.append(term)
            return kept[0] if len(kept) == 1 else type(node)(tuple(kept)) if kept else neutral
        case _:
            return node


def _unsaid(terms: tuple[Predicate, ...], kept: list[Predicate]) -> Iterator[Predicate]:
    """The terms; of what a distance implies only what does not stand there already."""
    implied = isinstance(terms[-1], Near)
    return (term for term in terms if not (implied and term in kept))


def inside(lat: Column, lon: Column, box: Around) -> Predicate:
    """The comparisons that a place inside of the box satisfies, in the form that Spark gives them."""
    latitudes = (Compare(">=", lat, box.south), Compare("<=", lat, box.north))
    if box.west is None or box.east is None:
        return And(latitudes)
    west, east = Compare(">=", lon, box.west), Compare("<=", lon, box.east)
    if box.west <= box.east:
        return And((*latitudes, west, east))
    # Two boxes, each a conjunction of its own: an index over both columns asks of one at a time.
    return Or((And((*latitudes, west)), And((*latitudes, east))))


def encode(predicate: Predicate) -> bytes:
    """The predicate as JSON, with every literal's type kept."""
    plain = msgspec.to_builtins(predicate, builtin_types=_KEPT)
    return msgspec.json.encode(_tag_literals(plain))


def decode(data: bytes | str) -> Predicate:
    """A predicate from untrusted JSON. Whatever is wrong with it, the error is InvalidPredicate."""
    if len(data) > JSON_BYTES_MAX:
        raise InvalidPredicate(
            f"a predicate of {len(data)} bytes is over the bound of {JSON_BYTES_MAX}",
            hint="shorten its IN lists, or filter by a join",
        )
    try:
        predicate = _DECODER.decode(data)
    except RecursionError:
        raise InvalidPredicate("the predicate's JSON is nested too deep", hint=f"at most {DEPTH_MAX} levels") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidPredicate(f"not the JSON of a predicate: {error}", hint="send what `encode` returned") from error
    check_bounds(predicate)
    return predicate


_DECODER: msgspec.json.Decoder[Predicate] = msgspec.json.Decoder(Predicate)
_KEPT = tuple(kind for kind in literal.Value.__args__ if kind not in (bool, int, float, str, type(None)))


def _tag_literals(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _tag_literals(item) for key, item in plain.items()}
    if isinstance(plain, list | tuple):
        return [_tag_literals(item) for item in plain]
    return literal.to_wire(plain)


def _check_op(op: str) -> None:
    if op not in OPS:
        raise InvalidPredicate(f"{op!r} is not a comparison", hint=f"there are {' '.join(OPS)}")


def _own_column(node: _Node, name: str) -> None:
    """A path of one part is the column of that name: whoever looks for text must find it."""
    column: Column = getattr(node, name)
    _check_column(column)
    if not isinstance(column, str) and len(column) == 1:
        msgspec.structs.force_setattr(node, name, column[0])


def _check_column(column: Column) -> None:
    parts = (column,) if isinstance(column, str) else column
    if not parts or not all(parts):
        raise InvalidPredicate("a column in the predicate has no name", hint="name a column of the stream")


def _literal(value: Any) -> Value:
    try:
        return literal.from_wire(value)
    except ValueError as error:
        raise InvalidPredicate(str(error), hint="see the literals that predicates may hold") from error
