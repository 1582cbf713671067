"""Running commands: in this process for what they say, in one of their own for pipes, signals and start-up."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.cli.main import app

MILLPOND = [sys.executable, "-m", "millpond"]


@dataclass(frozen=True)
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    talk: str
    raw: bytes

    @property
    def one(self) -> dict[str, Any]:
        """stdout as one JSON object on one line."""
        (line,) = self.out.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    @property
    def several(self) -> list[dict[str, Any]]:
        """stdout as NDJSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The last line of stderr as the JSON object of an error."""
        found: dict[str, Any] = json.loads(self.talk.splitlines()[-1])
        return found


class Commands:
    """Runs commands on one pond."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {**os.environ, "MILLPOND_POND": str(path), "COLUMNS": "200"}

    def __call__(self, *words: str, input: str | bytes | None = None, code: int = 0) -> Said:
        """Run a command here, and hold it to an exit code."""
        result = CliRunner(env=self.environment).invoke(app, list(words), input=input)
        said = Said(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)
        assert said.code == code, f"{words} ended with {said.code}:\n{said.talk}\n{said.out}"
        return said

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command in a process of its own, with pipes for all three."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen([*MILLPOND, *words], env=self.environment, **{**pipes, **options})

    def shell(self, line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a line of bash that calls `millpond`."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**self.environment, "PATH": path}
        return subprocess.run(
            ["bash", "-c", line], env=environment, cwd=cwd, capture_output=True, text=True, check=False
        )


@pytest.fixture
def millpond(pond_dir: Path) -> Iterator[Commands]:
    """Commands on a pond that does not exist yet. What they do to logging is undone."""
    logger = logging.getLogger("millpond")
    before = (logger.handlers, logger.level, logger.propagate)
    yield Commands(pond_dir)
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.fixture
def pond(millpond: Commands) -> Commands:
    """Commands on a pond with one empty stream, `grid/meters`."""
    millpond("init")
    millpond(
        *("create", "grid/meters", "--schema", "vid string, city string, temp double, date timestamp"),
        *("--key", "vid", "--key", "city", "--event-time", "date", "--streamlets", "2"),
    )
    return millpond


def readings(count: int, start: int = 0) -> str:
    """NDJSON: ten meters in three towns, a minute apart."""
    return "".join(
        json.dumps(
            {
                "vid": f"m-{n % 10}",
                "city": ("Nice", "Menton", "Gap")[n % 3],
                "temp": n / 10,
                "date": f"2026-01-31T{n // 60 % 24:02d}:{n % 60:02d}:00Z",
            }
        )
        + "\n"
        for n in range(start, start + count)
    )


def rows(said: Said, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The named columns of NDJSON."""
    return [tuple(row[name] for name in columns) for row in said.several]
