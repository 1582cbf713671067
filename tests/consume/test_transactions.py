"""Outputs and position together or not at all, and numbers that have one outcome (C8)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from millpond.consume.group import Group
from millpond.consume.protocol import Commit, Done, GroupSpec, Join, Wanted
from millpond.errors import Fenced, InvalidRecord, InvalidValue, StreamNotFound, TransactionOver
from tests.consume.conftest import IN, OUT, SCHEMA, consumer, rows, taken


def test_a_transaction_commits_outputs_and_position_together(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 10))
    mine = consumer(pond)
    taken(mine)
    with mine.transaction() as tx:
        assert tx.append(OUT, rows(0, 10)) == 10
        assert tx.append(OUT, rows(10, 12)) == 2
        assert pond.stream(OUT).count() == 0
    assert pond.stream(OUT).count() == 12
    assert sum(mine.lag().values()) == 0
    assert [len(ack.ranges[0]) for ack in tx.outcome.acks] == [10, 2]


def test_a_transaction_that_fails_leaves_nothing_and_its_records_come_again(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 10))
    mine = consumer(pond)
    seen = taken(mine)
    with contextlib.suppress(ZeroDivisionError), mine.transaction() as tx:
        tx.append(OUT, rows(0, 10))
        raise ZeroDivisionError
    assert pond.stream(OUT).count() == 0
    assert taken(mine) == seen
    with mine.transaction() as tx:
        tx.append(OUT, rows(0, 10))
    assert pond.stream(OUT).count() == 10


@pytest.mark.parametrize("strategy", ["fifo", "round_robin", "hash"])
def test_what_is_aborted_comes_again_and_what_was_committed_does_not(pond: Any, strategy: str) -> None:
    pond.stream(IN).append(rows(0, 60))
    mine = consumer(pond, strategy=strategy)
    done = taken(mine, max_records=20)
    mine.commit()
    given_up = taken(mine, max_records=20)
    mine.abort()
    rest = taken(mine)
    assert set(given_up) <= set(rest)
    assert sorted(done + rest) == list(range(60))


def test_what_does_not_fit_is_refused_where_it_is_appended(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 3))
    mine = consumer(pond)
    taken(mine)
    with mine.transaction() as tx:
        with pytest.raises(InvalidRecord, match="'n'"):
            tx.append(OUT, [{"key": "k", "n": "three"}])
        with pytest.raises(StreamNotFound):
            tx.append("grid/nowhere", rows(0, 1))
        tx.append(OUT, rows(0, 1))
    assert pond.stream(OUT).count() == 1
    with pytest.raises(InvalidValue, match="the transaction is over"):
        tx.append(OUT, rows(0, 1))


def test_a_zombies_transaction_is_refused_and_leaves_nothing(pond: Any, clock: Any) -> None:
    pond.stream(IN).append(rows(0, 3))
    zombie = consumer(pond, "zombie")
    taken(zombie)
    clock.advance("31s")
    with pytest.raises(Fenced), zombie.transaction() as tx:
        tx.append(OUT, rows(0, 3))
    assert pond.stream(OUT).count() == 0
    other = consumer(pond, "other")
    assert sorted(taken(other)) == [0, 1, 2]


def test_a_number_has_one_outcome(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 10))
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec(IN, "g"), "a"))
    first = desk.poll(member, Wanted(max_records=3))[0].receipt
    commit = Commit(1, (Done(first.number),))
    assert not desk.commit(member, commit).duplicate
    again = desk.commit(member, commit)
    assert again.committed
    assert again.duplicate
    assert desk.abort(member, 1).committed
    late = desk.poll(member, Wanted(max_records=3))[0].receipt
    assert not desk.abort(member, 2).committed
    with pytest.raises(TransactionOver, match="number 2 of 'a' was aborted"):
        desk.commit(member, Commit(2, (Done(late.number),)))
    assert desk.group(IN, "g").lag_total == 7


def test_a_commit_that_is_sent_again_after_a_restart_is_recognised(reopen: Callable[[], Any]) -> None:
    pond = reopen()
    pond.create_stream(IN, SCHEMA).append(rows(0, 10))
    pond.create_stream(OUT, SCHEMA)
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec(IN, "g"), "a"))
    receipt = desk.poll(member, Wanted(max_records=10))[0].receipt
    outputs = desk.outputs()
    outputs.append(OUT, rows(0, 10))
    desk.commit(member, Commit(1, (Done(receipt.number),)), outputs)
    pond = reopen()
    desk = pond.group_desk()
    anew = desk.outputs()
    anew.append(OUT, rows(0, 10))
    outcome = desk.commit(member, Commit(1, (Done(receipt.number),)), anew)
    assert outcome.committed
    assert outcome.duplicate
    assert pond.stream(OUT).count() == 10
    with pytest.raises(Fenced, match="opened anew"):
        desk.commit(member, Commit(2, (Done(receipt.number),)))


def test_a_named_instance_never_meets_the_numbers_of_its_former_life(reopen: Callable[[], Any]) -> None:
    pond = reopen()
    pond.create_stream(IN, SCHEMA).append(rows(0, 9))
    for life in range(3):
        mine = consumer(pond, "same")
        assert taken(mine, max_records=3) == list(range(life * 3, life * 3 + 3))
        assert mine.commit().number == 1
        pond = reopen()
    assert pond.group(IN, "g").status().lag_total == 0


def test_outputs_without_a_consumer_are_all_or_none(pond: Any) -> None:
    with pond.transaction() as tx:
        tx.append(OUT, rows(0, 3))
        tx.append(IN, rows(0, 2))
        tx.append(OUT, [])
    assert [sum(len(r) for r in ack.ranges.values()) for ack in tx.acks] == [3, 2, 0]
    with contextlib.suppress(ZeroDivisionError), pond.transaction() as tx:
        tx.append(OUT, rows(0, 3))
        raise ZeroDivisionError
    assert (pond.stream(OUT).count(), pond.stream(IN).count()) == (3, 2)


@pytest.mark.parametrize("then", ["close", "commit"])
def test_an_interrupt_in_the_middle_of_a_commit_leaves_nothing_to_wait_for(
    pond: Any, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come where the commit was begun and nobody knows yet that it must be ended."""
    pond.stream(IN).append(rows(0, 10))
    mine = consumer(pond)
    taken(mine)
    whole = Group.end

    def interrupted(*_: Any) -> None:
        monkeypatch.setattr(Group, "end", whole)
        raise KeyboardInterrupt

    monkeypatch.setattr(Group, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mine.commit()
    if then == "commit":
        mine.commit()
        assert sum(mine.lag().values()) == 0
    mine.close(commit=False)
    assert pond.groups()[0].members == ()
