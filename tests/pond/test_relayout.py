"""What queries teach a layout, and a stream that is laid out anew while everything else goes on."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import millpond
from millpond.archive.layout.kdtree import KdModel
from millpond.archive.relayout import Overtaken
from millpond.model import predicate as predicates
from millpond.pond import relayouting as module
from millpond.wire.relayout import run
from tests.pond.conftest import Ponds

PLACES = pa.schema([("vid", pa.string()), ("lat", pa.float64()), ("lon", pa.float64()), ("temp", pa.float64())])
LAYOUT = "kdtree:lat,lon,buckets=16"


def places(count: int, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    columns = [rng.uniform(43, 44, count), rng.uniform(6, 7, count), rng.normal(20, 5, count)]
    return pa.record_batch([pa.array([f"m{n}" for n in range(count)]), *map(pa.array, columns)], schema=PLACES)


@pytest.fixture
def stream_queries(pond: Any) -> Any:
    return lambda stream: pond.queries(stream.name)["predicate"].to_pylist()


def ask_squares(stream: millpond.Stream, count: int = 40) -> None:
    rng = np.random.default_rng(7)
    for lat, lon in zip(rng.uniform(43, 43.9, count), rng.uniform(6, 6.9, count), strict=True):
        stream.scan(f"lat >= {lat} AND lat < {lat + 0.05} AND lon >= {lon} AND lon < {lon + 0.05}", columns=["temp"])


@pytest.fixture
def stream(pond: Any) -> Any:
    """4,000 places in four objects, settled before there was a layout, and 100 that are live."""
    made = pond.create_stream("grid/places", PLACES)
    for seed in range(4):
        made.append(places(1_000, seed))
        made.settle()
    pond.alter_stream("grid/places", layout=LAYOUT)
    made.append(places(100, 9))
    return made


def test_a_model_learns_from_queries_and_objects_follow(pond: Any, stream: Any) -> None:
    ask_squares(stream)
    found = stream.analyse()
    assert found.swapped
    assert found.queries == 40
    assert found.model_current is None
    assert found.bytes_new < found.bytes_current / 4
    before = stream.scan().sort_by("temp")
    assert stream.status().objects == 4
    report = stream.relayout(object_bytes_min="0B")
    assert (report.stream, report.units, report.rows) == ("grid/places", 1, 4_000)
    assert (report.objects_before, report.objects_after) == (4, 16)
    assert stream.scan().sort_by("temp").equals(before)
    explained = stream.explain("lat >= 43.5 AND lat < 43.52 AND lon >= 6.5 AND lon < 6.52")
    assert explained.objects_read <= 4
    assert stream.relayout(object_bytes_min="0B").units == 0
    assert not pond.verify().findings


def test_what_is_estimated_is_what_comes_true(stream: Any, stream_queries: Any) -> None:
    ask_squares(stream)
    squares = [predicates.decode(text) for text in stream_queries(stream)]
    found = stream.analyse()
    assert found.bytes_current == pytest.approx(sum(stream.explain(one).bytes_read for one in squares), rel=0.05)
    report = stream.relayout(object_bytes_min="0B")
    larger = report.bytes_after / report.bytes_before  # sixteen objects have sixteen footers
    read = sum(stream.explain(one).bytes_read for one in squares)
    assert found.bytes_new * larger == pytest.approx(read, rel=0.25)


def test_a_model_that_is_hardly_better_does_not_count(stream: Any) -> None:
    ask_squares(stream)
    first = stream.analyse()
    again = stream.analyse()
    assert (again.model_current, again.swapped) == (first.model_new, False)
    assert again.ratio is not None
    assert 0.8 < again.ratio < 1.2


def test_queries_that_change_change_the_model(stream: Any) -> None:
    ask_squares(stream)
    stream.analyse()
    for low in np.linspace(5, 35, 400):
        stream.scan(f"temp >= {low} AND temp < {low + 0.1}", columns=["vid"])
    assert not stream.analyse().swapped, "temperatures are no dimension of this layout"


def test_only_asking_changes_nothing(stream: Any) -> None:
    ask_squares(stream)
    assert not stream.analyse(swap=False).swapped
    assert stream.analyse(swap=False).model_current is None


def test_without_queries_the_first_model_comes_from_the_records(stream: Any) -> None:
    found = stream.analyse()
    assert (found.queries, found.swapped, found.ratio) == (0, True, None)
    assert not stream.analyse().swapped


def test_a_relayout_without_a_model_makes_one(stream: Any) -> None:
    assert stream.relayout(object_bytes_min="0B").objects_after == 16


def test_small_objects_are_merged(stream: Any) -> None:
    report = stream.relayout()
    assert (report.objects_before, report.objects_after) == (4, 1)


def test_what_cannot_be_laid_out_is_told(pond: Any) -> None:
    plain = pond.create_stream("plain", PLACES)
    for ask in (plain.analyse, plain.relayout):
        with pytest.raises(millpond.errors.InvalidValue, match="has no layout"):
            ask()
    empty = pond.create_stream("empty", PLACES, layout=LAYOUT)
    with pytest.raises(millpond.errors.InvalidValue, match="nothing of empty has settled"):
        empty.analyse()
    assert empty.relayout().units == 0
    for wrong in ({"better_by": 1.5}, {"period": "soon"}):
        with pytest.raises(millpond.errors.MillpondError):
            empty.analyse(**wrong)


@pytest.mark.embedded
@pytest.mark.parametrize("name", ["_assign", "assign"])
def test_a_layout_that_fails_is_told(stream: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When rows are laid out by the model on record, and when another is compared with it."""
    ask_squares(stream)
    before = stream.scan().sort_by([("lat", "ascending"), ("lon", "ascending")])
    stream.analyse()
    wrong = {"_assign": lambda model, rows: 1 // 0, "assign": lambda model, rows, buckets=None: None}
    monkeypatch.setattr(KdModel, name, wrong[name])
    for ask in (stream.relayout, stream.analyse):
        with pytest.raises(millpond.errors.InvalidInput, match=r"layout kdtree failed: (ZeroDivision|Attribute)Error"):
            ask()
    monkeypatch.undo()
    assert stream.scan().sort_by([("lat", "ascending"), ("lon", "ascending")]).equals(before)
    assert stream.relayout().rows == 4_000


@pytest.mark.embedded
def test_a_layout_that_cannot_be_fitted_is_told(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(millpond.KdTree, "fit", lambda layout, sample, history=(): 1 // 0)
    for ask in (stream.relayout, stream.analyse):
        with pytest.raises(millpond.errors.InvalidInput, match="layout kdtree failed: ZeroDivisionError"):
            ask()


# Others at the same time.


@pytest.mark.embedded
def test_one_relayout_at_a_time(stream: Any) -> None:
    ticket = stream.relayouting.begin("another", 0)
    with pytest.raises(millpond.errors.Backpressure, match="being laid out anew"):
        stream.relayout()
    with pytest.raises(millpond.errors.Backpressure, match="being laid out anew"):
        stream.vacuum()
    stream.relayouting.end(ticket.id)
    assert stream.relayout(object_bytes_min="0B").units == 1


@pytest.mark.embedded
def test_one_that_is_not_heard_of_is_given_up(ponds: Ponds) -> None:
    from millpond.testing.manual_clock import ManualClock

    clock = ManualClock()
    pond = ponds(clock=clock)
    stream = pond.create_stream("grid/places", PLACES, layout=LAYOUT)
    stream.append(places(1_000))
    stream.settle()
    ticket = stream.relayouting.begin("elsewhere", 0, module.LEASE_SECONDS)
    clock.advance("59s")
    stream.relayouting.renew(ticket.id)
    clock.advance("59s")
    assert stream.relayouting.alive()
    clock.advance("2s")
    stream.relayout()
    for late in (stream.relayouting.plan, stream.relayouting.renew):
        with pytest.raises(millpond.errors.Fenced, match="given up"):
            late(ticket.id)


@pytest.mark.embedded
def test_a_unit_that_is_overtaken_is_planned_again(stream: Any) -> None:
    relayouts = stream.relayouting
    overtaken = []

    def rewrite(ticket: Any, units: Any) -> Any:
        for unit, reports in relayouts.rewrite(ticket, units):
            if not overtaken:  # somebody merges small objects, before the first commit
                overtaken.append(stream.archive.compact(least_objects=2, object_bytes_min=10**9))
            yield unit, reports

    report = run(relayouts, "grid/places", "me", 0, rewrite)
    assert overtaken[0] is not None
    assert report.units == 1
    assert stream.count() == 4_100
    assert not relayouts.alive()


@pytest.mark.embedded
@pytest.mark.parametrize("settles", ["before the plan", "while it is rewritten"])
def test_a_column_that_is_added_meanwhile_keeps_its_values(pond: Any, stream: Any, settles: str) -> None:
    relayouts = stream.relayouting
    added = []

    def add_a_column() -> None:
        if not added:
            pond.alter_stream("grid/places", PLACES.append(pa.field("note", pa.string())))
            stream.append([{"vid": "new", "lat": 43.1, "lon": 6.1, "note": "kept"}] * 50)
            added.append(stream.settle())
            # Small objects are merged, and the units that were planned before are overtaken.
            assert stream.archive.compact(least_objects=2, object_bytes_min=10**9) is not None

    class Altered:
        def __getattr__(self, name: str) -> Any:
            return getattr(relayouts, name)

        def plan(self, relayout: str) -> Any:
            if settles == "before the plan":
                add_a_column()
            return relayouts.plan(relayout)

        def commit(self, relayout: str, unit: Any, reports: Any) -> Any:
            if settles == "while it is rewritten":
                add_a_column()
            return relayouts.commit(relayout, unit, reports)

    report = run(Altered(), "grid/places", "me", 0, relayouts.rewrite)  # type: ignore[arg-type]
    assert (report.units, report.rows) == (1, 4_150)
    assert stream.count("note = 'kept'") == 50
    assert stream.count() == 4_150
    assert not pond.verify().findings


@pytest.mark.embedded
def test_a_rewrite_that_does_not_know_a_column_is_refused(pond: Any, stream: Any) -> None:
    relayouts = stream.relayouting
    before = relayouts.begin("me", 0)
    pond.alter_stream("grid/places", PLACES.append(pa.field("note", pa.string())))
    units = relayouts.plan(before.id)
    with pytest.raises(Overtaken):
        list(relayouts.rewrite(before, units))
    older = [replace(unit, schema_version=0) for unit in units]
    ((_, reports),) = relayouts.rewrite(before, older)
    assert relayouts.commit(before.id, units[0], reports) is None, "whatever a task did, its report says what it knew"
    assert relayouts.commit(before.id, older[0], reports) is not None, "without a column of later nothing is amiss"


@pytest.mark.embedded
def test_one_that_is_always_overtaken_gives_up(stream: Any) -> None:
    relayouts = stream.relayouting

    class Restless:
        """Somebody else is always first."""

        def __getattr__(self, name: str) -> Any:
            return getattr(relayouts, name)

        def commit(self, relayout: str, unit: Any, reports: Any) -> Any:
            return None

    with pytest.raises(millpond.errors.SettleConflict, match="changed each of the 4 times"):
        run(Restless(), "grid/places", "me", 0, relayouts.rewrite)  # type: ignore[arg-type]
    assert not relayouts.alive()
    assert stream.count() == 4_100


@pytest.mark.embedded
def test_an_answer_that_was_lost_is_given_again(stream: Any) -> None:
    relayouts = stream.relayouting
    ticket = relayouts.begin("me", 0)
    ((unit, (report,)),) = relayouts.rewrite(ticket, relayouts.plan(ticket.id))
    place = ticket.id, unit.start, unit.loaded
    answer = relayouts.commit_part(*place, 0, report)
    assert answer.whole
    assert answer.report.rows == 4_000
    version = stream.status().version
    assert relayouts.commit_part(*place, 0, report) == answer
    assert stream.status().version == version
    with pytest.raises(millpond.errors.InvalidInput, match="was not planned"):
        relayouts.commit_part(ticket.id, unit.start + 1, unit.loaded, 0, report)


@pytest.mark.embedded
def test_a_commit_that_failed_for_a_moment_is_asked_for_again(stream: Any, monkeypatch: Any) -> None:
    relayouts = stream.relayouting
    ticket = relayouts.begin("me", 0)
    ((unit, (report,)),) = relayouts.rewrite(ticket, relayouts.plan(ticket.id))
    with monkeypatch.context() as failing:
        failing.setattr("millpond.archive.ledger.Ledger.refresh", lambda self: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(millpond.errors.SettleFailed):
            relayouts.commit_part(ticket.id, unit.start, unit.loaded, 0, report)
    assert relayouts.commit_part(ticket.id, unit.start, unit.loaded, 0, report).report.rows == 4_000


@pytest.mark.embedded
def test_a_report_comes_in_pieces_and_parts_in_any_order(stream: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("millpond.archive.relayout.PART_BYTES", 60_000)
    relayouts = stream.relayouting
    ticket = relayouts.begin("me", 0)
    ((unit, reports),) = relayouts.rewrite(ticket, relayouts.plan(ticket.id))
    assert unit.parts > 1
    sent = [
        (part, table, piece, 2)
        for part, report in enumerate(reports)
        for piece, table in enumerate((report.slice(0, 1), report.slice(1)))
    ]
    sent = [*sent[::2], *sent[:3], *sent[1::2]]
    answers = [relayouts.commit_part(ticket.id, unit.start, unit.loaded, *one) for one in sent]
    assert [answer.whole for answer in answers] == [False] * (len(sent) - 1) + [True]
    assert answers[-1].report.objects_after == 16
    assert stream.count() == 4_100


@pytest.mark.embedded
def test_a_stream_that_is_truncated_or_dropped_meanwhile(pond: Any, stream: Any) -> None:
    relayouts = stream.relayouting
    ticket = relayouts.begin("me", 0)
    ((unit, reports),) = relayouts.rewrite(ticket, relayouts.plan(ticket.id))
    stream.truncate()
    assert relayouts.commit(ticket.id, unit, reports) is None
    assert stream.count() == 0
    assert relayouts.plan(ticket.id) == []
    pond.drop_stream("grid/places")
    with pytest.raises(millpond.errors.StreamNotFound):
        relayouts.commit(ticket.id, unit, reports)


@pytest.mark.embedded
def test_appends_settles_queries_and_two_relayouts_at_once(ponds: Ponds) -> None:
    """Counts are exact at every moment, through us and through deltalake."""
    pond = ponds()
    stream = pond.create_stream("grid/places", PLACES, layout=LAYOUT)
    stream.append(places(2_000))
    stream.settle()
    over, failures, seen = threading.Event(), [], []
    rng = np.random.default_rng(3)
    sent = 2_000

    def forever(act: Any) -> threading.Thread:
        def work() -> None:
            try:
                while not over.is_set():
                    act()
            except Exception as error:  # told by the test
                failures.append(error)
                over.set()

        return threading.Thread(target=work)

    def relay() -> None:
        with_model = stream.archive.layout.fit(stream.scan().slice(int(rng.integers(0, 1_000)), 1_000))
        stream.archive.put_model(with_model)
        try:
            stream.relayout(object_bytes_min="0B")
        except millpond.errors.Backpressure:
            seen.append("refused")

    def look() -> None:
        low = sent
        found = stream.count()
        assert low <= found <= sent, (low, found, sent)
        assert stream.count("lat >= 43 AND lat < 44") >= low
        table = DeltaTable(stream.archive.root).to_pyarrow_table(columns=["_offset"])
        offsets = table.column("_offset").to_numpy()
        assert len(np.unique(offsets)) == len(offsets) == offsets.max() + 1

    threads = [forever(relay), forever(relay), forever(look)]
    for thread in threads:
        thread.start()
    for seed in range(12):
        stream.append(places(200, seed))
        sent += 200
        stream.settle()
        if over.is_set():
            break
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert stream.count() == sent == 4_400
    assert not pond.verify().findings
    stream.relayout(object_bytes_min="0B")
    assert sorted(set(stream.scan(columns=["_offset"])["_offset"].to_pylist())) == list(range(4_400))
