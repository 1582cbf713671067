"""Who gets which records: each to one member, in order where order is promised, whoever comes and goes (C8, C10)."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.errors import Fenced
from tests.consume.conftest import IN, consumer, rows, taken

STRATEGIES = [("fifo", None), ("round_robin", None), ("hash", "key"), ("hash", "n")]


@pytest.mark.parametrize(("strategy", "by"), STRATEGIES)
def test_members_share_a_stream_and_nobody_gets_what_another_has(pond: Any, strategy: str, by: str | None) -> None:
    pond.stream(IN).append(rows(0, 500))
    members = [consumer(pond, name, strategy=strategy, by=by) for name in "abc"]
    found = [taken(member, max_records=100) for member in members]
    assert all(found)
    together = [n for each in found for n in each]
    assert len(set(together)) == len(together)
    for member in members:
        member.commit()
    rest = [n for member in members for n in taken(member)]
    assert sorted(together + rest) == list(range(500))


def test_a_hash_keeps_a_value_with_one_member_and_in_order(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 700))
    members = [consumer(pond, name, strategy="hash", by="key") for name in "ab"]
    found = [taken(member) for member in members]
    keys = [{n % 7 for n in each} for each in found]
    assert not keys[0] & keys[1]
    assert keys[0] | keys[1] == set(range(7))
    for each in found:
        for key in {n % 7 for n in each}:
            mine = [n for n in each if n % 7 == key]
            assert mine == sorted(mine)


@pytest.mark.parametrize("strategy", ["round_robin", "hash"])
def test_a_slot_moves_only_once_its_owner_has_committed_what_it_holds(pond: Any, strategy: str) -> None:
    by = "n" if strategy == "hash" else None
    pond.stream(IN).append(rows(0, 200))
    old = consumer(pond, "old", strategy=strategy, by=by)
    held = taken(old, max_records=50)
    new = consumer(pond, "new", strategy=strategy, by=by)
    assert taken(new) == []
    old.commit()
    moved = taken(new)
    assert moved
    assert sorted(held + moved + taken(old)) == list(range(200))


@pytest.mark.parametrize("strategy", ["round_robin", "hash"])
def test_who_takes_over_slots_that_are_behind_gets_only_what_is_behind(pond: Any, strategy: str) -> None:
    pond.stream(IN).append(rows(0, 200))
    ahead, behind = (consumer(pond, name, strategy=strategy) for name in "ab")
    mine = taken(ahead)
    ahead.commit()
    assert 0 < len(mine) < 200
    behind.close()
    assert sorted(mine + taken(ahead)) == list(range(200))


@pytest.mark.parametrize(("strategy", "by"), STRATEGIES)
def test_what_a_member_leaves_behind_goes_to_the_others_at_once(pond: Any, strategy: str, by: str | None) -> None:
    pond.stream(IN).append(rows(0, 100))
    first, second = (consumer(pond, name, strategy=strategy, by=by) for name in "ab")
    mine = taken(first)
    first.close(commit=False)
    assert set(mine) <= {*taken(second), *taken(second)}
    second.commit()
    assert sum(second.lag().values()) == 0


@pytest.mark.parametrize(("strategy", "by"), STRATEGIES)
def test_who_is_away_for_longer_than_its_lease_is_expelled_and_told_why(
    pond: Any, clock: Any, strategy: str, by: str | None
) -> None:
    pond.stream(IN).append(rows(0, 10))
    zombie = consumer(pond, "zombie", strategy=strategy, by=by)
    assert len(taken(zombie)) == 10
    clock.advance("31s")
    other = consumer(pond, "other", strategy=strategy, by=by)
    assert len(taken(other)) == 10
    with pytest.raises(Fenced, match=r"away for 31\.0 s") as refused:
        zombie.commit()
    assert "joins anew" in refused.value.hint
    other.commit()
    assert sum(other.lag().values()) == 0


def test_an_expelled_consumer_that_holds_nothing_joins_again_without_a_word(pond: Any, clock: Any) -> None:
    idle = consumer(pond, "idle")
    clock.advance("31s")
    pond.stream(IN).append(rows(0, 3))
    assert sorted(taken(idle)) == [0, 1, 2]


def test_a_poll_after_an_expulsion_tells_whoever_has_work_that_is_void(pond: Any, clock: Any) -> None:
    pond.stream(IN).append(rows(0, 3))
    paused = consumer(pond, "paused")
    taken(paused)
    clock.advance("31s")
    with pytest.raises(Fenced):
        taken(paused)
    assert sorted(taken(paused)) == [0, 1, 2]


def test_heartbeats_polls_and_commits_renew_a_lease(pond: Any, clock: Any) -> None:
    pond.stream(IN).append(rows(0, 10))
    steady = consumer(pond)
    for act in (steady.alive, lambda: taken(steady, max_records=1), steady.commit, steady.alive):
        clock.advance("29s")
        act()
    assert pond.group(IN, "g").status().members[0].instance == "a"


def test_whoever_joins_under_a_name_takes_the_place_of_the_one_before(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 3))
    first = consumer(pond, "same")
    taken(first)
    second = consumer(pond, "same")
    assert sorted(taken(second)) == [0, 1, 2]
    with pytest.raises(Fenced, match="another consumer joined as 'same'"):
        first.commit()


def test_a_delivery_whose_answer_was_lost_is_given_again(pond: Any) -> None:
    from millpond.consume.protocol import Commit, Done, GroupSpec, Join, Wanted

    pond.stream(IN).append(rows(0, 40))
    desk = pond.group_desk()
    for strategy in ("fifo", "round_robin"):
        member = desk.join(Join(GroupSpec(IN, strategy, strategy), "a"))
        lost = desk.poll(member, Wanted(max_records=10, after=0))
        again = desk.poll(member, Wanted(max_records=10, after=0))
        assert [receipt for receipt, _ in again] == [receipt for receipt, _ in lost]
        assert [batch.to_pylist() for _, batch in again] == [batch.to_pylist() for _, batch in lost]
        desk.commit(member, Commit(1, tuple(Done(receipt.number) for receipt, _ in again)))
        assert desk.group(IN, strategy).lag_total == 30
