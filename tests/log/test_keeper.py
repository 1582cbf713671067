"""Tending segments while they are released, dropped and cleaned away under the keeper's hands."""

from __future__ import annotations

import errno
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millpond.log.embedded.engine import EmbeddedLog
from millpond.log.engine import Part
from millpond.log.keeper import STALE_FROM, TAIL_APPENDS
from millpond.log.sealed import Sealed
from millpond.log.segment import State
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Compare
from millpond.model.rows import codec_of
from millpond.model.schema import stored_schema
from millpond.storage import LocalStorage
from tests.log.conftest import SCHEMA, SMALL, Pool, append, definition, files, numbers


def test_a_tail_that_was_released_before_it_was_joined_takes_no_memory(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: otherwise the account only grows, and in the end every append waits for memory that nobody holds."""
    log = pool()
    join, go = log._keeper._join_tail, threading.Event()

    def wait_and_join(*tail: Any) -> None:
        go.wait()
        join(*tail)

    monkeypatch.setattr(log._keeper, "_join_tail", wait_and_join)
    codec = codec_of(SCHEMA)
    row = codec.encode(codec.validate([{"key": "k", "n": 1, "pad": ""}]))
    for _ in range(TAIL_APPENDS):
        log.append(20, [Part(0, 1, encoded=row)], ingest_micros=0, durability="memory")
    log.release(20, {0: TAIL_APPENDS})
    go.set()
    log.tend()
    assert log.status().memory_bytes == 0


def test_a_segment_dropped_while_it_was_spilled_leaves_no_file(pool: Pool) -> None:
    log = pool()
    append(log, 0, 20)
    stream = log._published.streams[20]
    [segment] = stream.segments()
    log.drop_stream(20)
    log._keeper.spill_to_file(stream, segment)
    assert not list(Path(pool.directory, "spill").rglob("*.arrow"))


def test_a_spill_that_meets_a_full_disk_leaves_no_file(pool: Pool) -> None:
    class Filling(LocalStorage):
        def put(self, path: str, data: Any, *, sync: bool = True) -> None:
            super().put(path, data[:100], sync=sync)
            raise OSError(errno.ENOSPC, "no room")

    log = pool(storage=Filling())
    append(log, 0, 20)
    stream = log._published.streams[20]
    with pytest.raises(OSError, match="no room"):
        log._keeper.spill_to_file(stream, stream.segments()[0])
    assert not list(Path(pool.directory, "spill").rglob("*.arrow"))


def test_a_segment_whose_released_part_the_journal_let_go_of_can_still_be_moved(pool: Pool) -> None:
    """The boundary lies in the middle of a segment that is read in place from two files: the first goes, and then the
    live half must leave the second."""
    log = pool(streams=[(definition(20), {}), (definition(21), {})])
    append(log, 0, 300, stream_id=21)
    for start in range(0, 4_000, 500):
        append(log, start)
    append(log, 300, 300, stream_id=21)
    for start in range(4_000, 8_000, 500):
        append(log, start)
    [segment] = log._published.streams[21].segments()
    log.seal(21)
    log._keeper._spill(log._published.streams[21], segment)
    assert segment.memory_bytes == 0
    assert [p.place.file.number for p in segment.contents] == [1, 2], "read in place"
    log.release(21, {0: 300})
    log.release(20, {0: 3_000})
    log.release(20, {0: 8_000})
    assert not log.status().warnings
    assert files(pool)[0] > "000000000002.journal"
    assert numbers(log, 300, 600, 21) == list(range(300, 600))
    log.close()
    again = pool(streams=[(definition(20), {0: 8_000}), (definition(21), {0: 300})])
    assert numbers(again, 300, 600, 21) == list(range(300, 600))


def test_a_lookup_goes_on_when_what_it_searches_is_released(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spill file of an older segment goes while a newer one is searched: its records have settled."""
    log = pool(streams=[(definition(memory_bytes=1), {})])
    for start in range(0, 3_000, 20):
        append(log, start, 20)
    log.tend()
    assert {s.state for s in log.segments(20)} == {"spilled"}
    assert len(log.segments(20)) > 2
    search = log._published.streams[20]._newest_first

    def search_and_release(*rest: Any) -> Any:
        yield from search(*rest)
        if log.starts(20) == {0: 0}:
            log.release(20, {0: 2_000})

    monkeypatch.setattr(log._published.streams[20], "_newest_first", search_and_release)
    found = log.find(20, "key", "k5", streamlet=0, limit=1_000, below={})
    assert [n for b in found for n in b.column("n").to_pylist()] == [n for n in range(2_999, 1_999, -1) if n % 97 == 5]


def contents(log: EmbeddedLog) -> list[Any]:
    return [segment.contents for segment in log._published.streams[20].segments()]


def test_appends_go_first_and_a_wait_for_the_keeper_ends_its_rest(pool: Pool) -> None:
    """K5: while it rests, segments stay as they came and are read as they are."""
    log = pool()
    log._keeper._rest_until = float("inf")
    for start in range(0, 5_000, 500):
        append(log, start)
    assert not any(isinstance(each, Sealed) for each in contents(log))
    assert numbers(log, 0, 5_000) == list(range(5_000))
    log.seal(20)
    log.tend()
    assert all(isinstance(each, Sealed) for each in contents(log))
    assert numbers(log, 0, 5_000) == list(range(5_000))


def test_what_is_sealed_is_packed_once_appends_pause(pool: Pool) -> None:
    log = pool()
    for start in range(0, 9_000, 3_000):
        append(log, start, 3_000)
    log.seal(20)
    log.tend()
    assert [len(each.batches) for each in contents(log)] == [1] * len(contents(log))
    assert numbers(log, 0, 9_000) == list(range(9_000))
    memory = log.status().memory_bytes
    assert 9_000 * 60 < memory < 9_000 * 130
    log.release(20, {0: 9_000})
    log.tend()
    assert log.status().memory_bytes == 0


def test_segments_that_left_memory_before_they_were_sealed_are_forgotten(pool: Pool) -> None:
    """While appends never pause, their turn never comes: the keeper must not hold on to them."""
    log = pool(streams=[(definition(20, memory_bytes=2_000_000), {})])
    log._keeper._rest_until = float("inf")
    for start in range(0, 800_000, 1_000):
        append(log, start, 1_000, durability="os")
    assert len(log._published.streams[20].segments()) > STALE_FROM
    assert len(log._keeper._closed) <= 2 * STALE_FROM
    assert numbers(log, 0, 800_000) == list(range(800_000))


def test_the_range_of_text_is_found_when_it_is_asked_for(pool: Pool) -> None:
    """F5: and once it is known, segments are ruled out by it."""
    log = pool()
    append(log, 0, 500)
    log.seal(20)
    log.tend()
    [segment] = log._published.streams[20].segments()
    assert segment.ranges is not None
    assert segment.ranges["n"] == (0, 499, 0)
    assert "key" not in segment.ranges
    offsets = OffsetRange(0, 500)
    assert list(log.read(20, 0, offsets, predicate=Compare(">", "key", "k97"))) == []
    assert segment.ranges["key"] == ("k0", "k96", 0)
    assert not segment.may_match(Compare(">", "key", "k97"), stored_schema(SCHEMA))
    found = log.read(20, 0, offsets, columns=["n"], predicate=Compare("=", "key", "k96"))
    assert [n for batch in found for n in batch.column(0).to_pylist()] == [96, 193, 290, 387, 484]


def test_what_is_released_before_it_is_packed_leaves_memory_and_the_account(pool: Pool) -> None:
    """I8: packed after its release, it was charged to an account that nobody takes it off again; and while appends
    never pause, it stayed in memory for good."""
    log = pool()
    stream = log._published.streams[20]
    for turn in range(3):
        for start in range(turn * 9_000, turn * 9_000 + 9_000, 3_000):
            append(log, start, 3_000)
        log.seal(20)
        while not all(segment.state is State.SEALED for segment in stream.segments()):
            threading.Event().wait(0.001)
        gone = weakref.ref(stream.segments()[0].contents.batches[0])
        log.release(20, {0: turn * 9_000 + 9_000})
        assert not log._keeper._unpacked
        assert not log._keeper._closed
        assert gone() is None, "still held"
        log.tend()
        assert log.status().memory_bytes == 0


def test_rows_are_taken_from_the_batches_they_are_in(pool: Pool) -> None:
    """K6: newest first, out of batches that are not packed yet."""
    log = pool(settings=replace(SMALL, segment_bytes=1_000_000))
    for start in range(0, 9_000, 3_000):
        append(log, start, 3_000)
    stream = log._published.streams[20]
    [segment] = stream.segments()
    log.seal(20)
    log._keeper._seal(stream, segment)
    assert isinstance(segment.contents, Sealed)
    rows = np.array([8_999, 0, 1, 2_999, 3_000, 5_000, 8_999, 2], np.uint32)
    for sealed in (segment.contents, segment.contents.packed()):
        assert sealed.take(rows, stream.definition, 0).column("n").to_pylist() == rows.tolist()
        assert sealed.take(rows, stream.definition, 0).column("_offset").to_pylist() == rows.tolist()
    found = log.find(20, "key", "k96", streamlet=0, limit=3, below={})
    assert [n for each in found for n in each.column("n").to_pylist()] == [8_923, 8_826, 8_729]


def test_a_segment_that_leaves_memory_keeps_what_is_known_of_its_keys(pool: Pool) -> None:
    """K6, F5: its key index goes."""
    log = pool(settings=replace(SMALL, segment_bytes=1_000_000))
    append(log, 0, 5_000)
    log.seal(20)
    log.tend()
    stream = log._published.streams[20]
    [segment] = stream.segments()
    log._keeper._spill(stream, segment)
    assert segment.state is State.SPILLED
    assert segment.ranges is not None
    assert segment.ranges["key"] == ("k0", "k96", 0)
    assert not segment.may_match(Compare("=", "key", "zebra"), stored_schema(SCHEMA))
