"""Writing in bulk through a node: staged puts and loads, as Spark's tasks and driver do it."""

from __future__ import annotations

import os
import time
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.client.relayouts import RemoteRelayouts
from millpond.client.stream import RemoteStream
from millpond.errors import Backpressure, Fenced, InvalidInput, InvalidRecord, TransactionOver
from millpond.flight import FlightLink
from millpond.wire.bulk import LoadTicket
from millpond.wire.relayout import run
from millpond.wire.relayout_requests import CommitRelayout
from millpond.wire.requests import Append
from tests.client.conftest import Served
from tests.loads import write

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


@pytest.fixture
def stream(served: Served) -> RemoteStream:
    return served.connect().create_stream("s", SCHEMA, keys=["k"], streamlets=2)


def rows(start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": [f"k{n % 5}" for n in range(start, stop)], "n": list(range(start, stop))})


def numbers(stream: RemoteStream) -> list[int]:
    return sorted(stream.scan(columns=["n"]).column("n").to_pylist())


def stage(stream: RemoteStream, name: str, *batches: pa.RecordBatch) -> None:
    door = stream.bulk.door()
    with FlightLink(door.location, door.token) as link, link.put(Append(stream.name, stage=name)) as put:
        for batch in batches:
            put.write(batch)
        for _ in batches:
            assert put.next_ack(30).ranges == {}


def begin(stream: RemoteStream) -> LoadTicket:
    ticket = stream.bulk.begin_load("job")
    assert ticket is not None
    return ticket


def test_staged_puts_are_committed_as_one(stream: RemoteStream) -> None:
    stage(stream, "a", rows(0, 10), rows(10, 20))
    stage(stream, "b", rows(20, 30))
    stage(stream, "given up", rows(100, 110))
    assert numbers(stream) == []
    ack = stream.bulk.commit_staged(["a", "b"], producer="spark/q", sequence=0)
    assert sum(map(len, ack.ranges.values())) == 30
    assert stream.bulk.commit_staged(["a", "b"], producer="spark/q", sequence=0).duplicate
    assert numbers(stream) == list(range(30))
    with pytest.raises(TransactionOver):
        stream.bulk.commit_staged(["a"])


def test_a_staged_put_that_does_not_fit_is_refused(stream: RemoteStream) -> None:
    with pytest.raises(InvalidRecord):
        stage(stream, "a", pa.RecordBatch.from_pydict({"k": ["x"], "n": ["text"]}))
    door = stream.bulk.door()
    with FlightLink(door.location, door.token) as link, pytest.raises(InvalidInput, match="producer"):
        link.append(Append("s", producer="p", sequence=1, stage="a"), rows(0, 1))


def test_a_load_through_a_node(stream: RemoteStream) -> None:
    stream.append(rows(0, 5))
    ticket = begin(stream)
    stream.bulk.renew_load(ticket.load)
    report = pa.concat_tables([write(ticket, task, rows(5 + 5 * task, 10 + 5 * task)) for task in range(3)])
    done = stream.bulk.commit_load(ticket.load, report)
    assert (done.rows, done.objects) == (15, 3)
    assert stream.bulk.commit_load(ticket.load, report) == done
    assert numbers(stream) == list(range(20))
    assert sorted(n for batch in stream.read() for n in batch.column("n").to_pylist()) == list(range(20))


def test_a_long_report_comes_in_parts(stream: RemoteStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.client.bulk._PART_ROWS", 2)
    ticket = begin(stream)
    report = pa.concat_tables([write(ticket, task, rows(task, task + 1)) for task in range(7)])
    assert stream.bulk.commit_load(ticket.load, report).objects == 7
    assert numbers(stream) == list(range(7))


def test_a_load_that_was_given_up_is_told_so(stream: RemoteStream) -> None:
    ticket = begin(stream)
    with pytest.raises(Backpressure, match="another job"):
        stream.bulk.begin_load("somebody else")
    stream.bulk.abort_load(ticket.load)
    report = write(ticket, 0, rows(0, 5))
    with pytest.raises(Fenced):
        stream.bulk.commit_load(ticket.load, report)
    with pytest.raises(Fenced):
        stream.bulk.renew_load(ticket.load)
    assert numbers(stream) == []


def test_vacuum_through_a_node(stream: RemoteStream) -> None:
    ticket = begin(stream)
    (path,) = write(ticket, 0, rows(0, 5)).column("path").to_pylist()
    stream.bulk.abort_load(ticket.load)
    then = time.time() - 8 * 86_400
    os.utime(os.path.join(ticket.root, path), (then, then))
    assert stream.vacuum("9d").objects == 0
    assert stream.vacuum("7d", preview=True).objects == 1
    assert stream.vacuum("7d").objects == 1
    assert not os.path.exists(os.path.join(ticket.root, path))
    with pytest.raises(millpond.MillpondError, match="hour"):
        stream.vacuum("1s")


def test_indexes_are_rebuilt_through_a_node(served: Served, stream: RemoteStream) -> None:
    ticket, pond = begin(stream), served.connect()
    stream.bulk.commit_load(ticket.load, write(ticket, 0, rows(0, 5)))
    altered = pond.alter_stream(stream.name, indexes=["values:k", "bloom:n"])
    assert [spec.key for spec in altered.definition.indexes] == ["values(k)", "bloom(n)"]
    assert stream.rebuild_indexes().objects == 1
    assert stream.rebuild_indexes().objects == 0
    with pytest.raises(millpond.MillpondError, match="no index kind"):
        pond.alter_stream(stream.name, indexes=["nothing:n"])


def test_a_report_of_a_relayout_goes_in_pieces(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of many buckets does not fit into a request."""
    monkeypatch.setattr("millpond.client.bulk._PART_ROWS", 3)
    schema = pa.schema([("lat", pa.float64()), ("lon", pa.float64())])
    here = served.pond.create_stream("places", schema)
    here.append([{"lat": n * 7919 % 1000 / 10, "lon": n * 104729 % 1000 / 10} for n in range(1_000)])
    here.settle()
    served.pond.alter_stream("places", layout="kdtree:lat,lon,buckets=16")
    remote = served.connect()
    sent: list[CommitRelayout] = []
    ask = remote._connection.ask

    def noted(request: Any, kind: Any) -> Any:
        sent.extend([request] if isinstance(request, CommitRelayout) else [])
        return ask(request, kind)

    monkeypatch.setattr(remote._connection, "ask", noted)
    relayouts = RemoteRelayouts(remote._connection, "places", here.definition.id)
    report = run(relayouts, "places", "me", 0, here.relayouting.rewrite)
    assert (report.units, report.rows, report.objects_after) == (1, 1_000, 16)
    assert [(one.piece, one.pieces) for one in sent] == [(piece, 6) for piece in range(6)]
    assert here.count() == 1_000
