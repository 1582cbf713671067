"""`millpond run` as a process: pipelines of a file on a served pond, stopped by a signal, started again. K18"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import millpond as library
from tests.cli.conftest import MILLPOND, Commands
from tests.serving import serving

PATIENCE_SECONDS = 400.0
PIPELINES = """
import millpond

@millpond.pipeline(source="grid/meters", sink="grid/hot", keys=["vid"], trigger="100ms")
def hot(meters):
    return meters.where("temp >= 20")
"""


def running(millpond: Commands, file: Path, url: str, *more: str) -> subprocess.Popen[str]:
    words = [*MILLPOND, "run", str(file), "--pond", url, "--json", "--cores", "2", "--memory", "1g", *more]
    return subprocess.Popen(
        words,
        env=millpond.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until(ready: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.spark
@pytest.mark.timeout(1_800)
def test_a_runner_stops_at_a_signal_and_goes_on_after_a_kill(millpond: Commands, tmp_path: Path) -> None:
    file = tmp_path / "pipelines.py"
    file.write_text(PIPELINES)
    with serving(tmp_path / "served") as served, library.connect(served.url) as pond:
        served.create("grid/meters", schema="vid string, temp double", keys=["vid"], streamlets=2)
        meters = pond.stream("grid/meters")
        meters.append([{"vid": f"m-{n}", "temp": float(n)} for n in range(30)])

        def hot() -> int:
            return pond.stream("grid/hot").count() if "grid/hot" in [each.name for each in pond.streams()] else -1

        first = running(millpond, file, served.url)
        until(lambda: hot() == 10)
        until(lambda: [(each.name, each.state) for each in pond.pipelines.list()] == [("hot", "running")])
        first.send_signal(signal.SIGTERM)
        out, talk = first.communicate(timeout=PATIENCE_SECONDS)
        assert first.returncode == 0, talk
        reports = [json.loads(line) for line in out.splitlines()]
        assert (reports[-1]["state"], reports[-1]["failure"]) == ("stopped", "")

        second = running(millpond, file, served.url)
        meters.append([{"vid": f"m-{n}", "temp": float(n)} for n in range(30, 50)])
        until(lambda: hot() > 10)
        second.kill()
        second.communicate()
        meters.append([{"vid": f"m-{n}", "temp": float(n)} for n in range(50, 60)])
        third = running(millpond, file, served.url, "--once")
        _, talk = third.communicate(timeout=PATIENCE_SECONDS)
        assert third.returncode == 0, talk
        temps = pond.stream("grid/hot").scan(columns=["temp"])["temp"].to_pylist()
        assert sorted(temps) == [float(n) for n in range(20, 60)]
        assert (tmp_path / "served" / "pipelines" / "hot" / "checkpoint" / "commits").is_dir()
        assert served.stop() == 0


def test_what_is_wrong_is_said_before_spark_is_started(millpond: Commands, tmp_path: Path) -> None:
    millpond("init")
    file = tmp_path / "pipelines.py"
    assert "is not a file" in millpond("run", str(file), code=2).talk
    file.write_text(PIPELINES.replace("trigger=", "tigger="))
    said = millpond("run", str(file), code=2)
    assert "line 4" in said.talk
    assert "tigger" in said.talk
    file.write_text(PIPELINES)
    assert "declares no pipeline 'cold'" in millpond("run", str(file), "cold", code=2).talk
