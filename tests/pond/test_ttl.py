"""Records expire: no read gives them from then on, whatever is left of them; what is dropped is on record (C7, C12)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidValue, OffsetGone
from millpond.testing.manual_clock import ManualClock
from tests.pond.conftest import METERS, Ponds, rows, temps

READS: dict[str, Callable[[millpond.Stream], list[float]]] = {
    "scan": temps,
    "scan_batches": lambda s: sorted(t for b in s.scan_batches(columns=["temp"]) for t in b["temp"].to_pylist()),
    "where": lambda s: sorted(s.scan("temp >= 0", columns=["temp"])["temp"].to_pylist()),
    "read": lambda s: sorted(t for batch in s.read() for t in batch["temp"].to_pylist()),
    "since": lambda s: sorted(t for b in s.read("2020-01-01T00:00:00Z") for t in b["temp"].to_pylist()),
    "count": lambda s: list(map(float, range(s.count()))),
    "count_where": lambda s: list(map(float, range(s.count("temp >= 0")))),
    "segments": lambda s: sorted(
        t for each in s.segments() for b in s.read_segment(each.id) for t in b["temp"].to_pylist()
    ),
}


def given(stream: millpond.Stream, name: str) -> list[float] | int:
    found = READS[name](stream)
    return len(found) if name.startswith("count") else found


def served(pond: millpond.Pond) -> millpond.Pond:
    """The pond itself, also of a connected one."""
    found: millpond.Pond = getattr(pond, "served", pond)
    return found


def drop(pond: millpond.Pond, name: str = "s") -> bool:
    return served(pond).stream(name).expiry.drop()


def audited(pond: millpond.Pond, action: str) -> list[dict[str, str]]:
    found = [row for row in pond.audit().to_pylist() if row["action"] == action]
    return [dict(part.split("=", 1) for part in row["detail"].split()) for row in found]


@pytest.mark.parametrize("settle", [millpond.Settle(), None], ids=["archived", "never archived"])
def test_what_has_expired_is_given_by_no_read(ponds: Ponds, settle: millpond.Settle | None) -> None:
    clock = ManualClock()
    with ponds(clock=clock) as pond:
        stream = pond.create_stream("s", METERS, keys=["vid", "city"], streamlets=2, settle=settle, ttl="1h")
        assert stream.info().ttl_seconds == 3600
        stream.append(rows(0, 10))
        clock.advance("30m")
        stream.append(rows(10, 20))
        if settle is not None:
            stream.settle()  # one object with both
            clock.advance("1m")
            stream.append(rows(20, 30))
        else:
            clock.advance("1m")
            stream.append(rows(20, 30))
        clock.advance("29m")
        for name in READS:  # to the microsecond: nothing is older than an hour yet
            assert given(stream, name) == (30 if name.startswith("count") else list(range(30))), name
        clock.advance("1us")
        for name in READS:
            assert given(stream, name) == (20 if name.startswith("count") else list(range(10, 30))), name
        assert stream.get("v3").num_rows == 0
        assert stream.get("v13").num_rows == 1
        assert sorted(stream.get(city="Nice", limit=100)["temp"].to_pylist()) == [12.0, 15.0, 18.0, 21.0, 24.0, 27.0]
        clock.advance("30m")
        for name in READS:
            assert given(stream, name) == (10 if name.startswith("count") else list(range(20, 30))), name
        clock.advance("1h")
        for name in READS:
            assert given(stream, name) == (0 if name.startswith("count") else []), name
        status = stream.status()
        assert status.rows_live + status.rows_settled == 30, "held until they are dropped"
        assert drop(pond)
        status = stream.status()
        assert (status.rows_live, status.rows_settled, status.objects, status.bytes_live) == (0, 0, 0, 0)
        assert (status.dropping.rows, status.dropping.drops) == (30, 1)
        assert not drop(pond)
        stream.append(rows(30, 31))
        assert temps(stream) == [30.0]
        assert sum(stream.status().head.values()) == 31, "offsets go on"


def test_a_ttl_is_changed_at_any_time_and_kept(ponds: Ponds) -> None:
    clock = ManualClock()
    with ponds(clock=clock) as pond:
        stream = pond.create_stream("s", METERS)
        stream.append(rows(0, 5))
        stream.settle()
        clock.advance("2h")
        stream.append(rows(5, 10))
        assert temps(stream) == list(range(10))
        altered = pond.alter_stream("s", ttl="1h")
        assert altered.info().ttl_seconds == 3600
        assert temps(stream) == list(range(5, 10)), "at once"
        pond.alter_stream("s", ttl=None)
        assert temps(stream) == list(range(10)), "nothing was dropped yet"
        pond.alter_stream("s", ttl="90m")
        pond.alter_stream("s", pa.schema([*METERS, pa.field("note", pa.string())]))
        assert stream.info().ttl_seconds == 5400, "columns alone leave it as it is"
        for wrong in ("0s", "soon", "-1h"):
            with pytest.raises(InvalidValue):
                pond.alter_stream("s", ttl=wrong)
    with ponds(clock=clock) as pond:
        assert pond.stream("s").info().ttl_seconds == 5400
        assert temps(pond.stream("s")) == list(range(5, 10))


def test_what_is_dropped_is_on_record_and_stays_gone(ponds: Ponds) -> None:
    """I6"""
    clock = ManualClock()
    with ponds(clock=clock) as pond:
        stream = pond.create_stream("s", METERS, ttl="1h")
        stream.append(rows(0, 5))
        stream.settle()
        stream.append(rows(5, 8))
        stream.settle()
        clock.advance("50m")
        stream.append(rows(8, 10))
        stream.settle()
        clock.advance("11m")
        version = stream.status().version
        assert drop(pond)
        status = stream.status()
        assert (status.objects, status.rows_settled, status.version) == (1, 2, version + 1)
        (record,) = audited(pond, "expire")
        assert (record["rows_settled"], record["rows_live"], record["objects"]) == ("8", "0", "2")
        assert int(record["bytes_settled"]) > 0
        pond.alter_stream("s", ttl=None)
        assert temps(stream) == [8.0, 9.0], "what was dropped does not come back"
    with ponds(clock=clock) as pond:
        assert temps(pond.stream("s")) == [8.0, 9.0]
        assert pond.verify().ok


def test_live_records_that_expire_are_never_written(ponds: Ponds) -> None:
    clock = ManualClock()
    with ponds(clock=clock, segment_bytes=64_000) as pond:
        stream = pond.create_stream("s", METERS, ttl="1h")
        for start in range(0, 9_000, 3_000):
            stream.append(pa.RecordBatch.from_pylist(rows(start, start + 3_000), schema=METERS))
            clock.advance("40m")
        assert drop(pond)
        status = stream.status()
        assert (status.boundary, status.rows_live, status.objects) == ({0: 6_000}, 3_000, 0)
        (record,) = audited(pond, "expire")
        assert (record["rows_live"], record["offsets"]) == ("6000", "0:0-6000")
        assert temps(stream) == list(range(6_000, 9_000))
        report = stream.settle()
        assert report is not None
        assert report.rows == 3_000
    with ponds(clock=clock) as pond:
        stream = pond.stream("s")
        assert temps(stream) == list(range(6_000, 9_000))
        assert pond.verify().ok


def test_a_follower_passes_over_what_expired_before_it_came_to_it(ponds: Ponds) -> None:
    clock = ManualClock()
    with ponds(clock=clock) as pond:
        stream = pond.create_stream("s", METERS, settle=None, ttl="1h")
        stream.append(rows(0, 5))
        reader = served(pond).stream("s").read(follow=True, batch_rows=2)
        assert next(reader)["temp"].to_pylist() == [0.0, 1.0]
        served(pond).log.seal(served(pond).stream("s").definition.id)  # whole segments go
        clock.advance("2h")
        stream.append(rows(5, 8))
        late = served(pond).stream("s").read({0: 4}, follow=True)
        assert drop(pond)
        assert late.position == {0: 4}
        assert next(late)["temp"].to_pylist() == [5.0, 6.0, 7.0]
        late.close()
        reader.close()
        with pytest.raises(OffsetGone, match="is not kept any more, 5 is the first"):
            next(stream.read(4))


@pytest.mark.embedded
@pytest.mark.parametrize("settle", [millpond.Settle(), None], ids=["archived", "never archived"])
def test_a_read_whose_records_expire_on_the_way_is_told(ponds: Ponds, settle: millpond.Settle | None) -> None:
    """One query has one cutoff: it gives all that had not expired when it began, or says that it cannot."""
    clock = ManualClock()
    with ponds(clock=clock) as pond:
        stream = pond.create_stream("s", METERS, settle=settle, ttl="1h")
        stream.append(rows(0, 5))
        scanning = stream.scan_batches()
        clock.advance("2h")
        drop(pond)
        with pytest.raises(
            OffsetGone, match=r"offsets \[0, 5\) of streamlet 0 of s have expired since this read began"
        ):
            list(scanning)
        assert stream.scan().num_rows == 0


@pytest.mark.embedded
def test_an_older_snapshot_of_what_had_settled_is_read_to_its_end(ponds: Ponds) -> None:
    clock = ManualClock()
    with ponds(clock=clock) as pond:
        stream = pond.create_stream("s", METERS, ttl="1h")
        stream.append(rows(0, 5))
        stream.settle()
        scanning = stream.scan_batches()
        clock.advance("2h")
        assert drop(pond)
        assert [t for batch in scanning for t in batch["temp"].to_pylist()] == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert stream.scan().num_rows == 0


@pytest.mark.embedded
def test_a_merge_does_not_bring_back_what_was_dropped(ponds: Ponds) -> None:
    clock = ManualClock()
    with ponds(clock=clock) as pond:
        stream = pond.create_stream("s", METERS, ttl="1h")
        for n in range(8):
            stream.append(rows(n, n + 1))
            stream.settle()
            clock.advance("10m")
        drop(pond)
        before = stream.status().objects
        stream.settling.compact()
        assert (before, stream.status().objects) == (6, 1)
        assert temps(stream) == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
        clock.advance("10m")
        assert temps(stream) == [3.0, 4.0, 5.0, 6.0, 7.0]
        assert not drop(pond), "the merged object holds others still"
        clock.advance("1h")
        assert drop(pond)
        assert stream.status().objects == 0


def three_segments(pond: millpond.Pond) -> millpond.Stream:
    stream = pond.create_stream("s", METERS, settle=None)
    for start in range(0, 9_000, 3_000):
        stream.append(pa.RecordBatch.from_pylist(rows(start, start + 3_000), schema=METERS))
    return stream


def process(pond: millpond.Pond, group: str, records: int) -> None:
    with pond.consumer("s", group=group) as consumer:
        while records:
            records -= sum(batch.num_rows for batch in consumer.poll(max_records=records, timeout="0s"))
            consumer.commit()


@pytest.mark.embedded
def test_a_stream_without_an_archive_drops_what_every_group_has_processed(
    ponds: Ponds,
) -> None:
    with ponds(segment_bytes=64_000) as pond:
        stream = three_segments(pond)
        assert not drop(pond), "without groups and without a ttl records are kept"
        process(pond, "a", 6_500)
        process(pond, "b", 3_500)
        assert drop(pond)
        assert stream.count() == 6_000
        assert not drop(pond)
        (record,) = audited(pond, "processed")
        assert record["offsets"] == "0:0-3000"
    with ponds() as pond:
        assert temps(pond.stream("s")) == list(range(3_000, 9_000))
        assert next(pond.stream("s").read())["_offset"][0].as_py() == 3_000


@pytest.mark.embedded
def test_what_no_group_was_given_is_not_processed(ponds: Ponds) -> None:
    with ponds(segment_bytes=64_000) as pond:
        stream = three_segments(pond)
        with pond.consumer("s", group="late", start="latest"):
            assert not drop(pond), "who begins at the end says nothing about what lies before"
        with pond.consumer("s", group="hasty") as consumer:
            consumer.seek("latest")
        assert not drop(pond), "nor does who goes there"
        assert stream.count() == 9_000
    with ponds(segment_bytes=64_000) as pond:
        assert not drop(pond), "nor after a restart"
        process(pond, "all", 6_000)
        assert drop(pond), "what one has processed and the others never wanted goes"
        assert pond.stream("s").count() == 3_000
        pond.group_desk().reset("s", "all", {0: 6_000}, preview=False)
        process(pond, "all", 3_000)
        pond.group_desk().reset("s", "all", {0: 8_000}, preview=False)
        process(pond, "all", 1_000)
        pond.log.seal(pond.stream("s").definition.id)
        pond.log.tend()
        assert drop(pond), "a group that went back to what it had was given all of it"
        assert pond.stream("s").count() == 0


@pytest.mark.embedded
def test_positions_of_an_older_generation_say_nothing_about_this_one(ponds: Ponds) -> None:
    with ponds(segment_bytes=64_000) as pond:
        stream = three_segments(pond)
        process(pond, "g", 9_000)
        stream.truncate()
        stream.append(pa.RecordBatch.from_pylist(rows(0, 6_000), schema=METERS))
        pond.log.seal(stream.definition.id)
        pond.log.tend()
        assert not drop(pond), "the group has not come to the new generation"
        assert stream.count() == 6_000
        process(pond, "g", 6_000)
        assert drop(pond)
        assert stream.count() == 0


@pytest.mark.embedded
def test_the_background_drops_by_itself(ponds: Ponds) -> None:
    from tests.pond.test_settling import until

    clock = ManualClock()
    with ponds(clock=clock, background=True) as pond:
        stream = pond.create_stream("s", METERS, ttl="1h", settle=millpond.Settle(every="10h"))
        stream.append(rows(0, 5))
        clock.advance("2h")
        until(lambda: stream.status().dropping.rows == 5)
        assert stream.status().rows_live == 0


@pytest.mark.embedded
@pytest.mark.parametrize("settle", [millpond.Settle(), None], ids=["archived", "never archived"])
def test_a_group_whose_position_has_expired_moves_on_and_says_how_much_it_missed(
    ponds: Ponds, settle: millpond.Settle | None
) -> None:
    """C12: whether what it has not read was dropped by then or not, live or settled."""
    clock = ManualClock()
    with ponds(clock=clock) as pond:
        stream = pond.create_stream("s", METERS, settle=settle, ttl="1h")
        consumer = pond.consumer("s", group="g", lease="10h")
        missed = 0
        for turn in range(3):
            stream.append(rows(turn * 20, turn * 20 + 10))
            if settle is not None and turn == 1:
                stream.settle()
            pond.log.seal(stream.definition.id)
            clock.advance("61m")
            if turn != 1:
                drop(pond)
            stream.append(rows(turn * 20 + 10, turn * 20 + 20))
            missed += 10
            found = [t for batch in consumer.poll(timeout="10s") for t in batch["temp"].to_pylist()]
            consumer.commit()
            assert found == list(range(turn * 20 + 10, turn * 20 + 20))
            assert consumer.missed == missed
        assert pond.group("s", "g").status().missed == missed
        consumer.close()
