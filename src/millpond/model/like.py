r"""LIKE patterns, as Spark reads them: `%` any run of characters (line ends too), `_` one character, `\` plain.

Invariant: a pattern is matched exactly or refused; Spark refuses the same ones (`\` at the end, or before a character
that needs none).
"""

from __future__ import annotations

import re
from typing import NamedTuple

# The pattern becomes a regular expression; a longer one would take megabytes to compile.
PATTERN_CHARACTERS_MAX = 4096


class BadPattern(ValueError):
    """The pattern means nothing."""


class LikePattern(NamedTuple):
    prefix: str  # what comes before the first wildcard, unescaped
    wild: bool  # is there a wildcard at all?
    is_prefix: bool  # is it `prefix%` and nothing else?
    regex: str  # for RE2, anchored at both ends


def parse_like(pattern: str) -> LikePattern:
    """Raises `BadPattern`."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise BadPattern(f"a LIKE pattern of {len(pattern)} characters is over the bound of {PATTERN_CHARACTERS_MAX}")
    prefix: list[str] = []
    regex: list[str] = []
    wildcards: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character in "%_":
            wildcards.append(character)
            regex.append(".*" if character == "%" else ".")
        else:
            if character == "\\":
                position += 1
                character = pattern[position : position + 1]
                if character not in ("%", "_", "\\"):
                    raise BadPattern(rf"in the LIKE pattern {pattern!r} a \ stands before neither %, _ nor \ ")
            regex.append(re.escape(character) if character.isascii() else character)
            if not wildcards:
                prefix.append(character)
            else:
                wildcards.append("")
        position += 1
    return LikePattern("".join(prefix), bool(wildcards), wildcards == ["%"], rf"(?s)\A{''.join(regex)}\z")


def plain_runs(pattern: str) -> list[tuple[str, bool, bool]]:
    """The runs of plain characters between wildcards, unescaped: (run, is it at the start, is it at the end)."""
    runs: list[str] = [""]
    escaped = False
    for character in pattern:
        if not escaped and character == "\\":
            escaped = True
        elif not escaped and character in "%_":
            runs.append("")
        else:
            runs[-1] += character
            escaped = False
    last = len(runs) - 1
    return [(run, number == 0, number == last) for number, run in enumerate(runs)]
