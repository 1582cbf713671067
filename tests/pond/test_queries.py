"""The history of queries: what was asked is on record, bounded, and no query is the worse for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import millpond
from millpond.model import predicate as predicates
from millpond.model.predicate import TRUE, And, Compare, In, Or, StartsWith, Unknown
from millpond.model.query_note import QueryNote
from millpond.pond import history
from tests.pond.conftest import METERS, Ponds, rows

# A text that is no UTF-8.
BAD_NOTE = QueryNote(Unknown("\ud800"), 1, 4, 100, 900)


def asked(pond: millpond.Pond, stream: str = "grid/meters") -> list[predicates.Predicate]:
    return [predicates.decode(text) for text in pond.queries(stream)["predicate"].to_pylist()]


def test_a_scan_is_on_record_with_what_it_had_to_read(pond: millpond.Pond, meters: millpond.Stream) -> None:
    meters.append(rows(0, 10))
    meters.settle()
    meters.append(rows(100, 110))
    meters.settle()
    meters.scan("temp >= 100 AND temp < 105")
    (found,) = pond.queries("grid/meters").to_pylist()
    terms = And((Compare(">=", "temp", 100.0), Compare("<", "temp", 105.0)))
    assert predicates.decode(found["predicate"]) == terms
    assert found["stream"] == "grid/meters"
    assert 0 < found["objects_read"] < found["objects_total"]
    assert 0 < found["bytes_read"] < found["bytes_total"]


def test_counts_and_batches_are_on_record_too(pond: millpond.Pond, meters: millpond.Stream) -> None:
    meters.append(rows(0, 10))
    assert meters.count("temp > 3") == 6
    assert sum(batch.num_rows for batch in meters.scan_batches("temp > 4")) == 5
    assert meters.scan().num_rows == 10
    assert asked(pond) == [Compare(">", "temp", 3.0), Compare(">", "temp", 4.0), TRUE]


def test_each_stream_has_its_own_history(pond: millpond.Pond, meters: millpond.Stream) -> None:
    other = pond.create_stream("grid/other", METERS)
    meters.scan("temp > 1")
    other.scan("temp > 2")
    assert asked(pond, "grid/other") == [Compare(">", "temp", 2.0)]
    pond.drop_stream("grid/other")
    pond.create_stream("grid/other", METERS)
    assert asked(pond, "grid/other") == []
    with pytest.raises(millpond.errors.StreamNotFound):
        pond.queries("grid/nowhere")


def test_what_was_planned_elsewhere_is_on_record(pond: Any, meters: Any) -> None:
    meters.note_query(QueryNote(Compare(">", "temp", 7.0), 1, 4, 100, 900))
    if hasattr(pond, "served"):  # it goes by the wire, in a thread of its own
        pond._connection.notes.flush()
    (found,) = pond.queries("grid/meters").to_pylist()
    assert [found[name] for name in ("objects_read", "objects_total", "bytes_read", "bytes_total")] == [1, 4, 100, 900]


@pytest.mark.embedded
def test_the_history_outlasts_a_reopen(ponds: Ponds) -> None:
    pond = ponds(background=True)
    pond.create_stream("grid/meters", METERS).scan("temp > 1")
    pond.close()
    assert asked(ponds()) == [Compare(">", "temp", 1.0)]


@pytest.mark.embedded
def test_it_can_be_turned_off(ponds: Ponds) -> None:
    pond = ponds(query_history_max=0)
    pond.create_stream("grid/meters", METERS).scan("temp > 1")
    assert asked(pond) == []
    assert pond.history.dropped == 0


@pytest.mark.embedded
def test_only_the_newest_are_kept(ponds: Ponds) -> None:
    pond = ponds(query_history_max=20)
    stream = pond.create_stream("grid/meters", METERS)
    for n in range(100):
        stream.scan(f"temp > {n}")
        pond.history.write()
    assert asked(pond) == [Compare(">", "temp", float(n)) for n in range(80, 100)]
    starts, heads = pond.log.starts(history.QUERIES.id), pond.log.heads(history.QUERIES.id)
    assert heads[0] - starts[0] <= 25


@pytest.mark.embedded
def test_what_is_too_old_goes(tmp_path: Path) -> None:
    from millpond.testing.manual_clock import ManualClock

    clock = ManualClock()
    with millpond.open(
        tmp_path / "pond", clock=clock, background=False, query_history_seconds=60, disk_reserve_bytes=0
    ) as pond:
        stream = pond.create_stream("grid/meters", METERS)
        stream.scan("temp > 1")
        clock.advance("59s")
        stream.scan("temp > 2")
        assert len(asked(pond)) == 2
        clock.advance("2s")
        assert asked(pond) == [Compare(">", "temp", 2.0)]


@pytest.mark.embedded
def test_a_note_without_room_is_dropped_and_counted(ponds: Ponds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WAITING_MAX", 3)
    pond = ponds()
    stream = pond.create_stream("grid/meters", METERS)
    for n in range(5):
        stream.scan(f"temp > {n}")
    assert len(asked(pond)) == 3
    assert pond.history.dropped == 2


@pytest.mark.embedded
def test_a_predicate_that_is_too_long_is_not_kept(ponds: Ponds) -> None:
    pond = ponds()
    stream = pond.create_stream("grid/meters", METERS)
    stream.scan(Compare("=", "vid", "x" * 70_000))
    assert asked(pond) == []
    assert pond.history.dropped == 1


@pytest.mark.embedded
@pytest.mark.parametrize(
    "predicate",
    [
        In("temp", tuple(map(float, range(20_000)))),
        Or(tuple(Compare("=", "temp", float(n)) for n in range(3_000))),
        In("vid", tuple(f"{n:01000}" for n in range(70))),
        StartsWith("vid", "x" * 70_000),
    ],
)
def test_a_long_predicate_is_not_even_held(ponds: Ponds, predicate: predicates.Predicate) -> None:
    pond = ponds()
    stream = pond.create_stream("grid/meters", METERS)
    stream.scan("temp > 1")
    stream.scan(predicate)
    assert pond.history.dropped == 1  # nothing has been written yet
    assert asked(pond) == [Compare(">", "temp", 1.0)]


@pytest.mark.embedded
def test_a_record_that_cannot_be_made_fails_nobody(ponds: Ponds) -> None:
    pond = ponds()
    stream = pond.create_stream("grid/meters", METERS)
    stream.note_query(BAD_NOTE)
    stream.scan("temp > 1")
    assert asked(pond) == [Compare(">", "temp", 1.0)]
    assert pond.history.dropped == 1
    stream.note_query(BAD_NOTE)
    stream.scan("temp > 2")
    pond.close()
    assert asked(ponds()) == [Compare(">", "temp", 1.0), Compare(">", "temp", 2.0)]


@pytest.mark.embedded
def test_queries_of_many_threads_are_all_on_record(ponds: Ponds) -> None:
    pond = ponds(background=True)
    stream = pond.create_stream("grid/meters", METERS)
    threads = [threading.Thread(target=lambda: [stream.scan("temp > 1") for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked(pond)) + pond.history.dropped == 200
    assert pond.history.dropped == 0


@pytest.mark.embedded
def test_a_busy_stream_leaves_the_others_their_history(ponds: Ponds) -> None:
    pond = ponds(query_history_max=20)
    quiet, few, busy = (pond.create_stream(f"grid/{name}", METERS) for name in ("quiet", "few", "busy"))
    for n in range(9):
        quiet.scan(f"temp > {n}")
    few.scan("temp > 1000")
    pond.history.write()
    for n in range(200):
        busy.scan(f"temp > {n}")
        pond.history.write()
    starts, heads = pond.log.starts(history.QUERIES.id), pond.log.heads(history.QUERIES.id)
    assert heads[0] - starts[0] <= 25
    found = pond.queries("grid/quiet").to_pylist()
    assert [predicates.decode(one["predicate"]) for one in found] == [Compare(">", "temp", float(n)) for n in range(9)]
    assert pond.queries("grid/few").num_rows == 1
    newest = [predicates.decode(one["predicate"]) for one in pond.queries("grid/busy").to_pylist()]
    assert newest == [Compare(">", "temp", float(n)) for n in range(190, 200)]


@pytest.mark.parametrize(
    ("owners", "most", "kept"),
    [
        ([], 3, []),
        ([1, 1, 1, 1], 3, [1, 2, 3]),
        ([1, 2, 1, 1, 1], 3, [1, 3, 4]),
        ([1, 1, 2, 2, 2, 2], 4, [0, 1, 4, 5]),
        ([1, 2, 3, 4], 2, [2, 3]),
        ([1, 2, 3], 9, [0, 1, 2]),
    ],
)
def test_room_is_shared_fairly(owners: list[int], most: int, kept: list[int]) -> None:
    keep = history.fair_share(np.array(owners, np.int64), most)
    assert np.flatnonzero(keep).tolist() == kept
