"""What is the embedded engine's own: rolling, spilling, cleaning the journal, refusing (the contract is elsewhere)."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import Damaged, DiskFull, JournalClosed, MemoryFull, PondClosed
from millpond.log.embedded.engine import EmbeddedLog
from millpond.log.engine import Part
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Compare
from millpond.settings import Settings
from millpond.testing.manual_clock import ManualClock
from tests.log.conftest import SCHEMA, SMALL, Failing, Pool, append, batch, definition, files, numbers


def times(log: EmbeddedLog, start: int, stop: int, stream_id: int = 20) -> list[int]:
    found = log.read(stream_id, 0, OffsetRange(start, stop), columns=["_ingest_time"])
    return [micros for each in found for micros in each.column(0).cast(pa.int64()).to_pylist()]


def test_the_journal_rolls_and_every_file_can_be_read_back(pool: Pool) -> None:
    log = pool()
    for start in range(0, 5_000, 500):
        append(log, start)
    log.close()
    assert len(files(pool)) > 1
    again = pool()
    assert again.heads(20) == {0: 5_000}
    assert numbers(again, 0, 5_000) == list(range(5_000))


def test_released_files_are_removed_and_offsets_go_on_after_a_reopen(pool: Pool) -> None:
    log = pool()
    for start in range(0, 5_000, 500):
        append(log, start)
    before = len(files(pool))
    log.release(20, {0: 5_000})
    assert len(files(pool)) == 1 < before
    log.close()
    again = pool(streams=[(definition(), {0: 5_000})])
    append(again, 5_000)
    assert numbers(again, 5_000, 5_500) == list(range(5_000, 5_500))


def test_one_idle_stream_does_not_pin_the_journal(pool: Pool) -> None:
    both = [(definition(20), {}), (definition(21), {})]
    log = pool(streams=both)
    append(log, 0, 20, stream_id=21, producer="p", sequence=4)
    for start in range(0, 10_000, 500):
        append(log, start)
    log.release(20, {0: 10_000})
    assert len(files(pool)) == 1
    assert numbers(log, 0, 20, 21) == list(range(20))
    log.close()
    again = pool(streams=[(definition(20), {0: 10_000}), (definition(21), {})])
    assert numbers(again, 0, 20, 21) == list(range(20))
    assert [b.column("_ingest_time").cast(pa.int64())[0].as_py() for b in again.read(21, 0, OffsetRange(0, 20))] == [
        1_000
    ]
    answer = again.append(
        21, [Part(0, 1, batch=batch(0, 1))], ingest_micros=1, durability="disk", producer="p", sequence=4
    )
    assert answer.duplicate
    assert answer.ranges == {0: OffsetRange(0, 20)}


def test_a_copy_and_its_original_count_once(pool: Pool) -> None:
    """A crash between copying records forward and removing their file leaves them twice."""
    log = pool(streams=[(definition(20), {}), (definition(21), {})])
    append(log, 0, 20, stream_id=21)
    append(log, 20, 20, stream_id=21)
    for start in range(0, 10_000, 500):
        append(log, start)
    first = os.path.join(pool.directory, "journal", files(pool)[0])
    kept = Path(first).read_bytes()
    log.release(20, {0: 10_000})
    log.close()
    assert not os.path.exists(first)
    Path(first).write_bytes(kept)
    again = pool(streams=[(definition(20), {0: 10_000}), (definition(21), {0: 7})])
    assert numbers(again, 7, 40, 21) == list(range(7, 40))
    append(again, 40, 5, stream_id=21)
    assert numbers(again, 7, 45, 21) == list(range(7, 45))


def test_a_lost_journal_file_is_noticed_with_the_offsets_that_are_missing(pool: Pool) -> None:
    log = pool()
    for start in range(0, 5_000, 500):
        append(log, start)
    log.close()
    for victim in files(pool)[:-1]:
        path = Path(pool.directory, "journal", victim)
        kept = path.read_bytes()
        path.unlink()
        with (
            contextlib.closing(EmbeddedLog.open(pool.directory, settings=SMALL)) as opened,
            pytest.raises(Damaged, match=r"offsets \[\d+, \d+\) are missing"),
        ):
            opened.add_stream(definition())
        path.write_bytes(kept)
    assert numbers(pool(), 0, 5_000) == list(range(5_000))


def test_memory_stays_within_its_quota_and_spilled_records_read_back(pool: Pool) -> None:
    """K4, K10: over the quota, the oldest segments leave memory and stay readable."""
    log = pool()
    for start in range(0, 300_000, 5_000):
        append(log, start, 5_000)
    log.tend()
    status = log.status()
    assert status.memory_bytes <= SMALL.memory_bytes
    assert status.spilled_bytes > 0
    assert status.spill_written_bytes == 0, "large pieces are read in place from the journal, not written again (K1)"
    assert {s.state for s in log.segments(20)} >= {"spilled", "sealed"}
    assert numbers(log, 0, 300_000) == list(range(300_000))
    found = log.find(20, "key", "k5", streamlet=0, limit=3, below={})
    assert [b.column("n").to_pylist() for b in found] == [[n for n in range(299_999, 0, -1) if n % 97 == 5][:3]]


def test_small_appends_spill_to_arrow_files(pool: Pool, tmp_path: Path) -> None:
    log = pool(streams=[(definition(memory_bytes=200_000), {})])
    for start in range(0, 4_000, 20):
        append(log, start, 20)
    log.tend()
    spilled = list(Path(pool.directory, "spill", "s20-20").glob("g00001-s000-*.arrow"))
    assert spilled
    assert numbers(log, 0, 4_000) == list(range(4_000))
    spilled[0].write_bytes(spilled[0].read_bytes().replace(b"xxxx", b"xxyx", 1))
    with pytest.raises(Damaged, match="damaged"):
        numbers(log, 0, 4_000)
    log.release(20, {0: 4_000})
    assert not list(Path(pool.directory, "spill", "s20-20").glob("*.arrow"))


def test_sealed_segments_are_skipped_by_their_statistics(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    log = pool()
    for start in range(0, 10_000, 500):
        append(log, start)
    log.seal(20)
    log.tend()
    looked_at = []
    from millpond.log.segment import Segment

    original = Segment.chunks
    monkeypatch.setattr(Segment, "chunks", lambda self, *rest: looked_at.append(self.base) or original(self, *rest))
    found = list(log.read(20, 0, OffsetRange(0, 10_000), columns=["n"], predicate=Compare(">=", "n", 9_990)))
    assert [n for b in found for n in b.column("n").to_pylist()] == list(range(9_990, 10_000))
    assert len(looked_at) == 1


def test_single_rows_become_arrow_by_the_thousand(pool: Pool) -> None:
    from millpond.model.rows import codec_of

    codec = codec_of(SCHEMA)
    log = pool()
    for n in range(3_000):
        row = codec.validate([{"key": f"k{n % 97}", "n": n, "pad": "y"}])
        log.append(20, [Part(0, 1, encoded=codec.encode(row))], ingest_micros=n, durability="memory")
    log.tend()
    assert numbers(log, 0, 3_000) == list(range(3_000))
    times = [
        t for b in log.read(20, 0, OffsetRange(5, 2_900)) for t in b.column("_ingest_time").cast(pa.int64()).to_pylist()
    ]
    assert times == list(range(5, 2_900))
    log.close()
    again = pool()
    assert numbers(again, 0, 3_000) == list(range(3_000))


def test_a_full_disk_refuses_appends_until_there_is_room_again(pool: Pool) -> None:
    storage = Failing()
    log = pool(storage=storage)
    append(log, 0)
    storage.write_error = errno.ENOSPC
    with pytest.raises(DiskFull, match="full"):
        append(log, 500)
    assert numbers(log, 0, 500) == list(range(500))
    storage.write_error = 0
    append(log, 500)
    log.close()
    assert numbers(pool(), 0, 1_000) == list(range(1_000))


def test_appends_are_refused_while_there_is_less_room_than_settling_needs(pool: Pool) -> None:
    storage = Failing()
    log = pool(storage=storage, settings=Settings(memory_bytes=16_000_000, disk_reserve_bytes=1_000_000))
    storage.free = 999_999
    with pytest.raises(DiskFull, match="999,999 bytes are free"):
        append(log, 0)
    storage.free = 10**9
    append(log, 0)
    assert log.heads(20) == {0: 500}


@pytest.mark.parametrize("fault", ["write_error", "sync_error"])
def test_the_first_io_error_closes_the_journal_to_writes_for_good(pool: Pool, fault: str) -> None:
    """I1: never retried on the same file; what was acknowledged stays readable."""
    storage = Failing()
    log = pool(storage=storage)
    append(log, 0)
    setattr(storage, fault, errno.EIO)
    failures: list[BaseException] = []

    def try_append() -> None:
        try:
            append(log, 500)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=try_append) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(f) for f in failures] == [JournalClosed] * 8
    setattr(storage, fault, 0)
    with pytest.raises(JournalClosed, match="reopen"):
        append(log, 500)
    assert "failed" in log.status().refused
    assert numbers(log, 0, 500) == list(range(500))
    log.close()
    again = pool()
    assert numbers(again, 0, 500) == list(range(500))
    append(again, again.heads(20)[0])


def test_memory_that_cannot_be_spilled_is_back_pressure(pool: Pool) -> None:
    """K10: an error that a producer can obey; appends work again when spilling does."""
    storage = Failing()
    settings = Settings(memory_bytes=16_000_000, segment_bytes=64_000, disk_reserve_bytes=0, memory_wait_seconds=0.05)
    log = pool(streams=[(definition(memory_bytes=100_000), {})], storage=storage, settings=settings)
    storage.put_error = errno.EIO

    def append_much() -> None:
        for start in range(0, 20_000, 20):
            append(log, start, 20)

    with pytest.raises(MemoryFull, match="Input/output error"):
        append_much()
    reached = log.heads(20)[0]
    assert numbers(log, 0, reached) == list(range(reached))
    storage.put_error = 0
    log.tend()
    append(log, reached, 20)
    assert numbers(log, 0, reached + 20) == list(range(reached + 20))


def test_weaker_durabilities_are_synced_in_time(tmp_path: Path) -> None:
    settings = Settings(memory_bytes=16_000_000, disk_reserve_bytes=0, flush_seconds=0.01)
    log = EmbeddedLog.open(str(tmp_path / "pond"), settings=settings, clock=ManualClock())
    log.add_stream(definition())
    log.append(20, [Part(0, 5, batch=batch(0, 5))], ingest_micros=0, durability="memory")
    log.sync()
    log.close()
    again = EmbeddedLog.open(str(tmp_path / "pond"))
    again.add_stream(definition())
    assert again.heads(20) == {0: 5}
    again.close()
    with pytest.raises(PondClosed):
        again.heads(20)


def test_a_read_that_began_before_an_alteration_goes_on_with_its_columns(pool: Pool) -> None:
    log = pool()
    for start in range(0, 3_500, 500):
        append(log, start)
    schema = definition().schema
    reading = log.read(20, 0, OffsetRange(0, 3_500))
    first = next(reading)
    log.alter_stream(definition(schemas=(schema, pa.schema([*schema, ("more", pa.int64())]))))
    log.seal(20)
    log.tend()
    rest = list(reading)
    assert {b.schema for b in rest} == {first.schema}
    assert first.num_rows + sum(b.num_rows for b in rest) == 3_500
    assert numbers(log, 0, 3_500) == list(range(3_500))


def test_appends_acknowledged_at_memory_are_written_once_there_is_room_again(pool: Pool) -> None:
    storage = Failing()
    settings = Settings(memory_bytes=16_000_000, disk_reserve_bytes=0, flush_seconds=0.01)
    log = pool(storage=storage, settings=settings)
    append(log, 0, 5)
    storage.write_error = errno.ENOSPC
    log.append(20, [Part(0, 5, batch=batch(5, 5))], ingest_micros=0, durability="memory")
    assert numbers(log, 0, 10) == list(range(10))
    end = time.monotonic() + 30
    while not log.status().warnings:
        assert time.monotonic() < end, "the failed write must be shown"
    assert "No space left" in log.status().warnings[0]
    storage.write_error = 0
    while log.status().warnings:
        assert time.monotonic() < end, "it must be written by itself"
    assert log.heads(20) == {0: 10}
