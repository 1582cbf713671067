"""What each route does: from a request's parts to a message of `wire.requests`, and from its answer to a response."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pyarrow as pa
from starlette.responses import Response, StreamingResponse

from millpond.errors import InvalidInput, NoSuchRoute, StreamExists, Truncated
from millpond.ingest.json_lines import batch_to_lines
from millpond.log.engine import Ack
from millpond.model.offsets import Position
from millpond.model.schema import OFFSET, STREAMLET
from millpond.serve.asked import Asked
from millpond.serve.forms import FOLLOW_FORMS, MEDIA_TYPE_OF, PAGE_FORMS, chosen_form, small_pieces, written
from millpond.serve.parameters import (
    ROWS_DEFAULT,
    AlterBody,
    CreateBody,
    Health,
    PipelineBody,
    SettleAnswer,
    TokenBody,
)
from millpond.serve.records_in import decode_records
from millpond.wire import requests as ask
from millpond.wire.desk import Batches, PatientReader
from millpond.wire.relayout_requests import Analyse, Relayout

if TYPE_CHECKING:
    from millpond.serve.rest import RestDoor

Handler: TypeAlias = "Callable[[RestDoor, Asked], Awaitable[Response]]"

# A page ends early at this many bytes of records.
PAGE_BYTES = 16_000_000
_NEXT = "millpond-next"
_KEY_PRODUCER = "key:"


def answer(found: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """One message, as JSON."""
    return Response(msgspec.json.encode(found), status, headers, "application/json")


async def _call(door: RestDoor, asked: Asked, request: ask.Call, status: int = 200) -> Response:
    return answer(await door.blocking(asked.desk.call, asked.caller, request), status)


# The node.


async def healthz(door: RestDoor, asked: Asked) -> Response:
    return answer(Health("ok"))


async def readyz(door: RestDoor, asked: Asked) -> Response:
    reasons = door.state.reasons()
    return answer(Health("not ready" if reasons else "ready", tuple(reasons)), 503 if reasons else 200)


async def metrics(door: RestDoor, asked: Asked) -> Response:
    if door.metrics is None:
        raise NoSuchRoute("this node gives no metrics", hint="set metrics = true")
    await door.blocking(asked.desk.call, asked.caller, ask.PondStatus())  # takes the right to read everything
    body, media = await door.blocking(door.metrics, asked.header("accept"))
    return Response(body, 200, None, media)


async def about(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.AboutNode())


async def pond_status(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.PondStatus())


async def audit(door: RestDoor, asked: Asked) -> Response:
    return await _fetched(door, asked, ask.Audit())


async def verify(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.Verify())


async def list_tokens(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.ListTokens())


async def create_token(door: RestDoor, asked: Asked) -> Response:
    body: TokenBody = await asked.message(TokenBody, door.settings)
    return await _call(door, asked, ask.CreateToken(body.name, body.rights, body.prefixes), 201)


async def revoke_token(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.RevokeToken(asked.name))


# Streams.


async def list_streams(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.ListStreams())


async def list_pipelines(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.ListPipelines())


async def report_pipeline(door: RestDoor, asked: Asked) -> Response:
    body: PipelineBody = await asked.message(PipelineBody, door.settings)
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    return await _call(door, asked, ask.ReportPipeline(asked.name, **fields))


async def create(door: RestDoor, asked: Asked) -> Response:
    body: CreateBody = await asked.message(CreateBody, door.settings)
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    try:
        return await _call(door, asked, ask.Create(asked.name, **fields), 201)
    except StreamExists:
        return await _call(door, asked, ask.Create(asked.name, **fields, exist_ok=True))


async def describe(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.Describe(asked.name))


async def alter(door: RestDoor, asked: Asked) -> Response:
    body: AlterBody = await asked.message(AlterBody, door.settings)
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    return await _call(door, asked, ask.Alter(asked.name, **fields))


async def drop(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.Drop(asked.name, asked.query.preview))


async def truncate(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.Truncate(asked.name, asked.query.preview))


async def stream_status(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.StreamStatus(asked.name))


async def settle(door: RestDoor, asked: Asked) -> Response:
    found = await door.blocking(asked.desk.call, asked.caller, ask.Settle(asked.name, asked.query.preview))
    return answer(SettleAnswer(plan=found) if asked.query.preview else SettleAnswer(settled=found))


async def queries(door: RestDoor, asked: Asked) -> Response:
    return await _fetched(door, asked, ask.Queries(asked.name))


async def reindex(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.RebuildIndexes(asked.name, asked.query.everything))


async def vacuum(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.Vacuum(asked.name, asked.query.older_than, asked.query.preview))


async def analyse(door: RestDoor, asked: Asked) -> Response:
    query = asked.query
    return await _call(door, asked, Analyse(asked.name, query.period, query.better_by, not query.preview))


async def relayout(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, Relayout(asked.name, asked.query.object_bytes_min))


async def count(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.CountRows(asked.name, asked.query.where))


async def explain(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.Explain(asked.name, asked.query.where))


async def draw_map(door: RestDoor, asked: Asked) -> Response:
    return await _call(door, asked, ask.DrawMap(asked.name, asked.query.where, axes=_columns(asked.query.axes)))


# Records in.


async def append(door: RestDoor, asked: Asked) -> Response:
    request = _append_request(asked)
    definition = asked.desk.definition(asked.caller, request)
    body = await asked.body(door.settings)

    def appended() -> Ack:
        return asked.desk.append(asked.caller, request, decode_records(definition, asked.headers, body, door.settings))

    return answer(await door.blocking(appended))


def _append_request(asked: Asked) -> ask.Append:
    key, producer, number = (
        asked.header(name) for name in ("idempotency-key", "millpond-producer", "millpond-sequence")
    )
    if key and (producer or number):
        raise InvalidInput("both an Idempotency-Key and a producer are given", hint="one of the two names the append")
    if bool(producer) != bool(number):
        raise InvalidInput(
            "a producer and its sequence belong together", hint="send Millpond-Producer and Millpond-Sequence"
        )
    if number and not (number.isascii() and number.isdigit() and len(number) < 19):
        raise InvalidInput(f"Millpond-Sequence is {number[:40]!r}", hint="a whole number, 0 or more, that goes upwards")
    if key:
        return ask.Append(asked.name, key_producer(key), 0, asked.query.durability)
    return ask.Append(asked.name, producer, int(number) if number else None, asked.query.durability)


def key_producer(key: str) -> str:
    """The producer that a key stands for, which appends once; none if there is no key."""
    if len(key) > 200:
        raise InvalidInput(f"an Idempotency-Key of {len(key)} characters", hint="at most 200; a UUID will do")
    return key and _KEY_PRODUCER + key


# Records out.


def _columns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(","))


async def scan(door: RestDoor, asked: Asked) -> Response:
    query = asked.query
    return await _fetched(door, asked, ask.Scan(asked.name, query.where, None, _columns(query.columns), query.limit))


async def get(door: RestDoor, asked: Asked) -> Response:
    query = asked.query
    return await _fetched(door, asked, ask.Get(asked.name, query.key, False, query.by, query.limit))


async def segments(door: RestDoor, asked: Asked) -> Response:
    query = asked.query
    if query.id is None:
        return await _call(door, asked, ask.Segments(asked.name))
    return await _fetched(door, asked, ask.ReadSegment(asked.name, query.id, _columns(query.columns)))


async def _fetched(door: RestDoor, asked: Asked, request: ask.Fetch) -> Response:
    """All that a fetch gives, as it comes."""
    form = chosen_form(asked.query.format, asked.header("accept"), PAGE_FORMS)
    found: Batches = await door.blocking(asked.desk.fetch, asked.caller, request)
    pieces = written(form, found.schema, found.batches)
    # What goes wrong before the first records are there can still be told.
    first = await door.blocking(_first, pieces)
    return StreamingResponse(_in_threads(door, first, pieces), 200, None, MEDIA_TYPE_OF[form])


def _first(pieces: Iterator[bytes]) -> list[bytes]:
    """The head of an answer and its first records."""
    return list(itertools.islice(pieces, 2))


async def _in_threads(door: RestDoor, first: list[bytes], pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in first:
        yield piece
    while (piece := await door.blocking(next, pieces, None)) is not None:
        if piece:
            yield piece


async def read(door: RestDoor, asked: Asked) -> Response:
    query = asked.query
    if query.follow:
        return await _followed(door, asked)
    limit = min(ROWS_DEFAULT if query.limit is None else query.limit, door.settings.page_rows_max)
    form = chosen_form(query.format, asked.header("accept"), PAGE_FORMS)
    request = ask.Read(
        asked.name,
        query.start,
        False,
        _columns(query.columns),
        query.where,
        batch_rows=max(1, min(limit, 65_536)),
        limit=limit,
        merge_within=query.merge_within,
    )
    schema, batches, position = await door.blocking(_page, asked, request)
    following = position.text
    if form == "json":
        lines = b",\n".join(batch_to_lines(batch)[:-1].replace(b"\n", b",\n") for batch in batches)
        body = b'{"records":[%b],"next":"%b"}' % (lines, following.encode())
    else:
        body = b"".join(written(form, schema, batches))
    return Response(body, 200, {_NEXT: following}, MEDIA_TYPE_OF[form])


def _page(asked: Asked, request: ask.Read) -> tuple[pa.Schema, list[pa.RecordBatch], Position]:
    reader = asked.desk.read(asked.caller, request)
    batches: list[pa.RecordBatch] = []
    size = 0
    try:
        while size < PAGE_BYTES and (batch := reader.poll()) is not None:
            batches.append(batch)
            size += batch.nbytes
        return reader.schema, batches, reader.position
    finally:
        reader.close()


# Followed.


async def _followed(door: RestDoor, asked: Asked) -> Response:
    query = asked.query
    form = chosen_form(query.format, asked.header("accept"), FOLLOW_FORMS)
    resumed = asked.header("last-event-id")
    wanted = _columns(query.columns)
    columns = wanted
    if form == "sse" and wanted is not None:  # a record's id says where it is
        columns = (*wanted, *(name for name in (STREAMLET, OFFSET) if name not in wanted))
    door.check_followers()

    def request(start: str) -> ask.Read:
        return ask.Read(
            asked.name,
            start,
            True,
            columns,
            query.where,
            batch_rows=FOLLOW_ROWS,
            limit=query.limit,
            merge_within=query.merge_within,
        )

    try:
        reader = await door.blocking(asked.desk.read, asked.caller, request(resumed or query.start))
    except Truncated:
        if not resumed:
            raise
        # While its connection was lost. A follower goes over to the new generation, from its beginning.
        reader = await door.blocking(asked.desk.read, asked.caller, request("earliest"))
    pieces = (
        _following(door, reader, _event_writer(wanted, merged=query.merge_within is not None), _BEAT)
        if form == "sse"
        else _following(door, reader, _lines)
    )
    return StreamingResponse(pieces, 200, None, MEDIA_TYPE_OF[form])


# Of a batch, and the positions before and behind it, what is sent.
Write = Callable[[pa.RecordBatch, Position, Position], list[bytes]]
# What an idle follower is sent now and then, so that a connection that has died is noticed.
_BEAT = b": still here\n\n"
BEAT_SECONDS = 15.0
# A client that has not taken a piece after so long is slow: its reader holds nothing for it meanwhile.
SLOW_SECONDS = 2.0
# What is encoded at a time for a follower, and held until its client has taken it.
FOLLOW_ROWS = 256


async def _following(door: RestDoor, reader: PatientReader, write: Write, beat: bytes = b"") -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    said = time.monotonic()
    before = reader.position

    def poll() -> list[bytes]:
        nonlocal before
        batch, now = reader.poll(), reader.position
        if now.generation != before.generation:  # it went over to a new one, from its beginning
            before = Position(dict.fromkeys(now, 0), now.generation)
        found = [] if batch is None else write(batch, before, now)
        before = now
        return found

    door.followers += 1
    try:
        while not reader.closed and not door.state.stopping:
            pieces = await door.watching(poll)
            if not pieces and beat and time.monotonic() - said > BEAT_SECONDS:
                pieces = [beat]
            for piece in pieces:
                said = time.monotonic()
                slow = loop.call_later(SLOW_SECONDS, loop.run_in_executor, None, reader.rest)
                yield piece
                slow.cancel()
    finally:
        reader.close()
        door.followers -= 1


def _lines(batch: pa.RecordBatch, before: Position, behind: Position) -> list[bytes]:
    return [batch_to_lines(piece) for piece in small_pieces(batch)]


def _event_writer(wanted: tuple[str, ...] | None, *, merged: bool) -> Write:
    """Server-sent events: each record with the position behind it as its id. Where streamlets are merged by time,
    records before it may be held back still: the position is that of its whole batch then, once that is sent."""

    def write(batch: pa.RecordBatch, before: Position, behind: Position) -> list[bytes]:
        shown = batch if wanted is None else batch.select(list(wanted))
        at = Position(before, before.generation)
        found: list[bytes] = []
        places = zip(batch.column(STREAMLET).to_pylist(), batch.column(OFFSET).to_pylist(), strict=True)
        for (streamlet, offset), line in zip(places, batch_to_lines(shown).splitlines(), strict=True):
            if not merged:
                at[streamlet] = offset + 1
            elif len(found) == batch.num_rows - 1:
                at = behind
            found.append(b"id: %b\ndata: %b\n\n" % (at.text.encode(), line))
        return found

    return write


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        healthz, readyz, metrics, about, pond_status, audit, verify, list_tokens, create_token, revoke_token,
        list_streams, list_pipelines, create, describe, alter, drop, append, read, scan, get, count, explain, draw_map,
        segments, stream_status, truncate, settle, queries, vacuum, reindex, analyse, relayout, report_pipeline,
    )
}  # fmt: skip
