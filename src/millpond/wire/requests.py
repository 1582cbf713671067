"""Everything that can be asked of a node, as messages: each names the right it takes, so that one check covers all.

The doors only translate: a REST route and a Flight action or ticket become the same request, and `Desk` answers it. In
JSON a request is an object whose "do" says which it is:

    {"do": "scan", "stream": "grid/meters", "where": "temp > 20", "columns": ["vid", "temp"], "limit": 100}

Four kinds, by what comes back: a `Call` is answered by one message (see `answers`), a `Fetch` by batches, a `Read` by
batches that may go on for ever, an `Append` takes records and is answered by an `Ack`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from millpond.wire import pipelines
from millpond.wire.access import Right
from millpond.wire.bulk_requests import BulkCall
from millpond.wire.dataset_requests import DatasetCall, DatasetEntries
from millpond.wire.definition_requests import Alter, ColumnSpec, Create, Schema, SettleSpec
from millpond.wire.file_requests import FileCall
from millpond.wire.group_requests import GroupCall, PollGroup
from millpond.wire.relayout_requests import PlanRelayout, RelayoutCall
from millpond.wire.request_base import (
    Column,
    Columns,
    Count,
    Name,
    NameRequest,
    Place,
    Request,
    SpecForm,
    Specs,
    Stage,
    StreamRequest,
    Terms,
    Units,
    Where,
)

# Whoever makes requests finds what they are made of here as well.
__all__ = [
    "Alter",
    "Column",
    "ColumnSpec",
    "Columns",
    "Create",
    "Name",
    "NameRequest",
    "Place",
    "Request",
    "Schema",
    "SettleSpec",
    "SpecForm",
    "Specs",
    "StreamRequest",
    "Units",
    "Where",
]

# Calls: one message back.


class AboutNode(Request, frozen=True, tag="node"):
    """Which pond this is, which version, where its doors are, and what the caller may do. -> `Node`"""


class ListStreams(Request, frozen=True, tag="list-streams"):
    """The streams that the caller may read, write or administer. -> `list[StreamInfo]`"""


class Describe(StreamRequest, frozen=True, tag="describe"):
    """-> `StreamInfo`"""

    right: ClassVar[Right | None] = "read"


class Drop(StreamRequest, frozen=True, tag="drop"):
    """-> `DropPlan`: what is gone, or, with `preview`, what would be."""

    right: ClassVar[Right | None] = "admin"

    preview: bool = False


class Truncate(StreamRequest, frozen=True, tag="truncate"):
    """-> `TruncatePlan`: what is gone, or, with `preview`, what would be."""

    right: ClassVar[Right | None] = "admin"

    preview: bool = False


class Settle(StreamRequest, frozen=True, tag="settle"):
    """-> `SettleReport | None`; with `preview` -> `SettlePlan`."""

    right: ClassVar[Right | None] = "admin"

    preview: bool = False


class StreamStatus(StreamRequest, frozen=True, tag="stream-status"):
    """-> `status.StreamStatus`"""

    right: ClassVar[Right | None] = "read"


class PondStatus(Request, frozen=True, tag="pond-status"):
    """-> `status.PondStatus`"""

    right: ClassVar[Right | None] = "read"


class Segments(StreamRequest, frozen=True, tag="segments"):
    """-> `list[SegmentListing]`"""

    right: ClassVar[Right | None] = "read"


class CountRows(StreamRequest, frozen=True, tag="count"):
    """-> `Counted`"""

    right: ClassVar[Right | None] = "read"

    where: Where | None = None
    predicate: Terms | None = None


class Explain(StreamRequest, frozen=True, tag="explain"):
    """-> `QueryReport`"""

    right: ClassVar[Right | None] = "read"

    where: Where | None = None
    predicate: Terms | None = None


class DrawMap(StreamRequest, frozen=True, tag="map"):
    """-> `ObjectMap`"""

    right: ClassVar[Right | None] = "read"

    where: Where | None = None
    predicate: Terms | None = None
    axes: Columns | None = None


class Vacuum(StreamRequest, frozen=True, tag="vacuum"):
    """-> `VacuumReport`: which objects are gone or, with `preview`, would be."""

    right: ClassVar[Right | None] = "admin"

    older_than: Units = "7d"
    preview: bool = False


class RebuildIndexes(StreamRequest, frozen=True, tag="rebuild-indexes"):
    """-> `RebuildReport`: entries were made for objects of which some index knew nothing, or for all."""

    right: ClassVar[Right | None] = "admin"

    everything: bool = False


class Verify(Request, frozen=True, tag="verify"):
    """-> `Verified`"""

    right: ClassVar[Right | None] = "admin"


class TakeSnapshot(StreamRequest, frozen=True, tag="snapshot"):
    """-> `SnapshotMark`: what Spark plans a query from."""

    right: ClassVar[Right | None] = "read"


class NoteQuery(StreamRequest, frozen=True, tag="note-query", kw_only=True):
    """-> nothing. What a query that was planned elsewhere asked of the stream, and what it has to read."""

    right: ClassVar[Right | None] = "read"

    predicate: Terms
    objects_read: Count
    objects_total: Count
    bytes_read: Count
    bytes_total: Count


class ReportPipeline(NameRequest, frozen=True, tag="report-pipeline", kw_only=True):
    """How a pipeline does that writes to the stream. -> `PipelineReport`"""

    right: ClassVar[Right | None] = "write"

    name: pipelines.Name
    sources: Annotated[tuple[pipelines.Name, ...], msgspec.Meta(max_length=100)] = ()
    state: pipelines.State = "running"
    batch: int = -1
    rows: Count = 0
    batch_rows: Count = 0
    batch_seconds: float = 0.0
    behind: Count = 0
    restarts: Count = 0
    failure: pipelines.Text = ""


class ListPipelines(Request, frozen=True, tag="list-pipelines"):
    """The pipelines that write where the caller has a right. -> `list[PipelineReport]`"""


class CreateToken(Request, frozen=True, tag="create-token"):
    """-> `NewToken`, the only time that the secret is told."""

    right: ClassVar[Right | None] = "admin"

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    rights: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=3)] = ("read", "write")
    prefixes: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=100)] = ("",)


class ListTokens(Request, frozen=True, tag="list-tokens"):
    """-> `list[TokenInfo]`"""

    right: ClassVar[Right | None] = "admin"


class RevokeToken(Request, frozen=True, tag="revoke-token"):
    """-> `TokenInfo`. `token` is a token's id or its name."""

    right: ClassVar[Right | None] = "admin"

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


Call = (
    AboutNode
    | ListStreams
    | Describe
    | Create
    | Alter
    | Drop
    | Truncate
    | Settle
    | StreamStatus
    | PondStatus
    | Segments
    | CountRows
    | Explain
    | DrawMap
    | Vacuum
    | RebuildIndexes
    | Verify
    | TakeSnapshot
    | BulkCall
    | DatasetCall
    | FileCall
    | GroupCall
    | NoteQuery
    | RelayoutCall
    | ReportPipeline
    | ListPipelines
    | CreateToken
    | ListTokens
    | RevokeToken
)


# Fetches: batches back, and an end.


class Scan(StreamRequest, frozen=True, tag="scan"):
    """The records that match, of one snapshot, in no promised order."""

    right: ClassVar[Right | None] = "read"

    where: Where | None = None
    predicate: Terms | None = None
    columns: Columns | None = None
    limit: Count | None = None


class Get(StreamRequest, frozen=True, tag="get"):
    """Records by a key, newest first. `key` is the key's value as text, read as `query.parse_value` reads it, or, with
    `exact`, in base64 an Arrow stream whose one value it is; `by` is a secondary key's column, None the primary one."""

    right: ClassVar[Right | None] = "read"

    key: Annotated[str, msgspec.Meta(max_length=1_000_000)]
    exact: bool = False
    by: Column | None = None
    limit: Count = 10


class ReadSegment(StreamRequest, frozen=True, tag="read-segment"):
    """The records of one segment."""

    right: ClassVar[Right | None] = "read"

    segment: Annotated[str, msgspec.Meta(max_length=1_000)]
    columns: Columns | None = None


class Objects(StreamRequest, frozen=True, tag="objects"):
    """The index entries of the newest settled snapshot, a row per object; the schema's metadata holds, under
    `answers.MARK`, the `SnapshotMark` they belong to."""

    right: ClassVar[Right | None] = "read"


class Audit(Request, frozen=True, tag="audit"):
    """What was discarded, when and why."""

    right: ClassVar[Right | None] = "admin"


class Queries(StreamRequest, frozen=True, tag="queries"):
    """What was asked of the stream, with the literals of all who asked."""

    right: ClassVar[Right | None] = "admin"


Fetch = Scan | Get | ReadSegment | Objects | Audit | Queries | PlanRelayout | PollGroup | DatasetEntries


# Records from a place on, and records in.


class Read(StreamRequest, frozen=True, tag="read"):
    """Records in order per streamlet, from `start` on (see `query.positions`)."""

    right: ClassVar[Right | None] = "read"

    start: Place = "earliest"
    follow: bool = False
    columns: Columns | None = None
    where: Where | None = None
    predicate: Terms | None = None
    batch_rows: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 65_536
    limit: Count | None = None
    # All streamlets in the order of time, as `query.merged` says.
    merge_within: Units | None = None


class Append(StreamRequest, frozen=True, tag="append"):
    """Records come beside it. -> `Ack`. With a `stage` they are only held, under that name, for `CommitStaged`."""

    right: ClassVar[Right | None] = "write"

    producer: str = ""
    sequence: Annotated[int, msgspec.Meta(ge=0)] | None = None
    durability: str | None = None
    # Of a file that the caller holds alone.
    epoch: Count | None = None
    stage: Stage | None = None
