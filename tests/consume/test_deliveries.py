"""What is handed out reaches its member, whatever goes wrong on the way; and what a number stands for (C8)."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.consume import group as groups
from millpond.consume.protocol import Commit, Done, GroupSpec, Join, Wanted
from millpond.errors import TooLarge, TransactionOver
from tests.consume.conftest import IN, OUT, SCHEMA, consumer, rows, taken
from tests.consume.test_races import Asked, Held


@pytest.mark.parametrize("strategy", ["fifo", "hash"])
def test_two_polls_that_say_the_same_of_what_arrived_are_given_the_same(
    pond: Any, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    pond.stream(IN).append(rows(0, 10))
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec(IN, "g", strategy), "a"))
    (group,) = pond.coordinator.each()
    (state,) = group._members.values()
    read = Held(pond.stream(IN).halves.read_range)
    monkeypatch.setattr(pond.stream(IN).halves, "read_range", read)

    class Reading:
        """The member's turn to read, which says when a second one wants it."""

        def __init__(self) -> None:
            self._turn = group._share.reading(state)
            self.wanted = 0

        def __enter__(self) -> None:
            self.wanted += 1
            self._turn.acquire()

        def __exit__(self, *_: object) -> None:
            self._turn.release()

    reading = Reading()
    monkeypatch.setattr(group._share, "reading", lambda _: reading)
    polls = [Asked(lambda: desk.poll(member, Wanted(max_records=3, after=0)))]
    assert read.began.wait(30)
    polls.append(Asked(lambda: desk.poll(member, Wanted(max_records=3, after=0))))
    while reading.wanted < 2:
        pass  # the second has looked at what was lost before the first claimed anything
    read.let_go()
    first, second = ([receipt.number for receipt, _ in poll.result()] for poll in polls)
    assert first == second


@pytest.mark.parametrize("strategy", ["fifo", "round_robin"])
def test_what_was_claimed_before_a_read_fails_is_handed_out(
    pond: Any, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    pond.stream(IN).append(rows(0, 100))
    mine, halves = consumer(pond, strategy=strategy), pond.stream(IN).halves
    real, calls = halves.read_range, []

    def flaky(*given: Any, **named: Any) -> Any:
        calls.append(given)
        if len(calls) in (2, 3):
            raise OSError("a read fails")
        return real(*given, **named)

    monkeypatch.setattr(halves, "read_range", flaky)
    desk, member = pond.group_desk(), mine._joined()
    found = list(desk.poll(member, Wanted()))
    assert found
    with pytest.raises(OSError, match="a read fails"):
        desk.poll(member, Wanted())
    found += desk.poll(member, Wanted())
    assert sorted(n for _, batch in found for n in batch.column("n").to_pylist()) == list(range(100))
    desk.commit(member, Commit(1, tuple(Done(receipt.number) for receipt, _ in found)))
    assert desk.group(IN, "g").lag_total == 0


def test_the_last_delivery_that_a_member_may_hold_reaches_it(pond: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CLAIMS_MAX", 1)
    pond.stream(IN).append(rows(0, 100))
    mine = consumer(pond)
    desk, member = pond.group_desk(), mine._joined()
    (held,) = desk.poll(member, Wanted())
    with pytest.raises(TooLarge, match="not committed"):
        desk.poll(member, Wanted())
    desk.commit(member, Commit(1, (Done(held.receipt.number),)))
    assert held.batch.num_rows + desk.poll(member, Wanted())[0].batch.num_rows == 100


@pytest.mark.parametrize("strategy", ["fifo", "hash"])
def test_a_lost_delivery_whose_records_expired_is_passed_over_and_counted(pond: Any, clock: Any, strategy: str) -> None:
    stream = pond.create_stream("grid/short", SCHEMA, keys=["key"], ttl="10s")
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec("grid/short", "g", strategy), "a"))
    stream.append(rows(0, 2))
    clock.advance("6s")
    stream.append(rows(2, 5))
    assert sum(batch.num_rows for _, batch in desk.poll(member, Wanted(max_records=2))) == 2
    assert sum(batch.num_rows for _, batch in desk.poll(member, Wanted(max_records=3))) == 3
    clock.advance("6s")
    desk.renew(member)
    ((receipt, batch),) = desk.poll(member, Wanted(after=0))
    assert sorted(batch.column("n").to_pylist()) == [2, 3, 4]
    desk.commit(member, Commit(1, (Done(receipt.number),)))
    status = desk.group("grid/short", "g")
    assert (status.missed, status.lag_total, status.members[0].deliveries) == (2, 0, 0)
    stream.append(rows(5, 6))
    assert [batch.column("n").to_pylist() for _, batch in desk.poll(member, Wanted(after=receipt.number))] == [[5]]


def test_a_number_that_another_commit_has_is_refused(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 10))
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec(IN, "g"), "a"))
    first = desk.poll(member, Wanted(max_records=3))[0].receipt
    desk.commit(member, Commit(1, (Done(first.number),)))
    other = desk.poll(member, Wanted(max_records=3))[0].receipt
    with pytest.raises(TransactionOver, match="number 1 of 'a' was committed before, with something else"):
        desk.commit(member, Commit(1, (Done(other.number),)))
    assert not desk.commit(member, Commit(2, (Done(other.number),))).duplicate
    assert desk.group(IN, "g").lag_total == 4


def test_a_number_that_the_log_knows_and_the_member_never_tried_is_refused(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 10))
    mine, desk = consumer(pond), pond.group_desk()
    taken(mine, max_records=3)
    mine.commit()
    (state,) = pond.coordinator.each()[0]._members.values()
    state.outcomes.clear()
    state.last, state.tried, mine._number = 0, None, 0
    taken(mine, max_records=3)
    with pytest.raises(TransactionOver, match="with something else"), mine.transaction() as tx:
        tx.append(OUT, rows(0, 3))
    assert desk.group(IN, "g").lag_total == 7


def test_a_commit_that_landed_though_it_was_interrupted_is_recognised_when_it_is_sent_again(
    pond: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond.stream(IN).append(rows(0, 10))
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec(IN, "g"), "a"))
    commit = Commit(1, (Done(desk.poll(member, Wanted(max_records=3))[0].receipt.number),))
    real = desk._log.append_together

    def interrupted(*given: Any, **named: Any) -> Any:
        real(*given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(desk._log, "append_together", interrupted)
        with pytest.raises(KeyboardInterrupt):
            desk.commit(member, commit)
    assert desk.commit(member, commit).committed
    assert desk.group(IN, "g").lag_total == 7
