"""What docs/cli.md shows is run, line by line, as a reader would."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millpond.cli.main import app
from tests.cli.conftest import Commands
from tests.conftest import ROOT

BLOCK = re.compile(r"^```console( spark)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, int, str, bool]]:
    """Command, exit code, the output shown (if any), whether it needs Spark."""
    found: list[tuple[str, int, str, bool]] = []
    for spark, block in BLOCK.findall((ROOT / "docs" / "cli.md").read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                code = re.search(r"# exit (\d+)$", line)
                found.append((line[2:], int(code[1]) if code else 0, "", bool(spark)))
            else:
                command, code_, shown, needs = found[-1]
                found[-1] = (command, code_, shown + line + "\n", needs)
    return found


@pytest.mark.spark
def test_every_example_does_what_it_shows(millpond: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del millpond.environment["MILLPOND_POND"]
    monkeypatch.delenv("MILLPOND_POND", raising=False)
    monkeypatch.chdir(tmp_path)
    listed = examples()
    assert len(listed) > 40
    for command, code, shown, needs_spark in listed:
        ended, out, talk = run(millpond, command, tmp_path, needs_spark)
        assert ended == code, f"$ {command}\n{out}{talk}"
        if shown:
            pattern = re.escape(shown).replace("…", ".*?")
            assert re.fullmatch(pattern, out), f"$ {command}\nshows\n{shown}but says\n{out}"


def run(millpond: Commands, command: str, where: Path, needs_spark: bool) -> tuple[int, str, str]:
    """Exit code, stdout, stderr. What is only a command is run in this process: starting one takes most of the time."""
    words = shlex.split(command, comments=True)
    if words[0] == "millpond" and not needs_spark and not {"|", ">"} & set(words):
        result = CliRunner(env=millpond.environment).invoke(app, words[1:])
        return result.exit_code, result.stdout, result.stderr
    done = millpond.shell(f"set -o pipefail; {command}", where)
    return done.returncode, done.stdout, done.stderr
