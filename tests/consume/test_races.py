"""What comes in between: while a commit is on its way, while a poll reads, while a position is looked for (C8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millpond.consume import group as groups
from millpond.consume.protocol import Commit, Done, GroupSpec, Join, Member, Wanted
from millpond.errors import Fenced, TooLarge
from tests.consume.conftest import IN, OUT, consumer, rows, taken

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
