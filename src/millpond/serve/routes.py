"""The routes: which there are, what each takes and gives. One table, from which requests are matched, parameters are
read, and the OpenAPI document is made.

A stream's name stands in the path as it is, slashes and all. The last part of the path is a verb if it is one of
`VERBS`, and what follows `/groups` is about consumer groups; a name with such a word in it is written with %2F in place
of its slashes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from millpond.archive.analysis import Analysis
from millpond.archive.reindex import RebuildReport
from millpond.archive.relayout import RelayoutReport
from millpond.archive.vacuum import VacuumReport
from millpond.errors import InvalidInput, MethodNotAllowed, NoSuchRoute
from millpond.log.engine import Ack
from millpond.query import ObjectMap, QueryReport, SegmentListing
from millpond.serve.group_routes import GROUP_ROUTES
from millpond.serve.parameters import (
    AlterBody,
    AnalyseQuery,
    AppendQuery,
    CreateBody,
    FormatQuery,
    GetQuery,
    Health,
    MapQuery,
    PipelineBody,
    PreviewQuery,
    RecordsQuery,
    ReindexQuery,
    RelayoutQuery,
    ScanQuery,
    SegmentsQuery,
    SettleAnswer,
    TokenBody,
    VacuumQuery,
    WhereQuery,
)
from millpond.serve.route import RECORDS, TEXT, Route
from millpond.wire import answers, pipelines, status

_READING = (400, 404, 406, 410, 503)
_CHANGING = (400, 404, 503, 507)

ROUTES = (
    Route("GET", "/healthz", "healthz", "Whether the process is alive.", Health, right=None),
    Route(
        "GET", "/readyz", "readyz", "Whether the pond can be used, and if not, why.", Health, right=None, errors=(503,)
    ),
    Route("GET", "/metrics", "metrics", "Metrics in Prometheus' format.", TEXT, right="read", errors=(503,)),
    Route("GET", "/v1", "about", "The node, and what the caller may do.", answers.Node, errors=(503,)),
    Route("GET", "/v1/status", "pond_status", "The whole pond.", status.PondStatus, right="read", errors=(503,)),
    Route(
        "GET",
        "/v1/audit",
        "audit",
        "What was discarded, when and why.",
        RECORDS,
        FormatQuery,
        right="admin",
        errors=(406, 503),
    ),
    Route(
        "POST",
        "/v1/verify",
        "verify",
        "Check every checksum and every count.",
        status.VerifyReport,
        right="admin",
        errors=(503,),
    ),
    Route(
        "GET",
        "/v1/tokens",
        "list_tokens",
        "The tokens, without their secrets.",
        list[answers.TokenInfo],
        right="admin",
        errors=(400, 503),
    ),
    Route(
        "POST",
        "/v1/tokens",
        "create_token",
        "Make a token; its secret is told this once.",
        answers.NewToken,
        takes=TokenBody,
        status=201,
        right="admin",
        errors=(400, 409, 413, 415, 503),
    ),
    Route(
        "DELETE",
        "/v1/tokens/{id}",
        "revoke_token",
        "Revoke a token.",
        answers.TokenInfo,
        right="admin",
        errors=(400, 404, 503),
    ),
    Route(
        "GET",
        "/v1/pipelines",
        "list_pipelines",
        "How the pipelines do that write where the caller has a right.",
        list[pipelines.PipelineReport],
        errors=(503,),
    ),
    Route(
        "GET",
        "/v1/streams",
        "list_streams",
        "The streams that the caller has a right on.",
        list[answers.StreamInfo],
        errors=(503,),
    ),
    Route(
        "PUT",
        "/v1/streams/{name}",
        "create",
        "Create a stream; 200 if it is there with the same columns.",
        answers.StreamInfo,
        takes=CreateBody,
        status=201,
        right="admin",
        errors=(400, 409, 413, 415, 503, 507),
    ),
    Route(
        "GET",
        "/v1/streams/{name}",
        "describe",
        "What a stream is.",
        answers.StreamInfo,
        right="read",
        errors=(400, 404, 503),
    ),
    Route(
        "PATCH",
        "/v1/streams/{name}",
        "alter",
        "Add columns, or change how long records are kept.",
        answers.StreamInfo,
        takes=AlterBody,
        right="admin",
        errors=(*_CHANGING, 413, 415),
    ),
    Route(
        "DELETE",
        "/v1/streams/{name}",
        "drop",
        "Drop a stream and everything it holds.",
        answers.DropPlan,
        PreviewQuery,
        right="admin",
        errors=_CHANGING,
    ),
    Route(
        "POST",
        "/v1/streams/{name}/records",
        "append",
        "Append records; all of them or none.",
        Ack,
        AppendQuery,
        takes=RECORDS,
        right="write",
        errors=(400, 404, 409, 413, 415, 422, 503, 507),
    ),
    Route(
        "GET",
        "/v1/streams/{name}/records",
        "read",
        "Records in order, from a place on: a page, or followed.",
        RECORDS,
        RecordsQuery,
        right="read",
        errors=_READING,
    ),
    Route(
        "GET",
        "/v1/streams/{name}/scan",
        "scan",
        "The records that match, in no promised order.",
        RECORDS,
        ScanQuery,
        right="read",
        errors=_READING,
    ),
    Route(
        "GET",
        "/v1/streams/{name}/get",
        "get",
        "The newest records of a key.",
        RECORDS,
        GetQuery,
        right="read",
        errors=_READING,
    ),
    Route(
        "GET",
        "/v1/streams/{name}/count",
        "count",
        "How many records match.",
        answers.Counted,
        WhereQuery,
        right="read",
        errors=_READING,
    ),
    Route(
        "GET",
        "/v1/streams/{name}/explain",
        "explain",
        "What a scan would read and skip.",
        QueryReport,
        WhereQuery,
        right="read",
        errors=_READING,
    ),
    Route(
        "GET",
        "/v1/streams/{name}/map",
        "draw_map",
        "Where the settled objects lie along two columns, and which a scan would read.",
        ObjectMap,
        MapQuery,
        right="read",
        errors=_READING,
    ),
    Route(
        "GET",
        "/v1/streams/{name}/segments",
        "segments",
        "Segments, settled and live, or the records of one.",
        list[SegmentListing],
        SegmentsQuery,
        right="read",
        errors=_READING,
    ),
    Route(
        "GET",
        "/v1/streams/{name}/status",
        "stream_status",
        "Where a stream stands.",
        status.StreamStatus,
        right="read",
        errors=(400, 404, 503),
    ),
    Route(
        "POST",
        "/v1/streams/{name}/truncate",
        "truncate",
        "Discard all records; a new, empty generation begins.",
        answers.TruncatePlan,
        PreviewQuery,
        right="admin",
        errors=_CHANGING,
    ),
    Route(
        "POST",
        "/v1/streams/{name}/pipelines",
        "report_pipeline",
        "Say how a pipeline does that writes to the stream.",
        pipelines.PipelineReport,
        takes=PipelineBody,
        right="write",
        errors=(*_CHANGING, 413, 415),
    ),
    Route(
        "POST",
        "/v1/streams/{name}/settle",
        "settle",
        "Move what is live into the archive.",
        SettleAnswer,
        PreviewQuery,
        right="admin",
        errors=_CHANGING,
    ),
    Route(
        "GET",
        "/v1/streams/{name}/queries",
        "queries",
        "What was asked of the stream, with the literals of all who asked.",
        RECORDS,
        FormatQuery,
        right="admin",
        errors=(400, 404, 406, 503),
    ),
    Route(
        "POST",
        "/v1/streams/{name}/vacuum",
        "vacuum",
        "Remove the files of objects that nobody can see any more.",
        VacuumReport,
        VacuumQuery,
        right="admin",
        errors=_CHANGING,
    ),
    Route(
        "POST",
        "/v1/streams/{name}/reindex",
        "reindex",
        "Make index entries for settled objects that lack them.",
        RebuildReport,
        ReindexQuery,
        right="admin",
        errors=_CHANGING,
    ),
    Route(
        "POST",
        "/v1/streams/{name}/analyse",
        "analyse",
        "Fit the layout anew, and let it count if the queries on record would read notably less.",
        Analysis,
        AnalyseQuery,
        right="admin",
        errors=_CHANGING,
    ),
    Route(
        "POST",
        "/v1/streams/{name}/relayout",
        "relayout",
        "Rewrite settled objects so that they lie as the newest model of the layout says.",
        RelayoutReport,
        RelayoutQuery,
        right="admin",
        errors=_CHANGING,
    ),
    *GROUP_ROUTES,
)

# The last part of a stream's path, where it is not the end of its name.
VERBS = frozenset(
    route.path.removeprefix("/v1/streams/{name}/") for route in ROUTES if re.fullmatch(r".*\{name\}/\w+", route.path)
)

_STREAMS = "/v1/streams/"
_TOKENS = "/v1/tokens/"
# A stream's groups, one of them, its members, one of them: what comes behind the first `/groups` that this fits.
_OF_GROUP = re.compile(
    r"(.+?)/groups(?:/([^/]+)(?:(/reset)|(/members)(?:/([^/]+)(/poll|/commit|/abort|/renew|/seek)?)?)?)?"
)
_BY_PATH: dict[str, dict[str, Route]] = {}
for _route in ROUTES:
    _BY_PATH.setdefault(_route.path, {})[_route.method] = _route


@dataclass(frozen=True, slots=True)
class Match:
    """A request's route, and what its path holds: the name of a stream or a token, a group, an instance."""

    route: Route
    name: str = ""
    group: str = ""
    instance: str = ""


def match(method: str, raw_path: bytes) -> Match:
    """The route of a request. `NoSuchRoute` or `MethodNotAllowed` if there is none."""
    path, *names = _template(raw_path.partition(b"?")[0])
    methods = _BY_PATH.get(path)
    if methods is None:
        raise NoSuchRoute(f"no route {_shown(raw_path)}", hint="GET /docs lists the routes")
    route = methods.get(method)
    if route is None:
        raise MethodNotAllowed(f"no {method[:20]} {path}", hint=f"it takes {', '.join(sorted(methods))}")
    return Match(route, *names)


def allowed_methods(raw_path: bytes) -> list[str]:
    """The methods of a path."""
    try:
        return sorted(_BY_PATH.get(_template(raw_path.partition(b"?")[0])[0], ()))
    except InvalidInput:
        return []


def _template(raw: bytes) -> list[str]:
    """The path of the table that a path is of, and the names in it."""
    text = raw.decode("latin-1")
    if text.startswith(_STREAMS) and len(text) > len(_STREAMS):
        whole = text[len(_STREAMS) :]
        found = _OF_GROUP.fullmatch(whole)
        if found is not None:
            name, group, reset, members, instance, verb = (part or "" for part in found.groups())
            path = "/{group}" * bool(group) + reset + members + "/{instance}" * bool(instance) + verb
            return [f"{_STREAMS}{{name}}/groups{path}", *map(_decoded, (name, group, instance))]
        rest, _, last = whole.rpartition("/")
        if rest and last in VERBS:
            return [f"{_STREAMS}{{name}}/{last}", _decoded(rest)]
        return [f"{_STREAMS}{{name}}", _decoded(whole)]
    if text.startswith(_TOKENS) and len(text) > len(_TOKENS) and "/" not in text[len(_TOKENS) :]:
        return [f"{_TOKENS}{{id}}", _decoded(text[len(_TOKENS) :])]
    return [text]


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise NoSuchRoute(f"no name is {text[:80]!r}", hint="a name is percent-encoded UTF-8") from None


def _shown(raw: bytes) -> str:
    return raw[:200].decode("ascii", "replace")


def read_query(kind: type[Struct], text: bytes) -> Any:
    """The parameters of a request; one that is unknown, given twice, or not what it should be is refused."""
    found: dict[str, str] = {}
    for part in text.split(b"&") if text else ():
        raw_name, _, raw_value = part.partition(b"=")
        try:
            name, value = (unquote_to_bytes(raw.replace(b"+", b" ")).decode() for raw in (raw_name, raw_value))
        except UnicodeDecodeError:
            raise InvalidInput("a parameter is not UTF-8", hint="percent-encode it as UTF-8") from None
        known = kind.__struct_fields__
        if name not in known:
            raise InvalidInput(f"no parameter {name[:80]!r} here", hint=f"parameters: {', '.join(known) or 'none'}")
        if name in found:
            raise InvalidInput(f"parameter {name!r} is given twice", hint="give it once")
        found[name] = value
    try:
        query = msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"a parameter does not fit: {error}", hint="GET /docs lists what each may be") from None
    for name in found:
        if getattr(query, name) is None:  # the text "null", which converts to None
            raise InvalidInput(f"parameter {name!r} is {found[name]!r}", hint="leave it out")
    return query
