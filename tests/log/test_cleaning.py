"""Letting go of journal files: nothing that is live goes with them, whatever happens meanwhile."""

from __future__ import annotations

import threading

from millpond.model.offsets import OffsetRange
from millpond.settings import Settings
from tests.log.conftest import Pool, append, definition, files, numbers


def test_a_stream_made_while_a_cleaning_waits_keeps_its_records(pool: Pool) -> None:
    """I1: a cleaning judges files by the streams of the moment, not by those of when it was asked for."""
    log = pool()
    append(log, 0)
    with log._cleaner._one_at_a_time:
        waiting = threading.Thread(target=log.release, args=(20, {0: 500}))
        waiting.start()
        while log.starts(20) != {0: 500}:
            waiting.join(0.001)
        log.add_stream(definition(21))
        for start in range(0, 5_000, 500):
            append(log, start, stream_id=21)
        assert len(files(pool)) > 1
    waiting.join()
    log.close()
    again = pool(streams=[(definition(20), {0: 500}), (definition(21), {})])
    assert numbers(again, 0, 5_000, 21) == list(range(5_000))


def test_a_read_goes_on_when_its_segment_moves_out_of_the_journal(pool: Pool) -> None:
    """Somebody reads a segment in place, piece by piece, from two files; both are emptied before the second piece."""
    settings = Settings(memory_bytes=16_000_000, journal_file_bytes=2_000_000, disk_reserve_bytes=0)
    log = pool(settings=settings, streams=[(definition(20), {}), (definition(21), {})])
    for turn in range(2):
        append(log, turn * 4_100, 4_100, stream_id=21)
        append(log, turn * 30_000, 30_000)
    append(log, 60_000)
    log.seal(21)
    [segment] = log._published.streams[21].segments()
    log._keeper._spill(log._published.streams[21], segment)
    assert [p.place.file.number for p in segment.contents] == [1, 2], "read in place"
    reading = log.read(21, 0, OffsetRange(0, 8_200), columns=["n"])
    first = next(reading)
    log.release(20, {0: 60_500})
    assert not {"000000000001.journal", "000000000002.journal"} & set(files(pool))
    rest = [n for batch in reading for n in batch.column("n").to_pylist()]
    assert [*first.column("n").to_pylist(), *rest] == list(range(8_200))


def test_what_is_copied_forward_is_what_the_file_holds(pool: Pool) -> None:
    """I8: a file with old copies and new records of a stream does not stand for all that lies between them, which is
    in other files and may be any amount."""
    log = pool(streams=[(definition(20), {}), (definition(21), {})])
    append(log, 0, 10, stream_id=21)
    for start in range(0, 3_000, 500):
        append(log, start)
    for start in range(10, 10_010, 500):
        append(log, start, stream_id=21)
    for start in range(3_000, 5_000, 500):
        append(log, start)
    log.release(20, {0: 5_000})
    append(log, 10_010, 10, stream_id=21)
    for start in range(5_000, 8_000, 500):
        append(log, start)
    before = log.status().journal_written_bytes
    log.release(20, {0: 8_000})
    assert log.status().journal_written_bytes - before < 20_000
    log.close()
    again = pool(streams=[(definition(20), {0: 8_000}), (definition(21), {})])
    assert numbers(again, 0, 10_020, 21) == list(range(10_020))
