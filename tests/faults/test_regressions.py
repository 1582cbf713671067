"""Faults that the runs found and that need a longer story than one of their steps, each as its own test.

The table of all of them is docs/track-record.md.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from millpond.errors import JournalClosed
from millpond.model.definition import DURABILITIES, Durability
from millpond.storage import LocalStorage
from millpond.testing import Crash, FaultyStorage
from millpond.testing.pond_model import Fate
from tests.faults.log_workload import ALARMS, METERS, LogWorkload, Recorder, check, open_log


def test_cleaning_the_journal_copes_with_segments_that_the_file_has_nothing_of(tmp_path: Path) -> None:
    """A mostly dead file is pinned by the first record of an idle stream whose later records are in a sealed segment.
    Copying the live records forward cut that segment to a negative length, and every release failed."""
    (tmp_path / "pond").mkdir()
    work = LogWorkload(tmp_path / "pond", LocalStorage(), Recorder())
    log = work.log = open_log(tmp_path / "pond", LocalStorage(), work.recorder)
    work.append(ALARMS, {0: 1})
    for _ in range(3):
        work.append(METERS, {0: 40}, filling=1_000)
    for _ in range(5):
        work.append(ALARMS, {0: 20}, filling=1_000)
    log.seal(ALARMS.id)
    log.tend()
    assert log.status().journal_files > 2
    work.settle(METERS)
    assert not log.status().warnings
    check(log, work.recorder)
    work.append(ALARMS, {0: 1})
    log.close()
    log = open_log(tmp_path / "pond", LocalStorage(), work.recorder)
    check(log, work.recorder)
    log.close()


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_retry_of_what_a_crash_took_from_memory_is_an_append(tmp_path: Path, durability: Durability) -> None:
    """An append acknowledged at `memory` made the journal roll; the new file's state knew its sequence already, and the
    process died before its records were written. A retry got the answer of the first, and nobody had the records."""
    (tmp_path / "pond").mkdir()
    storage = FaultyStorage(LocalStorage(), root=tmp_path)
    work = LogWorkload(tmp_path / "pond", storage, Recorder())
    log = work.log = open_log(tmp_path / "pond", storage, work.recorder)
    work.append(METERS, {0: 70}, filling=1_000)  # as much as a file takes: the next write rolls
    steps = [str(step) for step in storage.durable_steps]
    assert steps[-2:] == ["write pond/journal/#.journal", "sync pond/journal/#.journal"]
    # End mark and sync, sync, then the new file: created, written, synced, its name synced. The records come after.
    storage.crash_at(len(steps) + 8)
    with contextlib.suppress(Crash, JournalClosed):
        work.append(METERS, {0: 2, 1: 1}, durability="memory", producer="p", sequence=1)
        log.sync()
    assert str(storage.crashed) == "write pond/journal/#.journal"
    assert work.recorder.attempts[-1].fate is Fate.PROMISED
    with contextlib.suppress(Crash, JournalClosed):
        log.close()
    work.recorder.killed()
    log = open_log(tmp_path / "pond", LocalStorage(), work.recorder)
    check(log, work.recorder)
    attempt = work.recorder.attempts[-1]
    assert attempt.fate is Fate.LOST
    attempt.durability = durability
    again = LogWorkload(tmp_path / "pond", LocalStorage(), work.recorder)
    again.log = log
    again.send(attempt)
    check(log, work.recorder)
    log.close()
