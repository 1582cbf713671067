"""Whatever a commit comes to, records that were not processed come again, and those that were do not.

The desk between consumer and group fails as it is told to: before a commit, or after it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from millpond.consume.consumer import Consumer
from millpond.consume.protocol import Commit, GroupDesk, GroupSpec, Join, Outcome, Outputs
from millpond.errors import (
    Backpressure,
    DiskFull,
    Fenced,
    InvalidValue,
    MillpondError,
    TransactionOver,
    Unavailable,
)
from tests.consume.conftest import IN, OUT, consumer, taken

FULL = DiskFull("no room", hint="make some")
AWAY = Unavailable("no answer", hint="wait")


class Faulty:
    """The pond's own desk. `faults`: per commit what goes wrong, and whether that is after it happened."""

    def __init__(self, desk: GroupDesk) -> None:
        self._desk = desk
        self.faults: list[tuple[BaseException, bool] | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk, name)

    def commit(self, member: Any, commit: Commit, outputs: Outputs | None = None) -> Outcome:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and not fault[1]:
            raise fault[0]
        outcome = self._desk.commit(member, commit, outputs)
        if fault is not None:
            raise fault[0]
        return outcome


@pytest.fixture
def desk(pond: Any) -> Faulty:
    pond.stream(IN).append([{"key": "k", "n": n} for n in range(10)])
    return Faulty(pond.group_desk())


@pytest.fixture
def mine(desk: Faulty) -> Consumer:
    return Consumer(desk, Join(GroupSpec(IN, "g"), "a"), heartbeat=False)  # type: ignore[arg-type]


def copy(batch: Any, tx: Any) -> None:
    tx.append(OUT, batch.select(["key", "n"]))


def copied(pond: Any) -> list[int]:
    return sorted(pond.stream(OUT).scan().column("n").to_pylist())


# Processing.


def test_what_processing_failed_to_commit_is_processed_when_it_is_called_again(
    pond: Any, desk: Faulty, mine: Consumer
) -> None:
    desk.faults = [(FULL, False)]
    with pytest.raises(DiskFull):
        mine.process(copy, transaction=True, timeout="0s")
    assert mine.process(copy, transaction=True, timeout="0s").records == 10
    assert copied(pond) == list(range(10))


@pytest.mark.parametrize("fault", [FULL, AWAY, KeyboardInterrupt()])
def test_nothing_that_comes_after_it_commits_what_processing_did_not(
    pond: Any, desk: Faulty, mine: Consumer, fault: BaseException
) -> None:
    desk.faults = [(fault, False)]
    with pytest.raises(type(fault)):
        mine.process(copy, transaction=True, timeout="0s")
    mine.commit()
    mine.close()
    assert copied(pond) == []
    assert sorted(taken(consumer(pond, "b"))) == list(range(10))


def test_a_function_that_is_interrupted_has_not_processed_its_batch(pond: Any, mine: Consumer) -> None:
    def interrupted(batch: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mine.process(interrupted, timeout="0s")
    mine.close()
    assert pond.group(IN, "g").status().lag_total == 10


def test_a_batch_whose_commit_was_in_doubt_is_processed_once(pond: Any, desk: Faulty, mine: Consumer) -> None:
    desk.faults = [None, (AWAY, True)]
    with pytest.raises(Unavailable):
        mine.process(copy, transaction=True, max_records=2, timeout="0s")
    assert mine.process(copy, transaction=True, max_records=2, timeout="0s").records == 6
    assert copied(pond) == list(range(10))


def test_a_piece_in_doubt_does_not_take_the_rest_of_its_batch_with_it(pond: Any, desk: Faulty, mine: Consumer) -> None:
    def picky(batch: Any, tx: Any) -> None:
        if 7 in batch.column("n").to_pylist():
            raise ValueError(7)
        copy(batch, tx)

    desk.faults = [(AWAY, True)]
    with pytest.raises(Unavailable):
        mine.process(picky, attempts=1, transaction=True, timeout="0s")
    mine.commit()
    done = mine.process(picky, attempts=1, transaction=True, timeout="0s")
    assert done.dead == 1
    assert copied(pond) == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_what_was_iterated_and_not_committed_before_is_processed_too(pond: Any, mine: Consumer) -> None:
    assert taken(mine, max_records=3) == [0, 1, 2]
    mine.commit(wait=False)
    assert taken(mine, max_records=3) == [3, 4, 5]
    assert mine.process(copy, transaction=True, timeout="0s").records == 7
    assert copied(pond) == list(range(3, 10))


def test_a_close_while_a_batch_is_processed_does_not_commit_it(pond: Any, mine: Consumer) -> None:
    def closing(batch: Any, tx: Any) -> None:
        copy(batch, tx)
        mine.close()

    with pytest.raises(InvalidValue, match="was closed"):
        mine.process(closing, transaction=True, timeout="0s")
    assert copied(pond) == []
    assert pond.group(IN, "g").status().lag_total == 10


# Numbers.


def test_a_commit_that_may_have_happened_is_not_over_because_an_attempt_was_refused(
    pond: Any, desk: Faulty, mine: Consumer
) -> None:
    busy = Backpressure("busy", hint="later")
    desk.faults = [(AWAY, True), (busy, False)]
    first = next(mine.poll(max_records=5, timeout="0s"))
    with pytest.raises(Unavailable), mine.transaction() as tx:
        copy(first, tx)
    assert mine.in_doubt
    with pytest.raises(Backpressure):
        mine.transaction()
    assert mine.in_doubt
    second = next(mine.poll(max_records=5, timeout="0s"))
    with mine.transaction() as tx:
        copy(second, tx)
    assert not tx.outcome.duplicate
    assert copied(pond) == list(range(10))
    assert pond.group(IN, "g").status().lag_total == 0


def test_a_number_that_was_sent_is_never_used_for_anything_else(pond: Any, desk: Faulty, mine: Consumer) -> None:
    """Also when the desk said that nothing happened, and it had."""
    taken(mine, max_records=5)
    desk.faults = [(FULL, True)]
    with pytest.raises(DiskFull):
        mine.commit()
    for _ in range(2):
        with contextlib.suppress(InvalidValue):
            for batch in mine.poll(max_records=5, timeout="0s"):
                with mine.transaction() as tx:
                    copy(batch, tx)
    assert copied(pond) == list(range(5, 10))
    assert pond.group(IN, "g").status().lag_total == 0


def test_a_transaction_that_turns_out_not_to_have_happened_is_given_back(
    pond: Any, desk: Faulty, mine: Consumer
) -> None:
    over = TransactionOver("its stages are gone", hint="write again")
    desk.faults = [(AWAY, False), (over, False)]
    for _ in range(4):
        with contextlib.suppress(MillpondError):
            for batch in mine.poll(max_records=5, timeout="0s"):
                with mine.transaction() as tx:
                    copy(batch, tx)
    assert copied(pond) == list(range(10))


def test_a_transaction_behind_a_commit_in_doubt_is_rolled_back_if_it_cannot_be_sent(
    pond: Any, desk: Faulty, mine: Consumer
) -> None:
    batch = next(mine.poll(max_records=5, timeout="0s"))
    desk.faults = [(AWAY, False), (AWAY, False)]
    tx = mine.transaction()
    copy(batch, tx)
    with pytest.raises(Unavailable):
        mine.commit()
    with pytest.raises(Unavailable), tx:
        pass
    mine.commit()
    assert copied(pond) == []
    assert taken(mine) == list(range(10))


# Giving back.


@pytest.mark.parametrize("fault", [FULL, AWAY])
def test_what_is_aborted_comes_again_although_a_commit_before_it_failed(
    pond: Any, desk: Faulty, mine: Consumer, fault: MillpondError
) -> None:
    taken(mine, max_records=5)
    mine.commit(wait=False)
    batch = next(mine.poll(max_records=5, timeout="0s"))
    desk.faults = [(fault, False)]
    with contextlib.suppress(ZeroDivisionError), mine.transaction() as tx:
        copy(batch, tx)
        raise ZeroDivisionError
    mine.commit()
    assert set(range(5, 10)) <= set(taken(mine))
    assert copied(pond) == []


def test_records_go_on_with_what_comes_again_after_a_transaction_failed(pond: Any, mine: Consumer) -> None:
    seen = []
    for record in mine.records(timeout="0s"):
        seen.append(record["n"])
        with contextlib.suppress(ZeroDivisionError), mine.transaction() as tx:
            tx.append(OUT, [{"key": "k", "n": record["n"]}])
            if seen == [0, 1, 2]:
                raise ZeroDivisionError
    assert seen == [0, 1, 2, *range(2, 10)]
    assert copied(pond) == list(range(10))


def test_a_poll_among_records_takes_what_is_left_of_a_batch(mine: Consumer) -> None:
    seen: list[int] = []
    for record in mine.records(timeout="0s"):
        seen.append(record["n"])
        if record["n"] == 3:
            seen += taken(mine, max_records=4)
    assert seen == list(range(10))


def test_whoever_was_fenced_while_in_doubt_joins_anew(pond: Any, clock: Any, desk: Faulty, mine: Consumer) -> None:
    taken(mine, max_records=5)
    desk.faults = [(AWAY, False)]
    with pytest.raises(Unavailable):
        mine.commit()
    clock.advance("31s")
    with pytest.raises(Fenced):
        mine.commit()
    assert taken(mine) == list(range(10))
