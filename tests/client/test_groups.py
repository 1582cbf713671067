"""Consumers, groups and transactions of a served pond are those of an embedded one, also when answers are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from millpond.client.pond import RemotePond
from millpond.consume.protocol import Commit, Done, GroupSpec, Join, Wanted
from millpond.errors import (
    Fenced,
    Forbidden,
    GroupConflict,
    GroupNotFound,
    InvalidRecord,
    MillpondError,
    TooManyRequests,
    TransactionOver,
    Unavailable,
)
from millpond.pond.desk import PondDesk
from millpond.wire import group_requests as ask
from millpond.wire.access import Grant
from tests.client.conftest import Served

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])


@pytest.fixture
def pond(served: Served) -> RemotePond:
    return served.connect()


def fill(pond: RemotePond, count: int, *, streamlets: int = 2) -> None:
    stream = pond.create_stream("in", SCHEMA, keys=["key"], streamlets=streamlets)
    stream.append([{"key": f"k{n % 5}", "n": n} for n in range(count)])


def numbers(pond: RemotePond, stream: str) -> list[int]:
    found: list[int] = sorted(pond.stream(stream).scan(columns=["n"])["n"].to_pylist())
    return found


def test_every_record_is_copied_once_in_transactions(pond: RemotePond) -> None:
    fill(pond, 1_000)
    pond.create_stream("out", SCHEMA)
    with pond.consumer("in", group="copy", strategy="hash", by="key") as consumer:
        for batch in consumer.poll(max_records=1_000, timeout="2s"):
            with consumer.transaction() as transaction:
                transaction.append("out", batch.select(["key", "n"]))
            assert transaction.outcome is not None
            assert sum(len(offsets) for ack in transaction.outcome.acks for offsets in ack.ranges.values()) > 0
        assert consumer.lag() == {0: 0, 1: 0}
    assert numbers(pond, "out") == list(range(1_000))


def test_a_transaction_that_fails_leaves_nothing_and_its_records_come_again(pond: RemotePond) -> None:
    fill(pond, 10, streamlets=1)
    pond.create_stream("out", SCHEMA)
    with pond.consumer("in", group="copy") as consumer:
        batch = next(consumer.poll(timeout="2s"))

        def fail_halfway() -> None:
            with consumer.transaction() as transaction:
                transaction.append("out", batch.select(["key", "n"]))
                raise RuntimeError("halfway")

        with pytest.raises(RuntimeError, match="halfway"):
            fail_halfway()
        assert numbers(pond, "out") == []
        with pytest.raises(InvalidRecord), consumer.transaction() as transaction:
            transaction.append("out", {"key": "k", "n": "not a number"})
        assert [n for batch in consumer.poll(timeout="2s") for n in batch["n"].to_pylist()] == list(range(10))


def test_a_commit_whose_answer_was_lost_is_answered_again(pond: RemotePond) -> None:
    """Also when its stages are gone, which a first commit sees to."""
    fill(pond, 10, streamlets=1)
    pond.create_stream("out", SCHEMA)
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec("in", "g"), "i"))
    (delivery,) = desk.poll(member, Wanted(wait_seconds=2))
    outputs = desk.outputs()
    outputs.append("out", {"key": "k", "n": 1})
    commit = Commit(1, (Done(delivery.receipt.number),))
    first = desk.commit(member, commit, outputs)
    again = desk.commit(member, commit, outputs)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert numbers(pond, "out") == [1]
    assert desk.abort(member, 1).committed
    desk.abort(member, 2)
    with pytest.raises(TransactionOver):
        desk.commit(member, Commit(2))


def test_what_was_handed_out_and_never_arrived_is_handed_out_again(pond: RemotePond) -> None:
    fill(pond, 10, streamlets=1)
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec("in", "g"), "i"))
    (first,) = desk.poll(member, Wanted(max_records=4, wait_seconds=2, after=0))
    (again,) = desk.poll(member, Wanted(max_records=4, wait_seconds=2, after=0))
    assert (first.receipt, first.batch) == (again.receipt, again.batch)
    (second,) = desk.poll(member, Wanted(max_records=4, wait_seconds=2))
    assert second.receipt.start == 4


def test_transactions_without_a_consumer_happen_once(pond: RemotePond) -> None:
    for name in ("a", "b"):
        pond.create_stream(name, SCHEMA)
    desk = pond.group_desk()
    outputs = desk.outputs()
    outputs.append("a", {"key": "k", "n": 1})
    outputs.append("b", [{"key": "k", "n": 2}, {"key": "k", "n": 3}])
    acks = desk.append_all(outputs, "me", 1)
    assert [sum(map(len, ack.ranges.values())) for ack in acks] == [1, 2]
    again = desk.append_all(outputs, "me", 1)
    assert [ack.duplicate for ack in again] == [True, True]
    assert (numbers(pond, "a"), numbers(pond, "b")) == ([1], [2, 3])


def test_whoever_takes_a_members_place_fences_it(pond: RemotePond) -> None:
    fill(pond, 10, streamlets=1)
    with pond.consumer("in", group="g", instance="one") as old:
        assert sum(batch.num_rows for batch in old.poll(timeout="2s")) == 10
        with pond.consumer("in", group="g", instance="one") as new:
            with pytest.raises(Fenced, match="one"):
                old.commit()
            assert sum(batch.num_rows for batch in new.poll(timeout="2s")) == 10


def test_groups_are_looked_after_from_outside(pond: RemotePond) -> None:
    fill(pond, 10, streamlets=1)
    with pond.consumer("in", group="g") as consumer:
        assert sum(batch.num_rows for batch in consumer.poll(timeout="2s")) == 10
    with pytest.raises(GroupConflict):
        pond.consumer("in", group="g", strategy="round_robin")
    group = pond.group("in", "g")
    assert group.status().positions == {0: 10}
    assert group.reset("earliest").preview
    assert group.status().positions == {0: 10}
    change = group.reset({0: 4}, preview=False)
    assert (change.before, change.after, change.again) == ({0: 10}, {0: 4}, 6)
    assert [each.lag_total for each in pond.groups("in")] == [6]
    group.delete()
    with pytest.raises(GroupNotFound):
        pond.group("in", "g")


def test_who_may_read_may_consume_and_no_more(served: Served, pond: RemotePond) -> None:
    fill(pond, 10, streamlets=1)
    pond.create_stream("out", SCHEMA)
    served.stop()
    served.start(Grant("", frozenset(("read",))))
    reader = served.connect()
    with reader.consumer("in", group="g") as consumer:
        assert sum(batch.num_rows for batch in consumer.poll(timeout="2s")) == 10
        refused: list[Callable[[], object]] = [
            lambda: consumer.transaction().append("out", {"key": "k", "n": 1}),
            lambda: reader.group("in", "g").reset("earliest"),
            lambda: reader.group("in", "g").delete(),
            lambda: reader.replay("in"),
        ]
        for act in refused:
            with pytest.raises(Forbidden):
                act()


def test_a_node_that_was_away_knows_what_was_committed(served: Served, pond: RemotePond) -> None:
    fill(pond, 10, streamlets=1)
    pond.create_stream("out", SCHEMA)
    desk = pond.group_desk()
    member = desk.join(Join(GroupSpec("in", "g"), "i"))
    (first,) = desk.poll(member, Wanted(max_records=4, wait_seconds=2))
    outputs = desk.outputs()
    outputs.append("out", {"key": "k", "n": 1})
    commit = Commit(1, (Done(first.receipt.number),))
    desk.commit(member, commit, outputs)
    served.stop()
    served.start()
    assert desk.commit(member, commit, outputs).duplicate
    with pytest.raises(Fenced):
        desk.poll(member, Wanted())
    with pond.consumer("in", group="g") as consumer:
        assert [n for batch in consumer.poll(timeout="2s") for n in batch["n"].to_pylist()] == list(range(4, 10))
    assert numbers(pond, "out") == [1]


def test_a_consumer_outlives_its_node(served: Served, pond: RemotePond) -> None:
    fill(pond, 10, streamlets=1)
    with pond.consumer("in", group="g") as consumer:
        assert sum(batch.num_rows for batch in consumer.poll(timeout="2s", max_records=4)) == 4
        consumer.commit()
        served.stop()
        served.start()
        assert [n for batch in consumer.poll(timeout="2s") for n in batch["n"].to_pylist()] == list(range(4, 10))


# When answers to commits are lost, and what is answered next is about something else.

BUSY = TooManyRequests("too many calls", hint="later")
NO_RIGHT = Forbidden("no right", hint="ask for it")


class Node:
    """What the node does with one commit after the other: True is to act and lose the answer, an error is to refuse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan: list[bool | MillpondError] = []
        self.commits = 0
        real = PondDesk.call

        def call(desk: PondDesk, caller: Any, request: Any) -> Any:
            if not isinstance(request, ask.CommitGroup | ask.CommitTransaction):
                return real(desk, caller, request)
            self.commits += 1
            step = self.plan.pop(0) if self.plan else False
            if isinstance(step, MillpondError):
                raise step
            answer = real(desk, caller, request)
            if step:
                raise Unavailable("the answer is lost", hint="ask again")
            return answer

        monkeypatch.setattr(PondDesk, "call", call)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


def test_a_busy_node_is_asked_again_for_a_commit_that_may_have_happened(pond: RemotePond, node: Node) -> None:
    fill(pond, 10, streamlets=1)
    pond.create_stream("out", SCHEMA)
    node.plan = [True, BUSY, BUSY]
    with pond.consumer("in", group="g") as consumer:
        for batch in consumer.poll(max_records=10, timeout="2s"):
            with consumer.transaction() as transaction:
                transaction.append("out", batch.select(["key", "n"]))
            assert transaction.outcome is not None
            assert transaction.outcome.duplicate
        assert consumer.lag() == {0: 0}
    assert node.commits == 4
    assert numbers(pond, "out") == list(range(10))


def test_a_commit_that_may_have_happened_is_not_over_when_an_attempt_is_refused(pond: RemotePond, node: Node) -> None:
    """What came of it was once taken for nothing: the transaction after it had its number, and was lost."""
    fill(pond, 10, streamlets=1)
    pond.create_stream("out", SCHEMA)
    node.plan = [True, NO_RIGHT, NO_RIGHT]
    with pond.consumer("in", group="g") as consumer:
        first = next(consumer.poll(max_records=5, timeout="2s"))
        with (
            pytest.raises(Unavailable, match="not known what became of a commit: no right"),
            consumer.transaction() as tx,
        ):
            tx.append("out", first.select(["key", "n"]))
        with pytest.raises(Forbidden):
            consumer.commit()
        assert consumer.in_doubt
        second = next(consumer.poll(max_records=5, timeout="2s"))
        with consumer.transaction() as tx:
            tx.append("out", second.select(["key", "n"]))
        assert not consumer.in_doubt
        assert consumer.lag() == {0: 0}
    assert numbers(pond, "out") == list(range(10))


def test_a_commit_that_is_refused_at_once_has_not_happened(pond: RemotePond, node: Node) -> None:
    fill(pond, 10, streamlets=1)
    node.plan = [BUSY]
    with pond.consumer("in", group="g") as consumer:
        assert sum(batch.num_rows for batch in consumer.poll(timeout="2s")) == 10
        with pytest.raises(TooManyRequests):
            consumer.commit()
        assert not consumer.in_doubt
        consumer.commit()
        assert consumer.lag() == {0: 0}
    assert node.commits == 2


def test_outputs_that_may_have_been_appended_are_asked_for_until_that_is_known(pond: RemotePond, node: Node) -> None:
    pond.create_stream("out", SCHEMA)
    node.plan = [True, BUSY]
    with pond.transaction() as transaction:
        transaction.append("out", {"key": "k", "n": 1})
    assert [ack.duplicate for ack in transaction.acks] == [True]
    node.plan = [True, NO_RIGHT]
    with pytest.raises(Unavailable, match="no right"), pond.transaction() as transaction:
        transaction.append("out", {"key": "k", "n": 2})
    assert numbers(pond, "out") == [1, 2]


def test_members_that_are_gone_are_forgotten(pond: RemotePond) -> None:
    fill(pond, 10, streamlets=1)
    desk = pond.group_desk()
    joined = [desk.join(Join(GroupSpec("in", "g"), "same")) for _ in range(4)]
    acts: list[Callable[[Any], object]] = [
        lambda member: desk.poll(member, Wanted()),
        lambda member: desk.abort(member, 1),
        lambda member: desk.renew(member),
    ]
    for member, act in zip(joined, acts, strict=False):
        with pytest.raises(Fenced):
            act(member)
    assert set(desk._arrived) == {joined[-1].epoch}
