"""Requests of writers of many records: staged appends, and loads straight into the archive (see `wire.bulk`)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from millpond.wire.access import Right
from millpond.wire.request_base import Count, Stage, StreamRequest


class CommitStaged(StreamRequest, frozen=True, tag="commit-staged"):
    """-> `Ack`. Append what was put under these stages (see `Append`), all at once."""

    right: ClassVar[Right | None] = "write"

    stages: Annotated[tuple[Stage, ...], msgspec.Meta(max_length=100_000)]
    producer: str = ""
    sequence: Count | None = None


class ForgetStaged(StreamRequest, frozen=True, tag="forget-staged"):
    """-> nothing. Let go of stages whose names begin with `prefix`, which is long enough to be nobody else's."""

    right: ClassVar[Right | None] = "write"

    prefix: Annotated[str, msgspec.Meta(min_length=16, max_length=200)]


class BeginLoad(StreamRequest, frozen=True, tag="begin-load"):
    """-> `LoadTicket | None`. Begin to load straight into the archive; see `wire.bulk`."""

    right: ClassVar[Right | None] = "write"

    owner: Stage
    mark: Annotated[str, msgspec.Meta(max_length=200)] = ""
    number: Count = 0


class RenewLoad(StreamRequest, frozen=True, tag="renew-load"):
    """-> nothing. A load is still wanted."""

    right: ClassVar[Right | None] = "write"

    load: Stage


class CommitLoad(StreamRequest, frozen=True, tag="commit-load"):
    """-> `LoadReport`, or nothing while more parts are to come. `report`: what the load's tasks reported, an Arrow
    stream in base64, in as many parts as it takes; `version`: that of the load's ticket."""

    right: ClassVar[Right | None] = "write"

    load: Stage
    version: Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
    report: Annotated[str, msgspec.Meta(max_length=2_000_000)]
    part: Count = 0
    parts: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1


class AbortLoad(StreamRequest, frozen=True, tag="abort-load"):
    """-> nothing. Nothing more will come of a load."""

    right: ClassVar[Right | None] = "write"

    load: Stage


BulkCall = CommitStaged | ForgetStaged | BeginLoad | RenewLoad | CommitLoad | AbortLoad
