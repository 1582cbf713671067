"""Appends to several streams as one, in the embedded log: bounds, and what a low disk and a drop do to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millpond.errors import DiskFull, TooLarge
from millpond.log.engine import Ack, Part, StreamAppend
from millpond.model.offsets import OffsetRange
from tests.log.conftest import SMALL, Failing, Pool, append, batch, definition, numbers

OWN = definition(3, name="_pond/positions")
USERS = definition(20)
BOTH = [(OWN, {}), (USERS, {})]


def of(stream_id: int, start: int, rows: int = 10) -> StreamAppend:
    return StreamAppend(stream_id, [Part(0, rows, batch=batch(start, rows))], 1_000)


def test_a_transaction_has_a_bound_of_its_own(pool: Pool) -> None:
    log = pool(settings=replace(SMALL, transaction_bytes_max=20_000), streams=BOTH)
    with pytest.raises(TooLarge, match="transaction") as refused:
        log.append_together([of(3, 0, 150), of(20, 0, 150)], durability="disk")
    assert "transaction_bytes_max" in refused.value.hint
    assert (log.heads(3), log.heads(20)) == ({0: 0}, {0: 0})
    append(log, 0, 1_000)  # an append is bounded by its own setting
    assert log.append_together([of(3, 0), of(20, 1_000)], durability="disk")[1].ranges == {0: OffsetRange(1_000, 1_010)}


def test_a_low_disk_refuses_what_goes_to_users_whatever_stream_is_first(pool: Pool) -> None:
    storage = Failing()
    log = pool(settings=replace(SMALL, disk_reserve_bytes=1_000_000), streams=BOTH, storage=storage)
    storage.free = 10
    with pytest.raises(DiskFull):
        log.append_together([of(3, 0), of(20, 0)], durability="disk", producer="p", sequence=1)
    assert log.known(3, "p", 1) is None
    assert log.append_together([of(3, 0)], durability="disk")[0].ranges == {0: OffsetRange(0, 10)}
    storage.free = 10**12
    assert log.append_together([of(3, 10), of(20, 0)], durability="disk", producer="p", sequence=1) == [
        Ack({0: OffsetRange(10, 20)}, "disk"),
        Ack({0: OffsetRange(0, 10)}, "disk"),
    ]


def test_a_full_disk_leaves_nothing_of_any_stream(pool: Pool) -> None:
    storage = Failing()
    log = pool(streams=BOTH, storage=storage)
    append(log, 0)
    storage.write_error = 28  # ENOSPC
    with pytest.raises(DiskFull):
        log.append_together([of(3, 0), of(20, 500)], durability="disk", producer="p", sequence=1)
    storage.write_error = 0
    assert (log.heads(3), log.heads(20)) == ({0: 0}, {0: 500})
    log.append_together([of(3, 0), of(20, 500)], durability="disk", producer="p", sequence=1)
    assert numbers(log, 500, 510) == list(range(500, 510))


def test_what_goes_together_outlives_the_drop_of_one_of_its_streams(pool: Pool) -> None:
    log = pool(streams=BOTH)
    for n in range(0, 30, 10):
        log.append_together([of(20, n), of(3, n)], durability="os")
    log.drop_stream(20)
    assert numbers(log, 0, 30, 3) == list(range(30))
    log.close()
    log = pool(streams=[(OWN, {})])
    assert numbers(log, 0, 30, 3) == list(range(30))
