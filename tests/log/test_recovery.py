"""What the journal gives back: nothing forgotten with the files it let go of, nothing missing without a word."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import Damaged
from millpond.log.embedded import frame as frames
from millpond.log.embedded import journal_file
from millpond.log.embedded.engine import EmbeddedLog
from millpond.log.embedded.frame import Frame
from millpond.log.embedded.journal import JournalFile
from millpond.log.embedded.recovery import _newest
from millpond.model.offsets import OffsetRange
from millpond.storage import LocalStorage
from tests.log.conftest import SMALL, Pool, append, definition, files, numbers


def test_a_file_whose_state_was_torn_is_not_gone_on_with(pool: Pool) -> None:
    """I2: a crash in the middle of a roll; later that file would be the only one, and the producers forgotten."""
    log = pool()
    first = append(log, 0, producer="p", sequence=7)
    log.close()
    torn = journal_file.encode_header(2, bytes(16), 1) + b"MPFR and no more"
    Path(pool.directory, "journal", journal_file.file_name(2)).write_bytes(torn)
    log = pool()
    for start in range(500, 5_000, 500):
        append(log, start)
    log.release(20, {0: 5_000})
    log.close()
    log = pool(streams=[(definition(), {0: 5_000})])
    again = append(log, 0, producer="p", sequence=7)
    assert again.duplicate
    assert again.ranges == first.ranges


def test_a_lost_file_that_held_all_of_a_stream_is_noticed(pool: Pool) -> None:
    log = pool(streams=[(definition(20), {}), (definition(21), {})])
    append(log, 0, 20, stream_id=21)
    for start in range(0, 5_000, 500):
        append(log, start)
    log.close()
    os.remove(os.path.join(pool.directory, "journal", files(pool)[0]))
    log = EmbeddedLog.open(pool.directory, settings=SMALL)
    pool.open_logs.append(log)
    with pytest.raises(Damaged, match=r"s21.*offsets \[0, 20\) are missing"):
        log.add_stream(definition(21))


def test_copied_records_keep_the_span_of_their_times(pool: Pool) -> None:
    """A read from a time on passes over segments that are older as a whole, and must not pass over these."""
    log = pool(streams=[(definition(20), {}), (definition(21), {})])
    for n in range(5):
        append(log, n, 1, stream_id=21, ingest_micros=1_000 * (n + 1))
    for start in range(0, 10_000, 500):
        append(log, start)
    log.release(20, {0: 10_000})
    assert len(files(pool)) == 1
    log.close()
    log = pool(streams=[(definition(20), {0: 10_000}), (definition(21), {})])
    assert [(s.first_ingest_micros, s.last_ingest_micros) for s in log.segments(21)] == [(1_000, 5_000)]
    assert numbers(log, 0, 5, 21) == list(range(5))


FILE = JournalFile(1, "", LocalStorage())


def frame(kind: int, base: int, rows: int) -> tuple[Frame, JournalFile]:
    return Frame(0, 0, 0, 0, kind, 1, 0, 20, 1, rows, base, 0, 0, 0, 0, b""), FILE


def covered(found: Sequence[tuple[Frame, JournalFile]], settled: int) -> set[int]:
    return {offset for f, _ in found for offset in range(max(f.base, settled), f.base + f.rows)}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=12), st.integers(0, 20))
def test_the_newest_frames_cover_what_all_of_them_do_and_none_is_needless(
    spans: list[tuple[int, int]], settled: int
) -> None:
    found = [frame(frames.COPIED, base, rows) for base, rows in spans]
    kept = _newest(found, settled)
    assert covered(kept, settled) == covered(found, settled)
    newer: set[int] = set()
    expected = []
    for each in reversed(found):
        mine = covered([each], settled)
        if mine - newer:
            expected.append(each[0])
        newer |= mine
    assert sorted(f.base for f, _ in kept) == sorted(f.base for f in expected)


def test_one_copied_frame_among_many_does_not_hold_up_the_open() -> None:
    """A hundred thousand single records: seconds if each looks at all others, and they would be hours."""
    found = [frame(frames.COPIED, 0, 10), *(frame(frames.ROWS, 10 + n, 1) for n in range(100_000))]
    assert _newest(found, 0) == found


def test_a_stream_that_is_never_archived_is_whole_or_damaged(pool: Pool) -> None:
    """Nothing of it was let go of, so its first records cannot be missing rightly."""
    log = pool(streams=[(definition(settle=None), {})])
    for start in range(0, 5_000, 500):
        append(log, start)
    log.close()
    os.remove(os.path.join(pool.directory, "journal", files(pool)[0]))
    log = EmbeddedLog.open(pool.directory, settings=SMALL)
    pool.open_logs.append(log)
    with pytest.raises(Damaged, match=r"offsets \[0, \d+\) are missing"):
        log.add_stream(definition(settle=None))


def test_a_floor_outlives_the_files_that_held_what_lies_before_it(pool: Pool) -> None:
    kept = definition(settle=None)
    log = pool(streams=[(kept, {}), (definition(21), {})])
    for start in range(0, 10_000, 500):
        append(log, start)
    before = files(pool)
    log.release(20, {0: 9_700})
    assert before[0] not in files(pool)
    for turn in range(3):
        log.close()
        log = pool(streams=[(kept, {}), (definition(21), {0: turn * 5_000})])
        assert log.starts(20) == {0: 9_700}
        assert numbers(log, 9_700, 10_000) == list(range(9_700, 10_000))
        for start in range(turn * 5_000, turn * 5_000 + 5_000, 500):  # files come and go, and the floor with them
            append(log, start, stream_id=21)
        log.release(21, {0: turn * 5_000 + 5_000})
    assert append(log, 10_000).ranges == {0: OffsetRange(10_000, 10_500)}


def test_a_floor_is_never_ahead_of_what_is_written(pool: Pool) -> None:
    """Records acknowledged at `memory` may be let go of before they are written, and lost in a crash after that."""
    kept = definition(settle=None)
    slow = replace(SMALL, flush_seconds=3_600.0)
    log = pool(settings=slow, streams=[(kept, {})])
    append(log, 0, 100)
    append(log, 100, 100, durability="memory")
    log.release(20, {0: 200})
    crashed = Path(pool.directory).with_name("crashed")
    shutil.copytree(pool.directory, crashed)
    again = EmbeddedLog.open(str(crashed), settings=SMALL)
    pool.open_logs.append(again)
    again.add_stream(kept)
    again.forget_unclaimed()
    assert again.starts(20)[0] <= again.heads(20)[0]
    base = again.heads(20)[0]
    assert append(again, base).ranges == {0: OffsetRange(base, base + 500)}
    assert numbers(again, base, base + 500) == list(range(base, base + 500))
