"""Writing in bulk: staged appends and loads, through an embedded pond."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import millpond
from millpond.archive.load import ROW_BITS, Load
from millpond.client.bulk_tasks import load_rows
from millpond.errors import (
    Backpressure,
    Fenced,
    InvalidInput,
    InvalidRecord,
    InvalidValue,
    SettleFailed,
    TransactionOver,
)
from millpond.model.units import Seconds
from millpond.pond.loading import LEASE_SECONDS
from millpond.pond.staging import FILE_BYTES
from millpond.testing.manual_clock import ManualClock
from millpond.wire.bulk import LoadTicket
from tests.loads import write

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pond(pond_dir: Path, clock: ManualClock) -> Iterator[millpond.Pond]:
    with millpond.open(str(pond_dir), background=False, clock=clock) as pond:
        yield pond


@pytest.fixture
def stream(pond: millpond.Pond) -> millpond.Stream:
    return pond.create_stream("s", SCHEMA, keys=["k"], streamlets=2)


def rows(start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": [f"k{n % 5}" for n in range(start, stop)], "n": list(range(start, stop))})


def numbers(stream: millpond.Stream) -> list[int]:
    return sorted(stream.scan(columns=["n"]).column("n").to_pylist())


def begin(stream: millpond.Stream, mark: str = "", number: int = 0) -> LoadTicket:
    ticket = stream.bulk.begin_load(mark or "job", mark=mark, number=number)
    assert ticket is not None
    return ticket


def load(stream: millpond.Stream, start: int, stop: int) -> Load:
    ticket = begin(stream)
    stream.bulk.commit_load(ticket.load, write(ticket, 0, rows(start, stop)))
    return ticket.load


# Staging.


def test_what_is_staged_is_not_there_until_it_is_committed(stream: millpond.Stream, pond: millpond.Pond) -> None:
    stream.bulk.stage("a", rows(0, 10))
    stream.bulk.stage("b", rows(10, 20))
    stream.bulk.stage("b", rows(20, 25))
    stream.bulk.stage("given up", rows(100, 200))
    assert numbers(stream) == []
    ack = stream.bulk.commit_staged(["a", "b"])
    assert sum(map(len, ack.ranges.values())) == 25
    assert numbers(stream) == list(range(25))
    assert pond.staging.bytes > 0
    pond.staging.forget(["given up"])
    assert pond.staging.bytes == 0


def test_a_commit_that_is_made_again_appends_nothing(stream: millpond.Stream, pond_dir: Path) -> None:
    stream.bulk.stage("a", rows(0, 10))
    first = stream.bulk.commit_staged(["a"], producer="spark/q", sequence=7)
    assert not first.duplicate
    again = stream.bulk.commit_staged(["a"], producer="spark/q", sequence=7)
    assert again.duplicate
    stream.bulk.stage("anew", rows(0, 10))
    assert stream.bulk.commit_staged(["anew"], producer="spark/q", sequence=7).duplicate
    assert numbers(stream) == list(range(10))


def test_stages_of_which_the_stream_keeps_nothing_do_not_matter(pond: millpond.Pond) -> None:
    stream = pond.create_stream("sifted", SCHEMA, keep="n >= 5")
    stream.bulk.stage("none", rows(0, 3))
    stream.bulk.stage("some", rows(3, 8))
    ack = stream.bulk.commit_staged(["none", "some"], producer="spark/q", sequence=1)
    assert sum(map(len, ack.ranges.values())) == 3
    assert stream.bulk.commit_staged(["none", "some"], producer="spark/q", sequence=1).duplicate
    stream.bulk.stage("empty", rows(0, 3))
    for _ in range(2):  # the answer may be lost, and is then asked for again
        assert stream.bulk.commit_staged(["empty"], producer="spark/q", sequence=2).ranges == {}
    stream.bulk.stage("more", rows(8, 9))
    assert not stream.bulk.commit_staged(["more"], producer="spark/q", sequence=3).duplicate
    assert numbers(stream) == [5, 6, 7, 8]


def test_records_that_do_not_fit_are_refused_when_they_are_staged(stream: millpond.Stream) -> None:
    with pytest.raises(InvalidRecord, match="'n'"):
        stream.bulk.stage("a", pa.RecordBatch.from_pydict({"k": ["x"], "n": ["no number"]}))
    with pytest.raises(TransactionOver):
        stream.bulk.commit_staged(["a"])


def test_a_stage_that_nobody_touches_goes_after_its_time(stream: millpond.Stream, clock: ManualClock) -> None:
    stream.bulk.stage("a", rows(0, 10))
    clock.advance(Seconds(3_601))
    with pytest.raises(TransactionOver, match="'a'"):
        stream.bulk.commit_staged(["a"])
    assert numbers(stream) == []


def test_staging_is_bounded(pond_dir: Path) -> None:
    with millpond.open(str(pond_dir), background=False, staged_bytes_max=2_000) as pond:
        stream = pond.create_stream("s", SCHEMA)
        stream.bulk.stage("a", rows(0, 60))
        with pytest.raises(Backpressure, match="staged"):
            stream.bulk.stage("b", rows(0, 100))
        stream.bulk.commit_staged(["a"])
        stream.bulk.stage("b", rows(60, 100))
        stream.bulk.commit_staged(["b"])
        assert numbers(stream) == list(range(100))


def test_large_stages_lie_in_files_that_go_with_them(stream: millpond.Stream, pond_dir: Path) -> None:
    count = FILE_BYTES // 4
    stream.bulk.stage("large", rows(0, count))
    staged = list((pond_dir / "spill").glob("staged-*"))
    assert staged
    stream.bulk.commit_staged(["large"])
    assert stream.count() == count
    assert not any(path.exists() for path in staged)
    assert numbers(stream) == list(range(count))


def test_stages_of_another_stream_are_not_committed_here(stream: millpond.Stream, pond: millpond.Pond) -> None:
    other = pond.create_stream("other", SCHEMA)
    other.bulk.stage("a", rows(0, 3))
    with pytest.raises(InvalidValue, match="another stream"):
        stream.bulk.commit_staged(["a"])
    assert numbers(other) == []


# Loads.


def test_loaded_records_are_in_every_way_of_reading(stream: millpond.Stream) -> None:
    stream.append(rows(0, 10))
    stream.settle()
    stream.append(rows(10, 20))
    load(stream, 20, 30)
    assert numbers(stream) == list(range(30))
    assert stream.count() == 30
    assert stream.count("n >= 25") == 5
    assert sorted(n for batch in stream.read() for n in batch.column("n").to_pylist()) == list(range(30))
    status = stream.status()
    assert (status.rows_live, status.rows_settled) == (10, 20)
    assert status.head[2] == status.boundary[2] == 10
    assert sum(each.rows or 0 for each in stream.segments()) == 30
    assert stream.explain().rows_live == 10


def test_a_key_is_found_in_the_log_and_in_loads_newest_first(stream: millpond.Stream, clock: ManualClock) -> None:
    for step in (lambda: stream.append(rows(0, 10)), lambda: load(stream, 10, 20), lambda: stream.append(rows(20, 30))):
        step()
        clock.advance(Seconds(1))
    assert stream.get("k1", limit=100).column("n").to_pylist() == [26, 21, 16, 11, 6, 1]
    assert stream.get("k1", limit=3).column("n").to_pylist() == [26, 21, 16]


def test_a_position_covers_loads(stream: millpond.Stream) -> None:
    stream.append(rows(0, 4))
    load(stream, 4, 8)
    reader = stream.read()
    first = [n for batch in reader for n in batch.column("n").to_pylist()]
    assert sorted(first) == list(range(8))
    load(stream, 8, 12)
    stream.append(rows(12, 14))
    rest = [n for batch in stream.read(reader.position) for n in batch.column("n").to_pylist()]
    assert sorted(rest) == list(range(8, 14))


def test_a_follower_is_given_a_load(stream: millpond.Stream) -> None:
    stream.append(rows(0, 2))
    seen: list[int] = []
    caught_up, done = threading.Event(), threading.Event()

    def follow() -> None:
        with stream.read(follow=True) as reader:
            for batch in reader:
                seen.extend(batch.column("n").to_pylist())
                caught_up.set()
                if len(seen) == 7:
                    break
        done.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert caught_up.wait(20)
    load(stream, 2, 7)
    assert done.wait(20)
    thread.join()
    assert sorted(seen) == list(range(7))


def test_everything_is_there_after_a_reopen(pond_dir: Path) -> None:
    with millpond.open(str(pond_dir), background=False) as pond:
        stream = pond.create_stream("s", SCHEMA)
        stream.append(rows(0, 5))
        load(stream, 5, 10)
        stream.settle()
        load(stream, 10, 12)
        stream.append(rows(12, 15))
    with millpond.open(str(pond_dir), background=False) as pond:
        stream = pond.stream("s")
        assert numbers(stream) == list(range(15))
        stream.append(rows(15, 16))
        stream.settle()
        load(stream, 16, 20)
        assert numbers(stream) == list(range(20))
        assert pond.verify().findings == ()


def test_one_load_at_a_time(stream: millpond.Stream) -> None:
    first = begin(stream)
    with pytest.raises(Backpressure, match="another job") as refused:
        stream.bulk.begin_load("other")
    assert 0 < refused.value.retry_after_seconds <= LEASE_SECONDS
    stream.bulk.abort_load(first.load)
    load(stream, 0, 5)
    assert numbers(stream) == list(range(5))


def test_a_driver_that_was_away_for_too_long_is_fenced(stream: millpond.Stream, clock: ManualClock) -> None:
    zombie = begin(stream)
    report = write(zombie, 0, rows(100, 200))
    clock.advance(Seconds(LEASE_SECONDS / 2))
    stream.bulk.renew_load(zombie.load)
    clock.advance(Seconds(LEASE_SECONDS + 1))
    load(stream, 0, 5)
    with pytest.raises(Fenced, match="given up"):
        stream.bulk.commit_load(zombie.load, report)
    with pytest.raises(Fenced):
        stream.bulk.renew_load(zombie.load)
    assert numbers(stream) == list(range(5))


def test_who_starts_again_takes_over_at_once(stream: millpond.Stream) -> None:
    killed = begin(stream, "query", 3)
    again = begin(stream, "query", 3)
    with pytest.raises(Fenced):
        stream.bulk.commit_load(killed.load, write(killed, 0, rows(0, 5)))
    stream.bulk.commit_load(again.load, write(again, 0, rows(0, 5)))
    assert stream.bulk.begin_load("query", mark="query", number=3) is None
    assert numbers(stream) == list(range(5))


def test_a_lost_answer_is_given_again_also_after_a_restart(pond_dir: Path) -> None:
    with millpond.open(str(pond_dir), background=False) as pond:
        stream = pond.create_stream("s", SCHEMA)
        ticket = begin(stream)
        report = write(ticket, 0, rows(0, 5))
        first = stream.bulk.commit_load(ticket.load, report)
        assert stream.bulk.commit_load(ticket.load, report) == first
        left = begin(stream)
        unfinished = write(left, 0, rows(5, 9))
    with millpond.open(str(pond_dir), background=False) as pond:
        stream = pond.stream("s")
        assert stream.bulk.commit_load(ticket.load, report) == first
        with pytest.raises(Fenced):
            stream.bulk.commit_load(left.load, unfinished)
        assert numbers(stream) == list(range(5))


def test_parts_of_a_report_outlast_a_disk_that_fails_for_a_moment(
    stream: millpond.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = begin(stream)
    first, last = (write(ticket, task, rows(task * 5, task * 5 + 5)) for task in range(2))
    loading, load = stream.bulk.loading, ticket.load
    assert loading.commit(load.id, load.version, first, 0, 2) is None
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise SettleFailed("the disk failed", hint="try again")

        broken.setattr(stream.archive, "commit_load", fail)
        with pytest.raises(SettleFailed):
            loading.commit(load.id, load.version, last, 1, 2)
    done = loading.commit(load.id, load.version, last, 1, 2)
    assert done is not None
    assert done.rows == 10
    assert numbers(stream) == list(range(10))


def test_a_report_that_is_refused_is_forgotten(stream: millpond.Stream) -> None:
    ticket = begin(stream)
    good, other = (write(ticket, task, rows(task * 5, task * 5 + 5)) for task in range(2))
    loading, load = stream.bulk.loading, ticket.load
    assert loading.commit(load.id, load.version, good, 0, 2) is None
    with pytest.raises(InvalidInput, match="twice"):
        loading.commit(load.id, load.version, good, 1, 2)
    assert loading.commit(load.id, load.version, other, 1, 2) is None, "part 0 is to come again"
    assert loading.commit(load.id, load.version, good, 0, 2) is not None
    assert numbers(stream) == list(range(10))


def test_a_stream_that_is_not_archived_cannot_be_loaded(pond: millpond.Pond) -> None:
    stream = pond.create_stream("live", SCHEMA, settle=None)
    with pytest.raises(InvalidValue, match="not archived"):
        stream.bulk.begin_load("other")


def test_a_stream_that_sifts_sifts_loads_too(pond: millpond.Pond) -> None:
    stream = pond.create_stream("sifted", SCHEMA, keep="n >= 3", only=["n"])
    ticket = begin(stream)
    count, report = load_rows(msgspec.json.encode(ticket), 0, ROW_BITS, [rows(0, 5)])
    assert count == 2
    stream.bulk.commit_load(ticket.load, pa.ipc.open_stream(report).read_all())
    assert stream.scan().to_pylist() == [{"n": 3}, {"n": 4}]


def test_a_truncated_stream_is_loaded_anew_and_late_loads_are_refused(stream: millpond.Stream) -> None:
    load(stream, 0, 5)
    late = begin(stream)
    report = write(late, 0, rows(5, 10))
    stream.truncate()
    with pytest.raises(millpond.MillpondError, match="truncated"):
        stream.bulk.commit_load(late.load, report)
    stream.bulk.abort_load(late.load)
    assert numbers(stream) == []
    load(stream, 10, 12)
    assert numbers(stream) == [10, 11]
    assert stream.snapshot().heads[2] == 2


def test_settling_goes_on_while_a_load_is_under_way(stream: millpond.Stream) -> None:
    ticket = begin(stream)
    report = write(ticket, 0, rows(0, 5))
    stream.append(rows(5, 10))
    stream.settle()
    stream.bulk.commit_load(ticket.load, report)
    stream.append(rows(10, 12))
    stream.settle()
    assert numbers(stream) == list(range(12))
    assert stream.status().rows_live == 0
