"""What a person sees of running pipelines."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace

import pytest

from millpond.cli.output import Output
from millpond.cli.run_screen import Screen, TableScreen, screen_of
from millpond.wire.pipelines import PipelineReport

STARTING = PipelineReport("hourly", ("grid/meters",), "grid/hourly", "starting")
RUNNING = replace(STARTING, state="running")
BATCH = replace(RUNNING, batch=4, batch_rows=1_200, batch_seconds=0.84, behind=37, rows=9_000)
WAITING = replace(BATCH, state="waiting", failure="pipeline 'hourly', line 7: ValueError: thirteen", restarts=1)
STORY = (STARTING, RUNNING, BATCH, BATCH, WAITING, replace(BATCH, state="stopped", failure=""))


def test_a_pipe_gets_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    with screen_of(Output()) as screen:
        assert type(screen) is Screen
        for report in STORY:
            screen.show(report)
    assert capsys.readouterr().err.splitlines() == [
        "hourly: starting",
        "hourly: running, grid/meters -> grid/hourly",
        "hourly: batch 4, 1,200 records in 0.8 s, 37 behind",
        "warning: pipeline 'hourly', line 7: ValueError: thirteen; it starts again by itself",
        "hourly: stopped after 9,000 records, 37 behind",
    ]


def test_json_is_an_object_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    with screen_of(Output(json=True)) as screen:
        for report in STORY:
            screen.show(report)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["state"] for line in lines] == ["starting", "running", "running", "waiting", "stopped"]
    assert lines[2]["behind"] == 37


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    with screen_of(Output()) as screen:
        assert type(screen) is TableScreen
        for report in STORY:
            screen.show(report)
    drawn = terminal.getvalue()
    assert "thirteen; it starts again by itself" in drawn
    for text in ("hourly", "grid/meters", "stopped", "1,200", "9,000", "37"):
        assert text in drawn
