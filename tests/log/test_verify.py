"""Checking a log that goes on working: what settles and goes meanwhile is no finding, what is lost is one."""

from __future__ import annotations

import os
from typing import Any

import pytest

from millpond.log.live import LiveStream
from tests.log.conftest import Pool, append, definition, files


def test_what_is_released_while_it_is_checked_is_no_finding(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    log = pool()
    for start in range(0, 10_000, 500):
        append(log, start)
    before = files(pool)
    released: list[int] = []

    def release_on_the_way(done: int, total: int) -> None:
        if not released:
            released.append(done)
            log.release(20, {0: 5_000})

    read = LiveStream.read

    def read_after_a_release(self: LiveStream, *rest: Any) -> Any:
        if released[-1] != -1:
            released.append(-1)
            log.release(20, {0: 8_000})
        return read(self, *rest)

    monkeypatch.setattr(LiveStream, "read", read_after_a_release)
    assert log.verify(release_on_the_way) == []
    assert files(pool) != before


def test_a_file_that_is_lost_under_an_open_log_is_a_finding(pool: Pool) -> None:
    log = pool()
    for start in range(0, 5_000, 500):
        append(log, start)
    os.remove(os.path.join(pool.directory, "journal", files(pool)[0]))
    assert "the file is gone" in [finding.message for finding in log.verify()]


def test_what_is_truncated_while_it_is_checked_is_no_finding(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    log = pool()
    append(log, 0)
    read = LiveStream.read
    truncated: list[int] = []

    def read_after_a_truncation(self: LiveStream, *rest: Any) -> Any:
        if not truncated:
            truncated.append(1)
            log.truncate_stream(definition(generation=2))
            append(log, 0, 10)
        return read(self, *rest)

    monkeypatch.setattr(LiveStream, "read", read_after_a_truncation)
    assert log.verify() == []
    assert truncated
    assert log.verify() == []
