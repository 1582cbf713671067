"""A record that cannot be processed goes to the dead letters with the reason, and the group goes on."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.consume.share import SINGLE_AFTER
from millpond.errors import InvalidValue
from tests.consume.conftest import IN, OUT, consumer, rows, taken

DEAD = f"{IN}/dead"


def fails_on(*bad: int) -> Any:
    def function(batch: Any, tx: Any = None) -> None:
        found = batch.column("n").to_pylist()
        for n in bad:
            if n in found:
                raise ValueError(f"{n} is bad")
        if tx is not None:
            tx.append(OUT, batch.select(["key", "n"]))

    return function


def test_records_that_fail_are_found_and_the_rest_is_processed(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 100))
    mine = consumer(pond)
    done = mine.process(fails_on(17, 60), attempts=2, max_records=30, timeout="0s", transaction=True)
    assert (done.records, done.dead) == (98, 2)
    assert sorted(pond.stream(OUT).scan().column("n").to_pylist()) == [n for n in range(100) if n not in (17, 60)]
    dead = {row["reason"]: row for row in pond.stream(DEAD).scan().to_pylist()}
    assert set(dead) == {"ValueError: 17 is bad", "ValueError: 60 is bad"}
    one = dead["ValueError: 17 is bad"]
    assert (one["group"], one["attempts"], one["text"]) == ("g", 2, '{"key": "k3", "n": 17}')
    status = pond.group(IN, "g").status()
    assert (status.lag_total, status.dead) == (0, 2)


@pytest.mark.parametrize("strategy", ["round_robin", "hash"])
def test_dead_letters_keep_the_order_of_slots(pond: Any, strategy: str) -> None:
    pond.stream(IN).append(rows(0, 50))
    mine = consumer(pond, strategy=strategy)
    done = mine.process(fails_on(0, 25, 49), attempts=1, timeout="0s", transaction=True)
    assert (done.records, done.dead) == (47, 3)
    assert pond.group(IN, "g").status().lag_total == 0
    assert pond.stream(OUT).count() == 47


def test_a_dead_record_holds_nothing_of_its_neighbours(pond: Any) -> None:
    pond.stream(IN).append([{"key": f"secret-{n:02d}", "n": n} for n in range(50)])
    consumer(pond).process(fails_on(17), attempts=1, timeout="0s")
    (dead,) = pond.stream(DEAD).scan().to_pylist()
    assert (dead["record"].count(b"secret-17"), dead["record"].count(b"secret-")) == (1, 1)


def test_what_fails_only_at_times_is_not_given_up_on(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 10))
    calls = []

    def flaky(batch: Any) -> None:
        calls.append(batch.num_rows)
        if len(calls) < 3:
            raise OSError("not now")

    assert consumer(pond).process(flaky, attempts=5, timeout="0s").dead == 0
    assert DEAD not in [stream.name for stream in pond.streams()]


def test_dead_records_are_sent_back_once(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 20))
    consumer(pond).process(fails_on(3, 4), attempts=1, timeout="0s")
    consumer(pond, group="h").process(fails_on(5), attempts=1, timeout="0s")
    assert pond.group(IN, "h").replay().records == 1
    replayed = pond.replay(IN, limit=1)
    assert (replayed.records, replayed.waiting) == (1, 1)
    assert pond.replay(IN).records == 1
    assert pond.replay(IN).records == 0
    assert sorted(pond.stream(IN).scan().column("n").to_pylist()) == sorted([*range(20), 3, 4, 5])
    assert pond.replay(OUT).records == 0


def test_a_record_that_takes_its_consumers_with_it_is_found_and_given_up_on(pond: Any, clock: Any) -> None:
    """Whoever gets record 7 dies, without a word."""
    pond.stream(IN).append(rows(0, 20))
    for strategy in ("fifo", "round_robin"):
        processed: list[int] = []
        deaths = 0
        for _ in range(60):
            mine = consumer(pond, f"life-{deaths}", group=strategy, strategy=strategy)
            while found := taken(mine, max_records=10):
                if 7 in found:
                    deaths += 1
                    clock.advance("31s")
                    break
                mine.commit()
                processed += found
            else:
                break
        assert sorted(processed) == [n for n in range(20) if n != 7], strategy
        assert deaths == 5
        status = pond.group(IN, strategy).status()
        assert (status.lag_total, status.dead) == (0, 1)
    reasons = pond.stream(DEAD).scan().column("reason").to_pylist()
    assert reasons == ["5 consumers were lost while they had it"] * 2
    assert SINGLE_AFTER < 5


def test_a_record_that_kills_is_found_among_those_of_other_members(pond: Any, clock: Any) -> None:
    """Under a strategy where others' records lie between a member's own."""
    pond.stream(IN).append(rows(0, 60))
    deaths = 0
    processed: list[int] = []
    for life in range(80):
        steady = consumer(pond, "steady", strategy="hash", by="n")
        doomed = consumer(pond, f"life-{life}", strategy="hash", by="n")
        died = False
        while found := [(mine, taken(mine, max_records=8)) for mine in (steady, doomed)]:
            if not any(numbers for _, numbers in found):
                break
            for mine, numbers in found:
                if 33 in numbers:
                    died = True
                else:
                    mine.commit()
                    processed += numbers
            if died:
                break
        if not died:
            break
        deaths += 1
        clock.advance("31s")
    assert sorted(processed) == [n for n in range(60) if n != 33]
    assert deaths == 5
    assert [row["text"] for row in pond.stream(DEAD).scan().to_pylist()] == ['{"key": "k5", "n": 33}']


def test_attempts_are_counted_from_one(pond: Any) -> None:
    with pytest.raises(InvalidValue, match="attempts=0"):
        consumer(pond).process(print, attempts=0)
