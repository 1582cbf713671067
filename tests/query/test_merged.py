"""Reading all streamlets in the order of time: nothing lost, nothing twice, in order within the bound, resumable. C6"""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import InvalidValue
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET
from millpond.query import merged as merging
from millpond.query import read, read_merged
from tests.query.small_pond import EPOCH, Row, SmallPond, define, reading

BOUND_SECONDS = 5
BOUND = timedelta(seconds=BOUND_SECONDS)
STREAMLETS = 3


def small_pond(root: Path) -> SmallPond:
    return SmallPond(root, define(STREAMLETS, ()))


def merged(pond: SmallPond, start: Any = "earliest", **options: Any) -> Any:
    return read_merged(pond.halves, start, within="5s", clock=pond.clock, **options)


def place(row: Row) -> tuple[int, int]:
    return row[STREAMLET], row[OFFSET]


def time_of(row: Row) -> datetime:
    found: datetime = row["date"] or row[INGEST_TIME]
    return found


def late(row: Row, before: list[Row], everything: list[Row]) -> bool:
    """Whether a record may come behind later ones: against one of them in the time of ingestion, or against the
    records before it in its own streamlet."""
    own = [time_of(each) for each in everything if each[STREAMLET] == row[STREAMLET] and each[OFFSET] < row[OFFSET]]
    return any(
        row[INGEST_TIME] >= each[INGEST_TIME] + BOUND or max(own, default=EPOCH) >= time_of(each) + BOUND
        for each in before
        if time_of(each) > time_of(row)
    )


def assert_ordered(rows: list[Row]) -> None:
    for at, row in enumerate(rows):
        if any(time_of(each) > time_of(row) for each in rows[:at]):
            assert late(row, rows[:at], rows), row


# A record: its streamlet, how long after the last one it came, and how late it is; None: without a time of its own.
RECORDS = st.lists(
    st.tuples(
        st.integers(0, STREAMLETS - 1),
        st.sampled_from([0, 0.5, 1, 2, 4, 20]),
        st.one_of(st.none(), st.sampled_from([0, 0, 1, 3, 4.5, 8, 60])),
    ),
    max_size=40,
)


def fill(pond: SmallPond, records: list[tuple[int, float, float | None]], settled: int) -> None:
    for number, (streamlet, after, lateness) in enumerate(records):
        pond.clock.advance(f"{after}s")
        now = EPOCH + timedelta(microseconds=pond.clock.now_micros())
        date = None if lateness is None else now - timedelta(seconds=lateness)
        pond.append(reading(number) | {"date": date}, streamlet=streamlet)
        if number == settled:
            pond.settle()


@settings(max_examples=120, deadline=None)
@given(records=RECORDS, settled=st.integers(-1, 40), batch_rows=st.integers(1, 7), stop=st.integers(0, 40))
def test_every_record_once_in_order_within_the_bound_and_from_any_place_on(
    records: list[tuple[int, float, float | None]], settled: int, batch_rows: int, stop: int
) -> None:
    with TemporaryDirectory() as directory:
        pond = small_pond(Path(directory))
        fill(pond, records, settled)
        whole = [row for batch in merged(pond, batch_rows=batch_rows) for row in batch.to_pylist()]
        assert Counter(map(place, whole)) == Counter(map(place, pond.rows))
        assert_ordered(whole)

        handed: list[Row] = []
        reader = merged(pond, batch_rows=batch_rows)
        for batch in reader:
            handed += batch.to_pylist()
            if len(handed) >= stop:
                break
        position = reader.position
        rest = [row for batch in merged(pond, position) for row in batch.to_pylist()]
        out = set(map(place, handed))
        again = set(map(place, rest)) & out
        assert set(map(place, rest)) | out == set(map(place, pond.rows))
        assert len(set(map(place, rest))) == len(rest)
        # Again come only those that overtook a record of their own streamlet which was held back.
        held = set(map(place, pond.rows)) - out
        for streamlet, offset in again:
            assert any(s == streamlet and o < offset for s, o in held)


@settings(max_examples=60, deadline=None)
@given(
    records=RECORDS,
    steps=st.lists(st.sampled_from(["poll", "poll", "rest", "wait"]), max_size=60),
    seed=st.integers(0, 1_000),
)
def test_a_follower_gives_every_record_once_in_order_whenever_it_rests(
    records: list[tuple[int, float, float | None]], steps: list[str], seed: int
) -> None:
    with TemporaryDirectory() as directory:
        pond = small_pond(Path(directory))
        reader = merged(pond, follow=True, batch_rows=3)
        chance = random.Random(seed)
        rows: list[Row] = []
        left = list(records)

        def poll() -> None:
            batch = reader.poll()
            if batch is not None:
                rows.extend(batch.to_pylist())

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("millpond.query.reader._LOOK_SECONDS", 0)
            for step in steps:
                if left and chance.random() < 0.6:
                    fill(pond, [left.pop(0)], 0 if chance.random() < 0.1 else -1)
                if step == "rest":
                    reader.rest()
                elif step == "wait":
                    pond.clock.advance("3s")
                else:
                    poll()
            fill(pond, left, -1)
            pond.clock.advance("1h")
            while len(rows) < len(pond.rows):
                poll()
        assert Counter(map(place, rows)) == Counter(map(place, pond.rows))
        assert_ordered(rows)
        assert reader.position == pond.halves.heads()


def test_a_record_waits_for_those_before_it_and_no_longer_than_the_bound(tmp_path: Path) -> None:
    pond = SmallPond(tmp_path, define(2, ()))
    reader = merged(pond, follow=True)

    def arrived(streamlet: int, seconds: float) -> None:
        pond.append(reading(0) | {"n": int(seconds), "date": EPOCH + timedelta(seconds=seconds)}, streamlet=streamlet)

    def polled() -> list[int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("millpond.query.reader._LOOK_SECONDS", 0)
            batch = reader.poll()
            return [] if batch is None else batch.column("n").to_pylist()

    arrived(0, 100)
    arrived(0, 103)
    assert polled() == []
    arrived(1, 101)
    assert polled() == []
    assert reader.position == {0: 0, 1: 0}
    arrived(0, 107)
    arrived(1, 106)  # both have passed 101 by the bound
    assert polled() == [100, 101]
    assert reader.position == {0: 1, 1: 1}
    pond.clock.advance("6s")
    assert polled() + polled() == [103, 106, 107]  # it looks once whether something arrived
    assert reader.position == {0: 3, 1: 2}


def test_what_is_held_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "HELD_BYTES_MAX", 20_000)
    pond = SmallPond(tmp_path, define(2, ()))
    for start in range(0, 3_000, 100):  # the other streamlet never comes along
        pond.append(*(reading(n) | {"date": EPOCH} for n in range(start, start + 100)), streamlet=0)
    reader = merged(pond, follow=True)
    first = reader.poll()
    assert first.num_rows
    assert reader.position[0] < 3_000
    reader.close()


def test_filter_columns_and_limit(tmp_path: Path) -> None:
    pond = SmallPond(tmp_path, define(2, ()))
    for n in range(20):
        pond.append(reading(n) | {"date": EPOCH + timedelta(seconds=20 - n)}, streamlet=n % 2)
    reader = merged(pond, columns=["n"], where="n < 10", limit=4, batch_rows=3)
    assert [batch.to_pydict() for batch in reader] == [{"n": [9, 8, 7]}, {"n": [6]}]
    assert reader.position == {0: 0, 1: 0}
    everything = merged(pond, columns=["n"], where="n < 10")
    assert pa.Table.from_batches(list(everything))["n"].to_pylist() == list(range(9, -1, -1))
    assert everything.position == {0: 10, 1: 10}


def test_without_times_of_their_own_records_come_as_they_were_ingested(tmp_path: Path) -> None:
    pond = SmallPond(tmp_path, define(3, (), event_time=None, schema=pa.schema([("n", pa.int64())])))
    for n in range(30):
        pond.append({"n": n}, streamlet=n * 7 % 3)
        if n == 12:
            pond.settle()
    assert pa.Table.from_batches(list(merged(pond)))["n"].to_pylist() == list(range(30))
    assert read(pond.halves).position == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize("within", ["0s", "2h", "soon"])
def test_a_bound_that_makes_no_sense_is_refused(tmp_path: Path, within: str) -> None:
    with pytest.raises(InvalidValue):
        read_merged(small_pond(tmp_path).halves, within=within, clock=small_pond(tmp_path).clock)
