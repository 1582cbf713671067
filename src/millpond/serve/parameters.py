"""What requests carry besides records: the parameters of each route, and the messages that bodies hold. Routes read
them, and the OpenAPI document describes them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from millpond.archive.settle import SettleReport
from millpond.wire import answers, pipelines
from millpond.wire import requests as ask

ROWS_DEFAULT = 1_000
ROWS_MAX = 10_000

_Where = Annotated[
    str,
    Meta(min_length=1, description="A SQL condition that records must meet, e.g. `temp > 20 AND city = 'Nice'`."),
]
_Columns = Annotated[
    str, Meta(min_length=1, description="Which columns, e.g. `vid,temp`; `_streamlet`, `_offset`, `_ingest_time` too.")
]
Preview = Annotated[bool, Meta(description="Only say what would happen.")]
_Format = Annotated[
    Literal["json", "ndjson", "csv", "arrow"], Meta(description="The form of the answer, in place of `Accept`.")
]


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class RecordsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a read begins, how much it gives, and how."""

    start: Annotated[
        str,
        Meta(
            max_length=10_000,
            description="`earliest`, `latest`, a time of ingestion, an offset, or `0:120,1:96` per streamlet.",
        ),
    ] = "earliest"
    limit: (
        Annotated[int, Meta(ge=0, le=ROWS_MAX, description="Records of a page; all of them if it is followed.")] | None
    ) = None
    columns: _Columns | None = None
    where: _Where | None = None
    follow: Annotated[bool, Meta(description="Go on as records arrive, as NDJSON or server-sent events.")] = False
    merge_within: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=40,
                description="All streamlets in the order of time; each record waits so long for those before it: `5s`.",
            ),
        ]
        | None
    ) = None
    format: (
        Annotated[
            Literal["json", "ndjson", "csv", "arrow", "sse"],
            Meta(description="The form of the answer, in place of `Accept`."),
        ]
        | None
    ) = None


class AppendQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How an append is acknowledged."""

    durability: Annotated[Literal["disk", "os", "memory"], Meta(description="If not as the stream has it.")] | None = (
        None
    )


class ScanQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What is looked for."""

    where: _Where | None = None
    columns: _Columns | None = None
    limit: Annotated[int, Meta(ge=0, le=2**53, description="At most so many records; all otherwise.")] | None = None
    format: _Format | None = None


class GetQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which key."""

    key: Annotated[str, Meta(max_length=100_000, description="The value of the key.")]
    by: Annotated[str, Meta(description="A secondary key's column; otherwise the primary key.")] | None = None
    limit: Annotated[int, Meta(ge=0, le=ROWS_MAX, description="The newest so many.")] = 10
    format: _Format | None = None


class WhereQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A condition."""

    where: _Where | None = None


class MapQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which map."""

    where: _Where | None = None
    axes: (
        Annotated[str, Meta(min_length=1, description="The columns along x and y, e.g. `lon,lat`; the layout's else.")]
        | None
    ) = None


class SegmentsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """All segments, or the records of one."""

    id: (
        Annotated[str, Meta(max_length=1_000, description="The records of this segment, in place of the list.")] | None
    ) = None
    columns: _Columns | None = None
    format: _Format | None = None


class PreviewQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether it is only asked."""

    preview: Preview = False


class VacuumQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How old an object must be, and whether it is only asked."""

    older_than: ask.Units = "7d"
    preview: Preview = False


class ReindexQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether objects that every index knows of are read again, too."""

    everything: bool = False


class AnalyseQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """From which records a layout is fitted anew, and by how much it must be better."""

    period: ask.Units = "7d"
    better_by: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    preview: Preview = False


class RelayoutQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How small objects may become."""

    object_bytes_min: ask.Units | None = None


class FormatQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The form of the answer."""

    format: _Format | None = None


class CreateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A stream to be. Without a schema it takes raw events: time, headers, body."""

    schema: ask.Schema | None = None
    keys: ask.Columns = ()
    event_time: ask.Column | None = None
    streamlets: Annotated[int, Meta(ge=1, le=1024)] = 1
    durability: Literal["disk", "os", "memory"] = "disk"
    settle: ask.SettleSpec | None = ask.SettleSpec()
    partition: ask.Units = "1d"
    memory: ask.Units | None = None
    file: bool = False
    ttl: ask.Units | None = None
    keep: ask.Where | None = None
    only: ask.Columns | None = None
    indexes: ask.Specs = ()
    layout: ask.SpecForm | None = None


class AlterBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The columns to add, or the whole schema, which only adds columns at the end; how long records are kept: null
    means for good; all indexes, in place of those that there are; the layout of what settles from now on."""

    add: ask.Schema | None = None
    schema: ask.Schema | None = None
    ttl: ask.Units | UnsetType | None = UNSET
    indexes: ask.Specs | UnsetType = UNSET
    layout: ask.SpecForm | UnsetType | None = UNSET


class PipelineBody(Struct, frozen=True, forbid_unknown_fields=True):
    """How a pipeline does. `behind`: records of its sources that it has not read."""

    name: pipelines.Name
    sources: Annotated[tuple[pipelines.Name, ...], Meta(max_length=100)] = ()
    state: pipelines.State = "running"
    batch: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    rows: Annotated[int, Meta(ge=0, le=2**53)] = 0
    batch_rows: Annotated[int, Meta(ge=0, le=2**53)] = 0
    batch_seconds: Annotated[float, Meta(ge=0)] = 0.0
    behind: Annotated[int, Meta(ge=0, le=2**53)] = 0
    restarts: Annotated[int, Meta(ge=0, le=2**53)] = 0
    failure: pipelines.Text = ""


class TokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    rights: Annotated[tuple[Literal["read", "write", "admin"], ...], Meta(min_length=1, max_length=3)] = (
        "read",
        "write",
    )
    prefixes: Annotated[tuple[ask.Name, ...], Meta(min_length=1, max_length=100)] = ("",)


class Health(Struct, frozen=True):
    """Whether the node is well; if not, why."""

    status: str
    reasons: tuple[str, ...] = ()


class SettleAnswer(Struct, frozen=True):
    """What settled, or would; `null` if all of it had settled already."""

    settled: SettleReport | None = None
    plan: answers.SettlePlan | None = None
