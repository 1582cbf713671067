"""Errors over HTTP: one status per code, and one shape on every route (RFC 9457).

The code is what programs look at and never changes; `detail` is the cause, `fix` is what to do. What is not one of our
errors is told without its text: an internal message may hold a path or a value that is nobody's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from millpond import errors
from millpond.errors import Backpressure, MillpondError
from millpond.wire.failures import failure_of

MEDIA_TYPE = "application/problem+json"

STATUS_OF = {
    "error": 500,
    "invalid-input": 400,
    "invalid-name": 400,
    "invalid-schema": 400,
    "invalid-predicate": 400,
    "invalid-value": 400,
    "invalid-record": 422,
    "too-large": 413,
    "unauthenticated": 401,
    "forbidden": 403,
    "not-found": 404,
    "stream-not-found": 404,
    "group-not-found": 404,
    "dataset-not-found": 404,
    "method-not-allowed": 405,
    "not-acceptable": 406,
    "unsupported-media-type": 415,
    "stream-exists": 409,
    "dataset-exists": 409,
    "stale-sequence": 409,
    "not-a-file": 400,
    "file-locked": 409,
    "pipeline-failed": 400,
    "group-conflict": 409,
    "fenced": 409,
    "transaction-over": 409,
    "offset-gone": 410,
    "truncated": 410,
    "too-many-requests": 429,
    "backpressure": 503,
    "memory-full": 503,
    "disk-full": 507,
    "unavailable": 503,
    "pond-closed": 503,
    "pond-locked": 503,
    "journal-closed": 503,
    "settle-failed": 503,
    "settle-conflict": 503,
    "spark-unavailable": 503,
    "damaged": 500,
    "format-too-new": 500,
}


class Problem(msgspec.Struct, frozen=True, omit_defaults=False):
    """What every failed request is answered with."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    fix: str


def _titles(kind: type[MillpondError]) -> Iterator[tuple[str, str]]:
    yield kind.code, (kind.__doc__ or kind.code).split(".")[0].split(";")[0]
    for sub in kind.__subclasses__():
        yield from _titles(sub)


_TITLES = dict(_titles(errors.MillpondError))


def status_of(error: BaseException) -> int:
    """The status of an error; one whose code is not in the table has that of its base class."""
    for kind in type(error).__mro__:
        status = STATUS_OF.get(getattr(kind, "code", ""))
        if status is not None:
            return status
    return 500


def problem_of(error: BaseException) -> Problem:
    """What may be told of an error."""
    failure, status = failure_of(error), status_of(error)
    if not isinstance(error, MillpondError):
        status = 500
    return Problem(
        type=f"urn:millpond:error:{failure.code}",
        title=_TITLES.get(failure.code, failure.code),
        status=status,
        detail=failure.message,
        code=failure.code,
        fix=failure.hint,
    )


def answer_of(error: BaseException) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body."""
    problem = problem_of(error)
    headers = [(b"content-type", MEDIA_TYPE.encode())]
    if isinstance(error, Backpressure):
        seconds = getattr(error, "retry_after_seconds", 1.0)
        headers.append((b"retry-after", str(max(1, math.ceil(seconds))).encode()))
    elif problem.status == 503:
        headers.append((b"retry-after", b"5"))
    elif problem.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="millpond"'))
    return problem.status, headers, msgspec.json.encode(problem)
