"""Requests about models and relayouts of a stream (see `wire.relayout`). All of them take the right to administrate."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from millpond.wire.access import Right
from millpond.wire.request_base import Count, Stage, StreamRequest, Units


class Analyse(StreamRequest, frozen=True, tag="analyse"):
    """-> `Analysis`. Fit the layout anew to the last period's records and the queries on record, at the node."""

    right: ClassVar[Right | None] = "admin"

    period: Units = "7d"
    better_by: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    swap: bool = True


class TakeModel(StreamRequest, frozen=True, tag="take-model"):
    """-> `CurrentModel`. What an analysis made elsewhere begins with."""

    right: ClassVar[Right | None] = "admin"


class PutModel(StreamRequest, frozen=True, tag="put-model"):
    """-> nothing. The model that an analysis made elsewhere ends with, which was fitted to `layout` and better than the
    one of the id `instead_of` ("": than none)."""

    right: ClassVar[Right | None] = "admin"

    model: Annotated[str, msgspec.Meta(max_length=4_000_000)]
    layout: Annotated[str, msgspec.Meta(max_length=100_000)]
    instead_of: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Relayout(StreamRequest, frozen=True, tag="relayout"):
    """-> `RelayoutReport`. Rewrite settled objects under the newest model, at the node."""

    right: ClassVar[Right | None] = "admin"

    object_bytes_min: Units | None = None


class BeginRelayout(StreamRequest, frozen=True, tag="begin-relayout"):
    """-> `RelayoutTicket`. A relayout whose parts are rewritten elsewhere."""

    right: ClassVar[Right | None] = "admin"

    owner: Stage
    object_bytes_min: Count | None = None


class RenewRelayout(StreamRequest, frozen=True, tag="renew-relayout"):
    """-> nothing. A relayout is still wanted."""

    right: ClassVar[Right | None] = "admin"

    relayout: Stage


class CommitRelayout(StreamRequest, frozen=True, tag="commit-relayout"):
    """-> `UnitAnswer`. What part `part` of a planned unit (known by its start and kind) reported, an Arrow stream in
    base64, in as many pieces as it takes; the unit is committed with the last of its parts."""

    right: ClassVar[Right | None] = "admin"

    relayout: Stage
    start: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    loaded: bool
    part: Count
    report: Annotated[str, msgspec.Meta(max_length=2_000_000)]
    piece: Count = 0
    pieces: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1


class EndRelayout(StreamRequest, frozen=True, tag="end-relayout"):
    """-> nothing. Nothing more will come of a relayout."""

    right: ClassVar[Right | None] = "admin"

    relayout: Stage


class PlanRelayout(StreamRequest, frozen=True, tag="plan-relayout"):
    """What does not lie as the model says: batches of one column `unit`, see `relayout.encode_unit`."""

    right: ClassVar[Right | None] = "admin"

    relayout: Stage


RelayoutCall = Analyse | TakeModel | PutModel | Relayout | BeginRelayout | RenewRelayout | CommitRelayout | EndRelayout
