"""Every error Millpond raises: one base, a stable code, and a hint that says what to do next.

Errors are told apart by who can act on them: the caller (`InvalidInput` and its kin), the operator (`Unavailable`,
`Damaged`), or time itself (`Backpressure`: try again). A code never changes once released: doors map codes.
"""

from __future__ import annotations

from typing import ClassVar


class MillpondError(Exception):
    """The base of all errors. `str(error)` is the message followed by the hint."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


# What the caller can put right.


class InvalidInput(MillpondError):
    """The request itself is wrong; sending it again changes nothing."""

    code = "invalid-input"


class InvalidName(InvalidInput):
    """A stream's name does not follow the grammar."""

    code = "invalid-name"


class InvalidSchema(InvalidInput):
    """A schema holds a type or a name that streams do not support, or a change to it is not allowed."""

    code = "invalid-schema"


class InvalidRecord(InvalidInput):
    """A row does not fit its stream's schema. Nothing of its batch was kept."""

    code = "invalid-record"


class InvalidPredicate(InvalidInput):
    """A `where` that cannot be understood, or that names what is not there."""

    code = "invalid-predicate"


class InvalidValue(InvalidInput):
    """A duration, a size, an option or a setting outside what it may be."""

    code = "invalid-value"


class TooLarge(InvalidInput):
    """Over a bound; the message says which, the hint how to raise it."""

    code = "too-large"


class StreamNotFound(InvalidInput):
    """No stream of that name."""

    code = "stream-not-found"


class StreamExists(InvalidInput):
    """A stream of that name is there already."""

    code = "stream-exists"


class DatasetNotFound(InvalidInput):
    """No data set of that name or over that path."""

    code = "dataset-not-found"


class DatasetExists(InvalidInput):
    """A data set of that name is there already."""

    code = "dataset-exists"


class NotAFile(InvalidInput):
    """A stream of records where a file was meant."""

    code = "not-a-file"


class PipelineFailed(InvalidInput):
    """A pipeline cannot be put together, or its function fails on records."""

    code = "pipeline-failed"


class FileLocked(InvalidInput):
    """Another writer holds the file alone. Nothing was appended."""

    code = "file-locked"


class StaleSequence(InvalidInput):
    """A producer sent a sequence number older than the window in which retries are recognised."""

    code = "stale-sequence"


class OffsetGone(InvalidInput):
    """The offsets asked for are no longer held, or belong to an earlier generation."""

    code = "offset-gone"


class Truncated(OffsetGone):
    """The offsets belong to a generation that a truncation has ended: there are other records under them now."""

    code = "truncated"


class GroupNotFound(InvalidInput):
    """No consumer group of that name."""

    code = "group-not-found"


class GroupConflict(InvalidInput):
    """A consumer group is there already and works in another way."""

    code = "group-conflict"


class Fenced(InvalidInput):
    """A consumer that is no member of its group any more, or a writer that lost its lock on a file: others may have
    what it held. Nothing of this was kept."""

    code = "fenced"


class TransactionOver(InvalidInput):
    """A commit or an abort whose number had another outcome before. Nothing was committed."""

    code = "transaction-over"


class Unauthenticated(InvalidInput):
    """No token, or one that is not known; for a server that asks for tokens."""

    code = "unauthenticated"


class Forbidden(InvalidInput):
    """The caller is known, but has no right to this."""

    code = "forbidden"


class NoSuchRoute(InvalidInput):
    """A path, an action or a thing that the door does not know."""

    code = "not-found"


class MethodNotAllowed(InvalidInput):
    """The path is there, but not for this method."""

    code = "method-not-allowed"


class UnsupportedMediaType(InvalidInput):
    """Records in a form that the door does not read."""

    code = "unsupported-media-type"


class NotAcceptable(InvalidInput):
    """Records asked for in a form that the door does not write."""

    code = "not-acceptable"


# What passes by itself: the caller waits and tries again.


class Backpressure(MillpondError):
    """There is no room at the moment. Nothing was kept of the append; reads and settling go on. After
    `retry_after_seconds` another attempt may have better luck."""

    code = "backpressure"

    def __init__(self, message: str, *, hint: str = "", retry_after_seconds: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class MemoryFull(Backpressure):
    """The memory quota is used up faster than segments can be spilled or settled."""

    code = "memory-full"


class DiskFull(Backpressure):
    """The disk under the pond has no room left."""

    code = "disk-full"


class TooManyRequests(Backpressure):
    """A caller is over its rate, or the node has as many calls under way as it takes."""

    code = "too-many-requests"


# What an operator has to look at.


class Unavailable(MillpondError):
    """The pond cannot serve this now."""

    code = "unavailable"


class PondLocked(Unavailable):
    """Another process has this pond open."""

    code = "pond-locked"


class PondClosed(Unavailable):
    """The pond was closed."""

    code = "pond-closed"


class JournalClosed(Unavailable):
    """The journal refuses writes after a failed write or sync; what was acknowledged is safe and readable."""

    code = "journal-closed"


class SettleFailed(Unavailable):
    """A settle did not happen; the records stay live and nothing is lost."""

    code = "settle-failed"


class SettleConflict(SettleFailed):
    """Another settler moved the boundary first; its commit stands, ours left nothing visible."""

    code = "settle-conflict"


class SparkUnavailable(Unavailable):
    """Spark, Java or a Spark internal that Millpond leans on is missing or of another version."""

    code = "spark-unavailable"


class Damaged(MillpondError):
    """Bytes on disk are not what was written. Never served, never repaired by guessing."""

    code = "damaged"


class FormatTooNew(MillpondError):
    """Written by a later version of Millpond than this one."""

    code = "format-too-new"
