"""Dead letters: records that a group gave up on, kept in a stream beside theirs, `<stream>/dead`, with the reason.

A dead record is written in the same commit as the position behind it, so the group goes on and nothing is lost: the row
holds the record itself, as Arrow bytes for programs and as JSON for people, and where it came from.

`replay` appends dead records to their stream again, as new records: all groups of the stream see them. It is itself a
consumer group of the dead stream, called `replay`, that copies in transactions; so each dead record is sent back once,
and what has been is behind that group's position.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa

from millpond.consume.cursor import Cursor
from millpond.consume.group import Group
from millpond.consume.member import Cut
from millpond.consume.protocol import Commit, Done, Failed, GroupDesk, GroupSpec, Join, Replayed, Wanted
from millpond.consume.streams import ConsumedStream, Streams
from millpond.errors import InvalidValue, StreamNotFound
from millpond.log.engine import StreamAppend
from millpond.model.definition import Durability
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET, SYSTEM_COLUMNS, TIMESTAMP

DEAD_SCHEMA = pa.schema(
    [
        ("time", TIMESTAMP),
        ("group", pa.string()),
        ("streamlet", pa.int64()),
        ("offset", pa.int64()),
        ("ingest_time", TIMESTAMP),
        ("attempts", pa.int64()),
        ("reason", pa.string()),
        ("text", pa.string()),
        ("record", pa.binary()),
    ]
)
REPLAY_GROUP = "replay"
# A reason is for people: the first lines say it.
REASON_LENGTH_MAX = 4_000
_REPLAY_RECORDS = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Buried(NamedTuple):
    """Dead records, ready to be appended."""

    append: StreamAppend
    durability: Durability


def dead_name(stream: str) -> str:
    """Where a stream's dead letters are."""
    return f"{stream}/dead"


def bury(streams: Streams, group: Group, cuts: Sequence[Cut], dead: Sequence[Failed], now_micros: int) -> Buried:
    """The rows of the records that a commit gives up on, which must be among what it commits."""
    by_number = {cut.claim.number: cut for cut in cuts}
    rows = []
    for failed in dead:
        cut = by_number.get(failed.number)
        if cut is None or not cut.claim.start <= failed.offset < cut.stop:
            raise InvalidValue(
                f"offset {failed.offset} of delivery {failed.number} is given up on, but not committed",
                hint="commit what is given up on in the same commit",
            )
        cursor = Cursor(group.halves, group.generation, cut.claim.streamlet, failed.offset, end=failed.offset + 1)
        taken = cursor.take(1, 1, group.halves.heads)
        if taken is not None and taken.batch is not None:  # else it expired meanwhile
            rows.append(_row(group.key[1], failed, taken.batch, now_micros))
    stream = streams.stream(dead_name(group.stream))
    return Buried(stream.prepare(rows), stream.definition.durability)


def _row(group: str, failed: Failed, record: pa.RecordBatch, now_micros: int) -> dict[str, Any]:
    (found,) = record.to_pylist()
    names = [name for name in record.schema.names if name not in SYSTEM_COLUMNS]
    # A copy: Arrow pads what it writes of a slice with what lies beside it, and those are other records.
    own = record.select(names).take(pa.array([0]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, own.schema) as writer:
        writer.write_batch(own)
    return {
        "time": _EPOCH + timedelta(microseconds=now_micros),
        "group": group,
        "streamlet": found[STREAMLET],
        "offset": found[OFFSET],
        "ingest_time": found[INGEST_TIME],
        "attempts": failed.attempts,
        "reason": failed.reason[:REASON_LENGTH_MAX],
        "text": json.dumps({name: found[name] for name in names}, default=str, ensure_ascii=False),
        "record": sink.getvalue().to_pybytes(),
    }


def replay(desk: GroupDesk, stream: ConsumedStream, group: str | None, limit: int | None) -> Replayed:
    """See `GroupDesk`."""
    dead = dead_name(stream.name)
    if limit is not None and limit < 0:
        raise InvalidValue(f"a limit of {limit}", hint="0 or more records; leave it out for all")
    try:
        member = desk.join(Join(GroupSpec(dead, REPLAY_GROUP), uuid4().hex, durability="disk"))
    except StreamNotFound:
        return Replayed(stream.name, 0, 0)  # nothing was ever given up on
    sent = number = 0
    try:
        # One by one where some are left out: what is passed over stays for another time.
        at_once = _REPLAY_RECORDS if group is None else 1
        while limit is None or sent < limit:
            found = desk.poll(member, Wanted(max_records=min(at_once, (limit or sent + at_once) - sent)))
            if not found:
                break
            for receipt, batch in found:
                rows = [row for row in batch.to_pylist() if group is None or row.get("group") == group]
                if rows:
                    number += 1
                    outputs = desk.outputs()
                    for row in rows:
                        outputs.append(stream.name, _opened(dead, row))
                    desk.commit(member, Commit(number, (Done(receipt.number),)), outputs)
                    sent += len(rows)
    finally:
        desk.leave(member)
    return Replayed(stream.name, sent, desk.group(dead, REPLAY_GROUP).lag_total)


def _opened(dead: str, letter: dict[str, Any]) -> pa.Table:
    """The record in a letter. Anybody with the right may have written to the stream: it is untrusted."""
    try:
        found = pa.ipc.open_stream(letter["record"]).read_all()
        found.validate(full=True)
    except (KeyError, TypeError, pa.ArrowException) as error:
        raise InvalidValue(
            f"{dead} holds something that is no dead letter: {type(error).__name__}: {error}",
            hint="look at it with scan; a stream of that name is for letters only",
        ) from error
    return found
