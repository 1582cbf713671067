"""Names of streams: hierarchical, readable, and safe as part of a path, a URL and a SQL view.

The grammar is one regular expression per part and two bounds. What it keeps out (traversal, empty parts, control
characters, over-long names, the reserved `_pond/`) is refused with the rule that was broken.
"""

from __future__ import annotations

import re

from millpond.errors import InvalidName

PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
# 64 + 64 + ... stays well under the 255 bytes that file systems allow one directory name, id suffix included.
PART_LENGTH_MAX = 64
NAME_LENGTH_MAX = 200
# The same as one regular expression, for those who are told of it; the length of the whole is not in it.
PATTERN = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,63})*$"
RESERVED = "_pond"

RULE = (
    f"a name is parts joined by '/', each 1 to {PART_LENGTH_MAX} of A-Z a-z 0-9 _ . - and starting with a letter or "
    f"digit, {NAME_LENGTH_MAX} characters in all, e.g. 'grid/meters'"
)


def check_name(name: str, *, internal: bool = False) -> str:
    """`name` if it follows the grammar; `InvalidName` with the rule otherwise. `internal` allows `_pond/…`."""
    if not isinstance(name, str):
        raise InvalidName(f"stream name must be a string, got {type(name).__name__}", hint=RULE)
    shown = repr(name if len(name) <= 80 else name[:77] + "...")
    if not name:
        raise InvalidName("stream name is empty", hint=RULE)
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidName(f"stream name {shown} has {len(name)} characters, at most {NAME_LENGTH_MAX}", hint=RULE)
    parts = name.split("/")
    if parts[0] == RESERVED:
        if not internal:
            raise InvalidName(f"stream name {shown}: '{RESERVED}/' is reserved for the pond's own streams", hint=RULE)
        parts = parts[1:] or [""]
    for part in parts:
        if not part:
            raise InvalidName(f"stream name {shown} has an empty part", hint=RULE)
        if len(part) > PART_LENGTH_MAX:
            raise InvalidName(f"stream name {shown}: part {part[:20]!r}... is too long", hint=RULE)
        if not PART.match(part):
            raise InvalidName(f"stream name {shown}: part {part!r} is not allowed", hint=RULE)
    return name


def directory_of(name: str, stream_id: int) -> str:
    """The directory of a stream: readable by its name, unique by its id (`grid/meters`, 7 -> `grid.meters-7`)."""
    return f"{name.replace('/', '.')}-{stream_id}"


def view_name(name: str) -> str:
    """The name of a stream's view in Spark SQL (`grid/meters` -> `grid_meters`)."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
