"""Errors for a value that does not stand in its column: where it is, what it is, what was expected.

One wording for every way in (Python rows, Arrow, pandas, JSON, CSV), so that a caller who has read one has read all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidRecord
from millpond.model.foreign import own_value
from millpond.model.row_types import convert
from millpond.model.schema import SYSTEM_COLUMNS

# Long enough to recognise a value, short enough for a log line.
SHOWN_LENGTH_MAX = 80

# Says where the row of an index is: "row 3", "line 17".
Place = Callable[[int], str]


def row_place(index: int) -> str:
    """Rows are counted from 0, as in Python."""
    return f"row {index}"


def shown(value: Any) -> str:
    """`repr` of a value, cut; of anything at all, also of what is huge or cannot be shown."""
    if isinstance(value, str | bytes | bytearray):
        value = value[:SHOWN_LENGTH_MAX]
    try:
        text = repr(value)
    except Exception:
        # Whatever a stranger's __repr__ raises says nothing about the record.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN_LENGTH_MAX else text[: SHOWN_LENGTH_MAX - 3] + "..."


def bad_value(place: str, field: pa.Field, value: Any, reason: str = "") -> InvalidRecord:
    """A value of the wrong kind."""
    why = f": {_told(reason)}" if reason else ""
    return InvalidRecord(
        f"{place}, column {field.name!r}: {shown(value)} is not {_article(field)}{why}", hint=_ALL_OR_NOTHING
    )


def null_value(place: str, column: str) -> InvalidRecord:
    """A null where there may be none."""
    return InvalidRecord(f"{place}, column {column!r}: None, but the column may not be null", hint=_ALL_OR_NOTHING)


def missing_column(place: str, column: str) -> InvalidRecord:
    """A column that must have a value is not there."""
    return InvalidRecord(f"{place}, column {column!r}: missing, and the column may not be null", hint=_ALL_OR_NOTHING)


def unknown_column(place: str, column: Any, known: Iterable[str]) -> InvalidRecord:
    """A column the stream does not have."""
    if column in SYSTEM_COLUMNS:
        return InvalidRecord(
            f"{place}, column {column!r}: set by Millpond, never by the producer",
            hint=f"leave out {', '.join(SYSTEM_COLUMNS)} when appending what was read",
        )
    names = list(known)
    near = difflib.get_close_matches(column, names, n=1) if isinstance(column, str) else []
    guess = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return InvalidRecord(
        f"{place}, column {shown(column)}: the stream has no such column", hint=f"{guess}columns: {listed}"
    )


# The names a row may use, each with the column it stands for and the type its value must have.
Names = Mapping[str, tuple[pa.Field, Any]]


def in_row(row: Any, place: str, names: Names, error: Exception) -> InvalidRecord:
    """Why a row that failed as a whole with `error` does not fit: found column by column."""
    if not isinstance(row, Mapping):
        return InvalidRecord(f"{place} is not a dict: {shown(row)}", hint="a row is a dict from column to value")
    try:
        given, own = dict(row), own_value(dict(row))
    except Exception:
        return _unreadable(place, error)
    known = {field.name: field for field, _ in names.values()}
    for name in own:
        if not isinstance(name, str) or name not in names:
            return unknown_column(place, name, known)
    for field in known.values():
        named = [name for name, (other, _) in names.items() if other is field and name in own]
        if not named and not field.nullable:
            return missing_column(place, field.name)
        if len(named) > 1:
            return InvalidRecord(f"{place}: {' and '.join(map(repr, named))} are one column", hint="give one of them")
        for name in named:
            if own[name] is None and not field.nullable:
                return null_value(place, name)
            try:
                convert(own[name], names[name][1])
            except Exception as reason:
                return bad_value(place, field.with_name(name), given.get(name, own[name]), str(reason))
    return _unreadable(place, error)


def _unreadable(place: str, error: Exception) -> InvalidRecord:
    return InvalidRecord(f"{place} cannot be read: {error}", hint="a row is a dict from column to value")


_ALL_OR_NOTHING = "nothing of this append was kept; correct the value, or leave the row out, and append again"


def _article(field: pa.Field) -> str:
    kind = str(field.type)
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _told(reason: str) -> str:
    """msgspec's message with one path: "Expected `int` - at `$.x` - at `$[1]`" -> "expected int at [1].x"."""
    head, *paths = re.split(r" - at (?=`|key)", reason)
    text = re.sub(r"`", "", head)
    path = "".join(part.replace("`", "").replace("$", "") for part in reversed(paths))
    text = text[:1].lower() + text[1:]
    return f"{text} at {path.lstrip('.')}" if path.lstrip(".") else text
