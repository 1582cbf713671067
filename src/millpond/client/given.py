"""What callers give, as requests have it: plain numbers and texts, or `InvalidValue` where an embedded pond refuses.

Numbers may be of any kind that is a whole one, such as numpy's: JSON has but one kind.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from millpond.errors import InvalidValue
from millpond.model import predicate as predicates
from millpond.model.offsets import Position
from millpond.query import Start, Where
from millpond.wire.requests import Place

# What the messages hold. Nothing has so many rows, and no offset is beyond.
_NUMBER_MAX = 2**63 - 1
_SEQUENCE_MAX = 2**62
_COLUMN_LENGTH_MAX = 255
_PLACES = 'e.g. "earliest", "latest", a time, or {streamlet: offset}'


def terms(where: Where) -> dict[str, str | None]:
    """`where` or `predicate` of a request."""
    if where is None or isinstance(where, str):
        return {"where": where}
    return {"predicate": predicates.encode(where).decode()}


def named(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """`columns` of a request."""
    if isinstance(columns, str):
        raise InvalidValue(f"columns is the string {columns!r}", hint=f"give a list: columns=[{columns!r}]")
    if columns is None:
        return None
    for name in columns:
        if not isinstance(name, str) or not 1 <= len(name) <= _COLUMN_LENGTH_MAX:
            raise InvalidValue(f"no column {str(name)[:40]!r}", hint="stream.schema names the columns")
    return tuple(columns)


def rows(number: int, what: str) -> int:
    """A number of rows, checked by the caller for what is too few."""
    try:
        return min(operator.index(number), _NUMBER_MAX)
    except TypeError:
        raise InvalidValue(f"{what} of {number!r}", hint="a whole number of rows") from None


def limited(limit: int | None) -> int | None:
    """`limit` of a request."""
    if limit is None:
        return None
    number = rows(limit, "a limit")
    if number < 0:
        raise InvalidValue(f"a limit of {limit}", hint="0 or more rows; leave it out for all")
    return number


def numbered(producer: str, sequence: int | None) -> int | None:
    """`sequence` of an append by `producer`."""
    if (sequence is None) != (not producer):
        raise InvalidValue(
            f"producer {producer!r} with sequence {sequence!r}", hint="give both, for an idempotent append, or none"
        )
    if sequence is None:
        return None
    number = _whole(sequence)
    if not isinstance(producer, str) or number is None or not 0 <= number <= _SEQUENCE_MAX:
        raise InvalidValue(
            f"producer {str(producer)[:40]!r} with sequence {sequence!r}",
            hint=f"a producer is text, a sequence an int, 0 to {_SEQUENCE_MAX}",
        )
    return number


def place(start: Start) -> Place:
    """`start` of a request."""
    match start:
        case datetime():
            return start.isoformat()
        case str():
            return start
        case Position():
            return start.text
        case int() if not isinstance(start, bool) and abs(start) <= _NUMBER_MAX:
            return start
        case Mapping():
            return {_streamlet(streamlet): _offset(streamlet, offset) for streamlet, offset in start.items()}
    raise InvalidValue(f"no place to start: {str(start)[:100]!r}", hint=_PLACES)


def _streamlet(given: Any) -> int:
    number = _whole(given)
    if number is None:
        raise InvalidValue(f"no streamlet {given!r}", hint="streamlets are numbers from 0 on")
    return number


def _offset(streamlet: Any, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= _NUMBER_MAX:
        raise InvalidValue(f"streamlet {streamlet} has no offset {given!r}", hint="an offset is an int from 0 on")
    return given


def _whole(given: Any) -> int | None:
    try:
        number = operator.index(given)
    except TypeError:
        return None
    return number if abs(number) <= _NUMBER_MAX else None
