"""What comes in between: while a commit is on its way, while a poll reads, while a position is looked for (C8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millpond.consume import coordinator, position_log
from millpond.consume import group as groups
from millpond.consume.protocol import Commit, Done, GroupSpec, Join, Member, Wanted
from millpond.errors import DiskFull, Fenced, TooLarge
from tests.consume.conftest import IN, OUT, SCHEMA, consumer, rows, taken

SECONDS_MAX = 30.0


class Held:
    """A call of something that goes no further until it is let go."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real, self.began, self._may_go = real, threading.Event(), threading.Event()

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.began.set()
        assert self._may_go.wait(SECONDS_MAX)
        return self._real(*given, **named)

    def let_go(self) -> None:
        self._may_go.set()


class Asked(threading.Thread):
    """A call in a thread of its own: what it gives, or what it raises."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call, self._raised, self._found = call, None, None
        self.start()

    def run(self) -> None:
        try:
            self._found = self._call()
        except BaseException as error:
            self._raised = error

    def result(self) -> Any:
        self.join(SECONDS_MAX)
        assert not self.is_alive()
        if self._raised is not None:
            raise self._raised
        return self._found


@contextmanager
def held_commit(pond: Any, monkeypatch: pytest.MonkeyPatch, commit: Callable[[], Any]) -> Iterator[Asked]:
    """A commit is on its way to the journal; when the block ends it gets there."""
    held = Held(pond.log.append_together)
    with monkeypatch.context() as patch:
        patch.setattr(pond.group_desk()._log, "append_together", held)
        committing = Asked(commit)
        try:
            assert held.began.wait(SECONDS_MAX)
            yield committing
        finally:
            held.let_go()
            committing.join(SECONDS_MAX)


def until_it_waits(pond: Any, asked: Asked, waiting: int = 1) -> None:
    """Until the call waits for the commit, or is over without having waited."""
    (group,) = pond.coordinator.each()
    while asked.is_alive():
        with group._settled:
            if len(group._settled._waiters) == waiting:
                return


@pytest.mark.parametrize("strategy", ["fifo", "hash"])
@pytest.mark.parametrize("how", ["leave", "join"])
def test_who_is_replaced_or_leaves_while_it_commits_gives_back_only_what_is_left(
    pond: Any, monkeypatch: pytest.MonkeyPatch, strategy: str, how: str
) -> None:
    pond.stream(IN).append(rows(0, 10))
    first = consumer(pond, "one", strategy=strategy)
    seen = taken(first)
    desk = pond.group_desk()

    def commit() -> None:
        with first.transaction() as tx:
            tx.append(OUT, rows(0, 10))

    def replace() -> Any:
        if how == "leave":
            desk.leave(first._member)
        return desk.join(Join(GroupSpec(IN, "g", strategy), "one"))

    with held_commit(pond, monkeypatch, commit) as committing:
        replacing = Asked(replace)
        until_it_waits(pond, replacing)
    committing.result()
    member = replacing.result()
    assert sorted(seen) == list(range(10))
    assert list(desk.poll(member, Wanted())) == []
    assert pond.stream(OUT).count() == 10
    assert desk.group(IN, "g").lag_total == 0


def test_a_retry_that_waits_for_a_commit_whose_member_is_replaced_gets_its_answer(
    pond: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond.stream(IN).append(rows(0, 3))
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec(IN, "g"), "one"))
    commit = Commit(1, tuple(Done(receipt.number) for receipt, _ in desk.poll(member, Wanted())))
    with held_commit(pond, monkeypatch, lambda: desk.commit(member, commit)) as first:
        retry = Asked(lambda: desk.commit(member, commit))
        until_it_waits(pond, retry)
        joining = Asked(lambda: desk.join(Join(GroupSpec(IN, "g"), "one")))
        until_it_waits(pond, joining, 2)
    assert first.result().committed
    assert retry.result().duplicate
    assert joining.result().epoch != member.epoch
    # Nobody is left in the gate.
    assert Asked(lambda: desk.reset(IN, "g", "earliest", preview=False)).result().again == 3


def test_a_group_has_so_many_members_and_no_more(pond: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MEMBERS_MAX", 3)
    desk = pond.group_desk()

    def join(name: str) -> Member:
        found: Member = desk.join(Join(GroupSpec(IN, "g"), name))
        return found

    first, _, _ = (join(name) for name in "abc")
    with pytest.raises(TooLarge, match="3 members"):
        join("d")
    join("a")
    with pytest.raises(Fenced):
        desk.renew(first)


@pytest.fixture
def truncated_meanwhile(pond: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is truncated, and has new records, while "latest" is looked for: once."""
    real = coordinator.place

    def place(halves: Any, to: Any) -> dict[int, int]:
        found = real(halves, to)
        if to == "latest":
            monkeypatch.undo()
            pond.stream(IN).truncate()
            pond.groups()  # all follow
            pond.stream(IN).append(rows(0, 5))
        return found

    monkeypatch.setattr(coordinator, "place", place)


@pytest.mark.usefixtures("truncated_meanwhile")
def test_a_group_is_moved_to_a_place_of_the_generation_that_it_is_in(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 100))
    mine = consumer(pond)
    taken(mine, max_records=1)
    change = pond.group(IN, "g").reset("latest", preview=False)
    assert sum(change.after.values()) == 5
    pond.stream(IN).append(rows(5, 8))
    assert sorted(taken(consumer(pond, "b"))) == [5, 6, 7]


@pytest.mark.usefixtures("truncated_meanwhile")
def test_a_group_is_made_at_a_place_of_the_generation_that_it_is_in(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 100))
    mine = consumer(pond, start="latest")
    assert taken(mine) == []
    status = pond.group(IN, "g").status()
    assert (status.generation, sum(status.positions.values())) == (2, 5)
    pond.stream(IN).append(rows(5, 8))
    assert sorted(taken(mine)) == [5, 6, 7]


def test_what_a_group_did_before_a_truncation_pins_nothing_after_it(pond: Any) -> None:
    stream = pond.stream(IN)
    stream.append(rows(0, 100))
    with consumer(pond) as mine:
        taken(mine)
    assert sum(pond.coordinator.pins(stream.definition.id).values()) == 100
    stream.truncate()
    stream.append(rows(0, 50))
    assert set(pond.coordinator.pins(stream.definition.id).values()) == {0}
    with consumer(pond) as mine:
        assert len(taken(mine)) == 50
    assert sum(pond.coordinator.pins(stream.definition.id).values()) == 50


def test_epochs_that_are_reserved_while_positions_are_written_together_are_given_once(
    reopen: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pond = reopen()
    pond.create_stream(IN, SCHEMA)
    consumer(pond)
    desk = pond.group_desk()
    positions = desk._positions
    positions._epoch = positions._reserved  # all that are reserved were given
    write, compacting = positions.write, []

    def write_and_compact(given: Any) -> Any:
        ack = write(given)
        monkeypatch.undo()
        compacting.append(Asked(desk.compact))
        while compacting[0].is_alive() and not desk._gate._alone:
            pass
        return ack

    monkeypatch.setattr(positions, "write", write_and_compact)
    member = desk.join(Join(GroupSpec(IN, "g"), "a"))
    compacting[0].result()
    assert reopen().group_desk().join(Join(GroupSpec(IN, "g"), "a")).epoch > member.epoch


def test_a_commit_stands_though_positions_cannot_be_written_together(
    pond: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*given: Any, **named: Any) -> Any:
        raise DiskFull("the disk is full", hint="make room")

    pond.stream(IN).append(rows(0, 9))
    mine, desk = consumer(pond), pond.group_desk()
    with monkeypatch.context() as patch:
        patch.setattr(position_log, "COMPACT_RECORDS", 0)
        patch.setattr(desk._log, "append", full)
        for _ in range(8):
            taken(mine, max_records=1)
            assert mine.commit().committed
    assert 1 < caplog.text.count("positions could not be written together") < 8
    seen = taken(mine)
    with mine.transaction() as tx:
        tx.append(OUT, rows(0, len(seen)))
    assert (len(seen), pond.stream(OUT).count(), sum(mine.lag().values())) == (1, 1, 0)


def test_nobody_changes_where_a_group_stands_while_it_is_written_down(
    pond: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a group passes over moves it without a commit, so that the gate is not enough."""
    consumer(pond)
    (group,) = pond.coordinator.each()
    real, locked = groups.group_row, []

    def row(key: Any, state: Any) -> Any:
        locked.append(group._lock.locked())
        return real(key, state)

    monkeypatch.setattr(groups, "group_row", row)
    pond.coordinator.compact()
    assert locked == [True]
