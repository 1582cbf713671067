"""What the routes of consumer groups do: from a request's parts to a message of `wire.group_requests`, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from starlette.responses import Response

from millpond.consume.protocol import Outcome
from millpond.errors import InvalidInput, InvalidValue
from millpond.ingest.json_lines import batch_to_lines
from millpond.ingest.text import read_json
from millpond.log.engine import Ack
from millpond.model.units import parse_seconds
from millpond.serve.asked import Asked
from millpond.serve.forms import MEDIA_TYPE_OF, chosen_form, written
from millpond.serve.group_parameters import (
    AbortBody,
    CommitBody,
    EpochBody,
    JoinBody,
    Output,
    PollBody,
    ResetBody,
    SeekBody,
    Transacted,
    TransactionBody,
)
from millpond.serve.handlers import Handler, answer, key_producer
from millpond.serve.records_in import check_rows
from millpond.serve.settings import ServeSettings
from millpond.wire import group_requests as ask
from millpond.wire import requests
from millpond.wire.desk import Batches

if TYPE_CHECKING:
    from millpond.serve.rest import RestDoor

_POLL_FORMS = ("json", "ndjson", "arrow")


async def call(door: RestDoor, asked: Asked, request: requests.Call, status: int = 200) -> Response:
    """What the desk answers, as JSON."""
    return answer(await door.blocking(asked.desk.call, asked.caller, request), status)


# Groups.


async def list_groups(door: RestDoor, asked: Asked) -> Response:
    return await call(door, asked, ask.ListGroups())


async def stream_groups(door: RestDoor, asked: Asked) -> Response:
    asked.desk.definition(asked.caller, requests.Describe(asked.name))  # takes the right to read it
    return await call(door, asked, ask.ListGroups(asked.name))


async def describe_group(door: RestDoor, asked: Asked) -> Response:
    return await call(door, asked, ask.DescribeGroup(asked.name, group=asked.group))


async def delete_group(door: RestDoor, asked: Asked) -> Response:
    return await call(door, asked, ask.DeleteGroup(asked.name, group=asked.group, preview=asked.query.preview))


async def reset_group(door: RestDoor, asked: Asked) -> Response:
    body: ResetBody = await asked.message(ResetBody, door.settings)
    request = ask.ResetGroup(asked.name, group=asked.group, to=body.to, preview=asked.query.preview)
    return await call(door, asked, request)


async def replay(door: RestDoor, asked: Asked) -> Response:
    return await call(door, asked, ask.Replay(asked.name, group=asked.query.group, limit=asked.query.limit))


# Members.


async def join_group(door: RestDoor, asked: Asked) -> Response:
    body: JoinBody = await asked.message(JoinBody, door.settings)
    request = ask.JoinGroup(
        asked.name,
        group=asked.group,
        instance=body.instance or uuid4().hex[:12],
        strategy=body.strategy,
        by=body.by,
        start=body.start,
        lease_seconds=parse_seconds(body.lease),
        durability=body.durability,
        kills_max=body.kills_max,
    )
    return await call(door, asked, request, 201)


async def leave_group(door: RestDoor, asked: Asked) -> Response:
    return await _silently(door, asked, ask.LeaveGroup(asked.name, **_who(asked, asked.query.epoch)))


async def renew_member(door: RestDoor, asked: Asked) -> Response:
    body: EpochBody = await asked.message(EpochBody, door.settings)
    return await _silently(door, asked, ask.RenewMember(asked.name, **_who(asked, body.epoch)))


async def commit_group(door: RestDoor, asked: Asked) -> Response:
    body: CommitBody = await asked.message(CommitBody, door.settings)
    who = _who(asked, body.epoch)
    return await call(
        door, asked, ask.CommitGroup(asked.name, number=body.number, done=body.done, dead=body.dead, **who)
    )


async def abort_group(door: RestDoor, asked: Asked) -> Response:
    body: AbortBody = await asked.message(AbortBody, door.settings)
    return await call(door, asked, ask.AbortGroup(asked.name, number=body.number, **_who(asked, body.epoch)))


async def seek_group(door: RestDoor, asked: Asked) -> Response:
    body: SeekBody = await asked.message(SeekBody, door.settings)
    return await call(door, asked, ask.SeekGroup(asked.name, to=body.to, **_who(asked, body.epoch)))


def _who(asked: Asked, epoch: int) -> dict[str, Any]:
    for name in (asked.group, asked.instance):
        if len(name) > ask.NAME_LENGTH_MAX:
            raise InvalidValue(f"a name of {len(name)} characters", hint=f"at most {ask.NAME_LENGTH_MAX}")
    return {"group": asked.group, "instance": asked.instance, "epoch": epoch}


async def _silently(door: RestDoor, asked: Asked, request: requests.Call) -> Response:
    await door.blocking(asked.desk.call, asked.caller, request)
    return Response(status_code=204)


# Deliveries.


async def poll_group(door: RestDoor, asked: Asked) -> Response:
    form = chosen_form(asked.query.format, asked.header("accept"), _POLL_FORMS)
    body: PollBody = await asked.message(PollBody, door.settings)
    request = ask.PollGroup(
        asked.name,
        max_records=min(body.max_records, door.settings.page_rows_max),
        max_bytes=body.max_bytes,
        wait_seconds=body.wait_seconds,
        after=body.after,
        **_who(asked, body.epoch),
    )
    polled = _poll, asked, request, form
    answered = await (door.blocking(*polled) if body.wait_seconds == 0 else door.waiting(*polled))
    return Response(answered, 200, None, MEDIA_TYPE_OF[form])


def _poll(asked: Asked, request: ask.PollGroup, form: str) -> bytes:
    found: Batches = asked.desk.fetch(asked.caller, request)
    batches = list(found.batches)
    if form == "arrow":  # the receipts are in the schema's metadata, as they came
        return b"".join(written("arrow", found.schema, batches))
    receipts = msgspec.json.decode((found.schema.metadata or {})[ask.RECEIPTS], type=list[msgspec.Raw])
    lines = [_delivery(*pair) for pair in zip(receipts, batches, strict=True)]
    if form == "ndjson":
        return b"".join(line + b"\n" for line in lines)
    return b'{"deliveries":[%b]}' % b",\n".join(lines)


def _delivery(receipt: msgspec.Raw, batch: pa.RecordBatch) -> bytes:
    """One delivery as a JSON object on one line."""
    records = batch_to_lines(batch)[:-1].replace(b"\n", b",")
    return b'{"receipt":%b,"records":[%b]}' % (bytes(receipt), records)


# Transactions.


async def transaction(door: RestDoor, asked: Asked) -> Response:
    sent = await asked.message(TransactionBody, door.settings, bytes_max=door.settings.decoded_bytes_max)
    return answer(await door.blocking(_transact, asked, sent, door.settings))


def _transact(asked: Asked, sent: TransactionBody, settings: ServeSettings) -> Transacted:
    """Every output is checked before anything is staged, and everything is staged before anything is committed."""
    if not sent.outputs and sent.commit is None:
        raise InvalidInput("a transaction of nothing", hint='send "outputs", or a "commit", or both')
    rows = [_decoded(asked, output, settings) for output in sent.outputs]
    stages = tuple(f"rest-{uuid4().hex}" for _ in rows)
    for (append, records), stage in zip(rows, stages, strict=True):
        asked.desk.append(asked.caller, msgspec.structs.replace(append, stage=stage), records)
    return _committed(asked, sent, stages)


def _decoded(asked: Asked, output: Output, settings: ServeSettings) -> tuple[requests.Append, Any]:
    append = requests.Append(output.stream)
    definition = asked.desk.definition(asked.caller, append)
    records = read_json(bytes(output.records), definition)
    check_rows(len(records) if isinstance(records, list) else records.num_rows, settings)
    return append, records


def _committed(asked: Asked, sent: TransactionBody, stages: tuple[str, ...]) -> Transacted:
    commit = sent.commit
    if commit is None:
        producer = key_producer(asked.header("idempotency-key")) or f"rest-{uuid4().hex}"
        streams = tuple(output.stream for output in sent.outputs)
        acks: Sequence[Ack] = asked.desk.call(
            asked.caller, ask.CommitTransaction(stages=stages, streams=streams, producer=producer, sequence=0)
        )
        return Transacted(tuple(acks), any(ack.duplicate for ack in acks))
    if asked.header("idempotency-key"):
        raise InvalidInput("both an Idempotency-Key and a commit are given", hint="a commit's number says which it is")
    outcome: Outcome = asked.desk.call(
        asked.caller,
        ask.CommitGroup(
            commit.stream,
            group=commit.group,
            instance=commit.instance,
            epoch=commit.epoch,
            number=commit.number,
            done=commit.done,
            dead=commit.dead,
            stages=stages,
        ),
    )
    return Transacted(outcome.acks, outcome.duplicate, outcome.number)


GROUP_HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        list_groups, stream_groups, describe_group, delete_group, reset_group, replay, join_group, leave_group,
        renew_member, commit_group, abort_group, seek_group, poll_group, transaction,
    )
}  # fmt: skip
