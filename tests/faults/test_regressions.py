"""Faults that the runs found and that need a longer story than one of their steps, each as its own test.

The table of all of them is docs/track-record.md.
"""

from __future__ import annotations

from pathlib import Path

from millpond.storage import LocalStorage
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
