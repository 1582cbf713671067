"""Settling by bytes, by time, on request and on close; failures are shown, retried, and lose nothing (K7, B7)."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import millpond
from millpond.errors import DiskFull, InvalidValue, SettleFailed
from millpond.testing.manual_clock import ManualClock
from tests.pond.conftest import METERS, Ponds, rows, temps


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    waiting = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        waiting.wait(0.01)


def test_on_request(meters: millpond.Stream, pond: millpond.Pond) -> None:
    meters.append(rows(0, 100))
    report = meters.settle()
    assert report is not None
    assert (report.rows, report.objects) == (100, 1)
    assert meters.settle() is None
    status = meters.status()
    assert (status.rows_live, status.rows_settled, status.bytes_live) == (0, 100, 0)
    assert status.boundary == status.head
    assert temps(meters) == list(range(100))
    assert pond.status().write_amplification is not None


def test_by_bytes_and_by_time(ponds: Ponds) -> None:
    with ponds(background=True) as pond:
        large = pond.create_stream("large", METERS, settle=millpond.Settle(every="1h", bytes="1KB"))
        timely = pond.create_stream("timely", METERS, settle=millpond.Settle(every="50ms", bytes="1GB"))
        never = pond.create_stream("never", METERS, settle=None)
        for stream in (large, timely, never):
            stream.append(rows(0, 100))
        until(lambda: large.status().rows_settled == 100 and timely.status().rows_settled == 100)
        assert never.status().rows_live == 100
        with pytest.raises(InvalidValue, match="not archived"):
            never.settle()


def test_records_that_were_live_when_the_pond_was_closed_still_settle_in_time(ponds: Ponds) -> None:
    with ponds() as pond:
        pond.create_stream("s", METERS, settle=millpond.Settle(every="50ms")).append(rows(0, 10))
    with ponds(background=True) as pond:
        until(lambda: pond.stream("s").status().rows_settled == 10)


def test_on_close_if_asked(ponds: Ponds) -> None:
    with ponds(settle_on_close=True) as pond:
        pond.create_stream("s", METERS).append(rows(0, 10))
    with ponds() as pond:
        assert pond.stream("s").status().rows_settled == 10
        pond.stream("s").append(rows(10, 20))
    with ponds() as pond:
        assert pond.stream("s").status().rows_live == 10


def test_a_person_can_read_the_listing(ponds: Ponds) -> None:
    """C2, C3: generation, time partition and writer sequence in the path; schema and time range inside."""
    day = 1_793_923_200  # 2026-11-06, UTC
    with ponds(clock=ManualClock(now_micros=(day + 3_600) * 1_000_000)) as pond:
        stream = pond.create_stream("grid/meters", METERS)
        stream.append(rows(0, 10))
        stream.settle()
        root = Path(stream.snapshot().settled.root)
    assert root.name == "grid.meters-16"
    objects = sorted(str(path.relative_to(root)) for path in root.glob("g*/*/*.parquet"))
    assert len(objects) == 1
    generation, partition, name = objects[0].split("/")
    assert (generation, partition) == ("g00001", f"{day}.86400")
    assert name.startswith("b0000-000000000001-")
    metadata = pq.read_metadata(root / objects[0]).metadata
    assert any(b"millpond" in key for key in metadata)


@pytest.mark.embedded
def test_a_failing_store_is_shown_and_retried_while_ingestion_goes_on(ponds: Ponds) -> None:
    clock = ManualClock()
    with ponds(clock=clock) as pond:
        stream = pond.create_stream("s", METERS, settle=millpond.Settle(every="1s"))
        stream.append(rows(0, 10))
        archive = Path(pond.path, "archive")
        shutil.rmtree(archive, ignore_errors=True)
        archive.write_text("in the way")
        for attempt in (1, 2, 3):
            with pytest.raises(SettleFailed):
                stream.settle()
            state = stream.status().settling
            assert state.failures == attempt
            assert state.retry_seconds == 2.0 ** (attempt - 1)
            assert "Not a directory" in state.failure
        assert not stream.settling.due()
        stream.append(rows(10, 20))
        assert temps(stream) == list(range(20))
        archive.unlink()
        archive.mkdir()
        clock.advance("5s")
        assert stream.settling.due()
        assert stream.settle() is not None
        assert stream.status().settling.failure == ""
        assert temps(stream) == list(range(20))


def test_settled_records_leave_memory_and_journal(ponds: Ponds) -> None:
    with ponds(journal_file_bytes=64_000, segment_bytes=64_000) as pond:
        stream = pond.create_stream("s", METERS)
        for start in range(0, 20_000, 1_000):
            stream.append(rows(start, start + 1_000))
        before = pond.status().log
        assert before.journal_files > 3
        stream.settle()
        after = pond.status().log
        assert after.memory_bytes < 1_000, "the catalog alone"
        assert after.journal_files == 1
        assert stream.count() == 20_000


def test_small_objects_are_merged_behind_the_scenes(ponds: Ponds) -> None:
    """B7: background settles leave small objects; they become one, and readers never notice."""
    with ponds(background=True) as pond:
        stream = pond.create_stream("s", METERS, settle=millpond.Settle(every="1h"))
        for start in range(0, 1_200, 100):
            stream.append(rows(start, start + 100))
            stream.settle()
            assert stream.count() == start + 100
        until(lambda: stream.status().objects < 6)
        assert temps(stream) == list(range(1_200))
        assert stream.status().settling.compacted_bytes > 0
    with ponds() as pond:
        assert temps(pond.stream("s")) == list(range(1_200))
        assert pond.verify().ok


@pytest.mark.embedded
def test_verify_finds_a_flipped_bit_in_journal_and_archive(ponds: Ponds) -> None:
    with ponds() as pond:
        stream = pond.create_stream("s", METERS)
        stream.append(rows(0, 100))
        stream.settle()
        stream.append(rows(100, 200))
        report = pond.verify()
        assert report.ok
        assert (report.streams, report.records, report.objects) == (1, 200, 1)
        journal = next(Path(pond.path, "journal").glob("*.journal"))
        flip(journal, journal.stat().st_size - 100)
        target = next(Path(stream.archive.root).glob("g*/*/*.parquet"))
        flip(target, 200)
        found = pond.verify()
        assert not found.ok
        assert {finding.path.split(os.sep)[0] for finding in found.findings} >= {"journal", "archive"}
        assert all(finding.hint for finding in found.findings)


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0x10]))


@pytest.mark.embedded
def test_a_stream_that_cannot_settle_on_close_does_not_keep_the_others_from_it(ponds: Ponds) -> None:
    pond = ponds(settle_on_close=True)
    streams = [pond.create_stream(name, METERS) for name in ("a", "b", "c")]
    for stream in streams:
        stream.append(rows(0, 10))
    Path(pond.path, "archive").mkdir()
    Path(streams[0].archive.root).write_text("in the way")
    with pytest.raises(millpond.MillpondError, match="a-16"):
        pond.close()
    Path(streams[0].archive.root).unlink()
    with ponds() as again:
        assert [stream.status().rows_settled for stream in again.streams()] == [0, 10, 10]
        assert temps(again.stream("a")) == list(range(10))


def test_a_stream_can_be_dropped_to_make_room(ponds: Ponds) -> None:
    with ponds() as pond:
        stream = pond.create_stream("s", METERS)
        stream.append(rows(0, 10))
    with ponds(disk_reserve_bytes=10**15) as pond:
        with pytest.raises(DiskFull):
            pond.stream("s").append(rows(10, 20))
        assert temps(pond.stream("s")) == list(range(10))
        pond.drop_stream("s")
    with ponds() as pond:
        assert pond.streams() == []
