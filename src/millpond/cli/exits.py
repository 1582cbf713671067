"""Exit codes: what a script can tell from how a command ended. Errors are mapped by their code, not their class.

A code that is released keeps its number. `docs/cli.md` carries the same table, and a test holds the two together.
"""

from __future__ import annotations

from enum import IntEnum

from millpond.errors import MillpondError


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    INTERNAL = 1
    INVALID = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    BACKPRESSURE = 5
    DAMAGED = 6
    INTERRUPTED = 130


MEANING = {
    Exit.OK: "done",
    Exit.INTERNAL: "an error in Millpond itself",
    Exit.INVALID: "the command, its options or its input are wrong; the same again changes nothing",
    Exit.NOT_FOUND: "there is no such stream, data set, group or offset",
    Exit.UNAVAILABLE: "locked by another process, or something it needs is not there (Spark, a disk, a newer version)",
    Exit.BACKPRESSURE: "no room at the moment: wait and try again",
    Exit.DAMAGED: "bytes on disk are not what was written, or `verify` or `doctor` found something wrong",
    Exit.INTERRUPTED: "interrupted by Ctrl-C; what was acknowledged is safe",
}

EXIT_OF = {
    "error": Exit.INTERNAL,
    "invalid-input": Exit.INVALID,
    "invalid-name": Exit.INVALID,
    "invalid-schema": Exit.INVALID,
    "invalid-record": Exit.INVALID,
    "invalid-predicate": Exit.INVALID,
    "invalid-value": Exit.INVALID,
    "too-large": Exit.INVALID,
    "stream-exists": Exit.INVALID,
    "dataset-exists": Exit.INVALID,
    "stale-sequence": Exit.INVALID,
    "file-locked": Exit.INVALID,
    "not-a-file": Exit.INVALID,
    "group-conflict": Exit.INVALID,
    "fenced": Exit.INVALID,
    "transaction-over": Exit.INVALID,
    "unauthenticated": Exit.INVALID,
    "forbidden": Exit.INVALID,
    "method-not-allowed": Exit.INVALID,
    "unsupported-media-type": Exit.INVALID,
    "not-acceptable": Exit.INVALID,
    "not-found": Exit.NOT_FOUND,
    "stream-not-found": Exit.NOT_FOUND,
    "group-not-found": Exit.NOT_FOUND,
    "dataset-not-found": Exit.NOT_FOUND,
    "offset-gone": Exit.NOT_FOUND,
    "truncated": Exit.NOT_FOUND,
    "unavailable": Exit.UNAVAILABLE,
    "pond-locked": Exit.UNAVAILABLE,
    "pond-closed": Exit.UNAVAILABLE,
    "journal-closed": Exit.UNAVAILABLE,
    "pipeline-failed": Exit.INVALID,
    "settle-failed": Exit.UNAVAILABLE,
    "settle-conflict": Exit.UNAVAILABLE,
    "spark-unavailable": Exit.UNAVAILABLE,
    "format-too-new": Exit.UNAVAILABLE,
    "backpressure": Exit.BACKPRESSURE,
    "memory-full": Exit.BACKPRESSURE,
    "disk-full": Exit.BACKPRESSURE,
    "too-many-requests": Exit.BACKPRESSURE,
    "damaged": Exit.DAMAGED,
}


def exit_of(error: MillpondError) -> Exit:
    """The exit code of an error; one whose code is not in the table is of the kind its base class is."""
    for kind in type(error).__mro__:
        code = EXIT_OF.get(getattr(kind, "code", ""))
        if code is not None:
            return code
    return Exit.INTERNAL
