"""How far a group has come: what a commit covers, what survives, where it can be moved (C8, C9, C12)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millpond.consume.positions import Change, GroupState, StoredGroup
from millpond.consume.ranges import DoneRanges
from millpond.errors import Fenced, GroupConflict, GroupNotFound, InvalidValue, OffsetGone, StreamNotFound
from tests.consume.conftest import IN, SCHEMA, consumer, rows, taken


def test_a_commit_covers_exactly_what_was_iterated(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 100))
    mine = consumer(pond)
    seen = []
    for record in mine.records(timeout="0s"):
        seen.append(record["n"])
        if len(seen) == 13:
            break
    mine.commit()
    assert sum(mine.lag().values()) == 87
    mine.abort()
    assert sorted(seen + taken(mine)) == list(range(100))


@pytest.mark.parametrize("strategy", ["fifo", "round_robin", "hash"])
def test_a_position_survives_and_the_rest_is_delivered_again(reopen: Callable[[], Any], strategy: str) -> None:
    pond = reopen()
    pond.create_stream(IN, SCHEMA, keys=["key"], streamlets=2).append(rows(0, 100))
    mine = consumer(pond, strategy=strategy)
    done = taken(mine, max_records=40)
    mine.commit()
    taken(mine, max_records=30)
    pond = reopen()
    assert pond.group(IN, "g").status().lag_total == 60
    assert sorted(done + taken(consumer(pond, strategy=strategy))) == list(range(100))


def test_positions_are_saved_when_a_consumer_is_closed_but_not_when_its_block_fails(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 10))
    with contextlib.suppress(ZeroDivisionError), consumer(pond) as failing:
        assert len(taken(failing)) == 10
        raise ZeroDivisionError
    assert pond.group(IN, "g").status().lag_total == 10
    with consumer(pond) as closing:
        assert len(taken(closing)) == 10
    assert pond.group(IN, "g").status().lag_total == 0


def test_commits_that_are_not_waited_for_are_written_by_the_time_of_an_idle_poll_or_the_close(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 30))
    mine = consumer(pond)
    for _ in range(3):
        taken(mine, max_records=5)
        assert mine.commit(wait=False) is None
    assert pond.group(IN, "g").status().lag_total == 30
    assert len(taken(mine)) == 15
    assert taken(mine) == []
    assert pond.group(IN, "g").status().lag_total == 15
    mine.commit(wait=False)
    mine.close(commit=False)
    assert pond.group(IN, "g").status().lag_total == 0


def test_records_are_the_same_whether_live_or_settled_meanwhile(pond: Any) -> None:
    stream = pond.stream(IN)
    stream.append(rows(0, 100))
    mine = consumer(pond)
    seen = taken(mine, max_records=10)
    stream.settle()
    stream.append(rows(100, 150))
    assert sorted(seen + taken(mine)) == list(range(150))


def test_seek_goes_to_a_place_or_a_time_and_moves_the_whole_group(pond: Any, clock: Any) -> None:
    stream = pond.stream(IN)
    stream.append(rows(0, 10))
    clock.advance("10s")
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.now_micros())
    stream.append(rows(10, 20))
    mine, other = consumer(pond, "a"), consumer(pond, "b")
    assert len(taken(mine)) == 20
    mine.seek(moment)
    assert sorted(taken(mine)) == list(range(10, 20))
    change = mine.seek("earliest")
    assert (change.again, change.skipped) == (10, 0)
    assert sorted(taken(mine)) == list(range(20))
    mine.seek("latest")
    assert taken(mine) == []
    assert sum(mine.lag().values()) == 0
    mine.seek({0: 1, 1: 2})
    assert mine.position() == {0: 1, 1: 2}
    assert len(taken(other)) == 17


def test_a_reset_shows_first_what_it_will_do(pond: Any) -> None:
    pond.stream(IN).append(rows(0, 20))
    mine = consumer(pond)
    taken(mine)
    mine.commit()
    group = pond.group(IN, "g")
    plan = group.reset("earliest")
    assert plan.preview
    assert (plan.again, plan.skipped, plan.expelled) == (20, 0, ("a",))
    assert group.status().lag_total == 0
    assert group.reset("earliest", preview=False).after == {0: 0, 1: 0}
    assert group.status().lag_total == 20
    with pytest.raises(Fenced, match="moved to earliest"):
        mine.alive()


def test_a_deleted_group_is_gone_after_a_reopen_and_its_members_are_told(reopen: Callable[[], Any]) -> None:
    pond = reopen()
    pond.create_stream(IN, SCHEMA).append(rows(0, 5))
    mine = consumer(pond)
    taken(mine)
    pond.group(IN, "g").delete()
    with pytest.raises(Fenced, match="gone"):
        mine.commit()
    with pytest.raises(GroupNotFound, match="no group 'g'"):
        pond.group(IN, "g")
    assert reopen().groups() == []


def test_a_group_ends_with_its_stream(reopen: Callable[[], Any]) -> None:
    pond = reopen()
    pond.create_stream(IN, SCHEMA).append(rows(0, 5))
    mine = consumer(pond)
    taken(mine)
    pond.drop_stream(IN)
    assert pond.groups() == []
    with pytest.raises((StreamNotFound, Fenced)):
        mine.commit()
    pond.create_stream(IN, SCHEMA).append(rows(5, 7))
    assert taken(consumer(pond)) == [5, 6]
    assert [group.lag_total for group in reopen().groups()] == [2]


def test_positions_are_written_together_and_older_records_let_go(reopen: Callable[[], Any]) -> None:
    pond = reopen()
    pond.create_stream(IN, SCHEMA).append(rows(0, 50))
    mine = consumer(pond)
    for _ in range(50):
        taken(mine, max_records=1)
        mine.commit()
    before = pond.log.starts(3)[0]
    pond.coordinator.compact()
    assert pond.log.starts(3)[0] - before > 50
    pond = reopen()
    assert pond.group(IN, "g").status().positions == {0: 50}
    again = consumer(pond)
    assert taken(again) == []


def test_an_epoch_is_never_given_twice(reopen: Callable[[], Any]) -> None:
    pond = reopen()
    pond.create_stream(IN, SCHEMA)
    epochs = []
    for _ in range(3):
        mine = consumer(pond)
        epochs.append(pond.group(IN, "g").status().members[0].epoch)
        mine.close()
        pond.coordinator.compact()
        pond = reopen()
    assert len(set(epochs)) == 3
    assert epochs == sorted(epochs)


def test_done_ranges_meet_and_merge() -> None:
    done = DoneRanges(5)
    done.add(10, 12)
    done.add(20, 30)
    done.add(12, 15)
    assert (done.low, done.above, done.count_above) == (5, [(10, 15), (20, 30)], 15)
    assert list(done.gaps()) == [(5, 10), (15, 20)]
    assert done.holds(10, 15)
    assert not done.holds(9, 15)
    done.add(5, 20)
    assert (done.low, done.above) == (30, [])


@pytest.mark.parametrize("strategy", ["fifo", "round_robin", "hash"])
def test_a_truncated_stream_is_begun_anew_and_receipts_of_before_are_refused(
    reopen: Callable[[], Any], strategy: str
) -> None:
    pond = reopen()
    stream = pond.create_stream(IN, SCHEMA, keys=["key"], streamlets=2)
    stream.append(rows(0, 40))
    mine = consumer(pond, strategy=strategy)
    taken(mine, max_records=10)
    mine.commit()
    taken(mine, max_records=10)
    stream.truncate(preview=False)
    stream.append(rows(100, 105))
    with pytest.raises(Fenced, match="was truncated; this is generation 2"):
        mine.commit()
    assert sorted(taken(mine)) == list(range(100, 105))
    mine.commit()
    status = reopen().group(IN, "g").status()
    assert (status.generation, status.lag_total) == (2, 0)


# Bad input.


def test_a_group_cannot_be_used_another_way(pond: Any) -> None:
    consumer(pond, strategy="hash", by="key")
    with pytest.raises(GroupConflict, match="works as hash by 'key', not as fifo"):
        consumer(pond, "b")
    with pytest.raises(GroupConflict, match="not as hash by 'n'"):
        consumer(pond, "b", strategy="hash", by="n")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"strategy": "lifo"}, "no strategy 'lifo'"),
        ({"strategy": "hash", "by": "nothing"}, "no column 'nothing'"),
        ({"by": "key"}, "fifo by 'key'"),
        ({"group": ""}, "not a group's name"),
        ({"lease_seconds": 0.0}, "a lease of 0"),
        ({"kills_max": 2}, "kills_max=2"),
        ({"start": 99}, "which of the 2 streamlets"),
        ({"start": {0: 99}}, "streamlet 0 has no offset 99"),
        ({"start": "someday"}, "no place to start"),
        ({"durability": "forever"}, "no durability"),
    ],
)
def test_a_consumer_that_cannot_be_is_refused_before_anything_is_written(
    pond: Any, how: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidValue, match=words):
        consumer(pond, **how)
    assert pond.groups() == []


def test_an_offset_beyond_the_head_or_before_what_is_kept_is_refused(pond: Any) -> None:
    stream = pond.create_stream("grid/kept", SCHEMA, settle=None)
    stream.append(rows(0, 20))
    pond.log.release(stream.definition.id, {0: 8})
    from millpond.consume.protocol import GroupSpec, Join

    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec("grid/kept", "g"), "a"))
    with pytest.raises(OffsetGone, match="offset 3 of streamlet 0 of grid/kept is not kept any more"):
        desk.seek(member, 3)
    with pytest.raises(InvalidValue, match="has no offset 21"):
        desk.seek(member, 21)
    assert desk.group("grid/kept", "g").positions == {0: 8}


def test_a_group_whose_records_are_gone_moves_forward_and_says_how_many_it_missed(pond: Any) -> None:
    from millpond.consume.consumer import Consumer
    from millpond.consume.protocol import GroupSpec, Join

    stream = pond.create_stream("grid/kept", SCHEMA, settle=None)
    stream.append(rows(0, 20))
    for strategy in ("fifo", "round_robin"):
        pond.group_desk().join(Join(GroupSpec("grid/kept", strategy, strategy), "early"))
    pond.log.release(stream.definition.id, {0: 8})
    for strategy in ("fifo", "round_robin"):
        spec = GroupSpec("grid/kept", strategy, strategy)
        late = Consumer(pond.group_desk(), Join(spec, "early"), heartbeat=False)
        assert taken(late) == list(range(8, 20))
        assert late.missed == 8
        late.commit()
        assert pond.group("grid/kept", strategy).status().missed == 8


def test_commits_that_make_no_sense_are_refused(pond: Any) -> None:
    from millpond.consume.protocol import Commit, Done, GroupSpec, Join, Wanted

    pond.stream(IN).append(rows(0, 60))
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec(IN, "g", "round_robin"), "a"))
    first = desk.poll(member, Wanted(max_records=10))[0].receipt
    others = [each.receipt for each in desk.poll(member, Wanted(max_records=60))]
    second = next(receipt for receipt in others if receipt.streamlet == first.streamlet)
    for done, words in [
        ((Done(999),), "delivery 999 is not one that 'a' holds"),
        ((Done(first.number, first.stop + 1),), "not up to"),
        ((Done(first.number), Done(first.number)), "twice"),
        ((Done(second.number),), "is committed before delivery"),
    ]:
        with pytest.raises(InvalidValue, match=words):
            desk.commit(member, Commit(1, done))
    with pytest.raises(InvalidValue, match="number 0"):
        desk.abort(member, 0)
    with pytest.raises(InvalidValue, match="number 0"):
        desk.commit(member, Commit(0, (Done(first.number),)))
    assert desk.commit(member, Commit(1, (Done(first.number), Done(second.number)))).committed


# What is measured (K14).


def test_a_groups_lag_and_latencies_are_measured(pond: Any, clock: Any) -> None:
    from millpond.serve.metrics import MetricsPage
    from millpond.telemetry import DoorCounters

    mine = consumer(pond)
    pond.stream(IN).append(rows(0, 10))
    clock.advance("2s")
    assert len(taken(mine)) == 10
    clock.advance("3s")
    page = MetricsPage(pond, DoorCounters(), clock)
    labels = f'group="g",stream="{IN}"'
    text = page.render()[0].decode()
    assert f"millpond_group_lag_records{{{labels}}} 10.0" in text
    assert f"millpond_group_held_records{{{labels}}} 10.0" in text
    mine.commit()
    pond.stream(IN).append(rows(10, 14))
    text = page.render()[0].decode()
    assert f"millpond_group_lag_records{{{labels}}} 4.0" in text
    assert f'millpond_group_latency_seconds_sum{{group="g",stage="buffered",stream="{IN}"}} 20.0' in text
    assert f'millpond_group_latency_seconds_sum{{group="g",stage="processed",stream="{IN}"}} 50.0' in text


def test_pins_are_what_the_slowest_group_has_not_processed(pond: Any) -> None:
    stream_id = pond.stream(IN).definition.id
    assert pond.coordinator.pins(stream_id) == {}
    pond.stream(IN).append(rows(0, 50))
    fast, slow = consumer(pond, group="fast"), consumer(pond, group="slow", strategy="round_robin")
    taken(fast)
    fast.commit()
    taken(slow, max_records=5)
    slow.commit()
    heads = pond.log.heads(stream_id)
    pins = pond.coordinator.pins(stream_id)
    assert all(0 <= pins[streamlet] < heads[streamlet] for streamlet in heads)
    taken(slow)
    slow.commit()
    assert {s: pin for s, pin in pond.coordinator.pins(stream_id).items() if s in heads} == heads


def test_a_group_knows_from_where_on_it_was_given_everything() -> None:
    state = GroupState("fifo", None, 1).moved({0: 0, 1: 40}, 1)
    assert state.began == {0: 0, 1: 40}
    state.apply(Change(1, ((0, 0, 10), (1, 40, 50))), 0)
    assert state.moved({0: 4, 1: 30}, 1).began == {0: 0, 1: 30}, "back to what it had, and before"
    assert state.moved({0: 11, 1: 50}, 1).began == {0: 11, 1: 40}, "past a record, and where it is"
    assert state.moved({0: 4, 1: 40}, 2).began == {0: 4, 1: 40}, "another generation's offsets are others"
    assert GroupState.of(state.stored()).began == {0: 0, 1: 40}
    old = StoredGroup("fifo", None, 1, {0: (10, ())})
    assert GroupState.of(old).began == {0: 10}, "one written before this was known has no claim"
