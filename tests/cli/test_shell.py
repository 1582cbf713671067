"""How commands begin and end: options anywhere, errors and exit codes, help, start-up."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import millpond as package
from millpond import errors
from millpond.cli.exits import EXIT_OF, MEANING, Exit, exit_of
from millpond.cli.main import app
from millpond.cli.shell import options_first
from millpond.pond.stream import Stream
from tests.cli.conftest import MILLPOND, Commands, readings
from tests.conftest import ROOT

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
DOCS = (ROOT / "docs" / "cli.md").read_text()


def all_errors() -> list[type[errors.MillpondError]]:
    found = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    return [each for each in found if issubclass(each, errors.MillpondError)]


def test_the_commands_that_are_promised_are_there() -> None:
    data = "init create streams describe put cat get scan sql explain drop alter segments truncate file run"
    data += " consume groups group replay queries index datasets dataset"
    care = "settle vacuum reindex relayout status verify doctor demo serve token generate"
    assert sorted(f"{data} {care}".split()) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(millpond: Commands, command: str) -> None:
    text = millpond(command, "--help").out
    examples = text.split("Example")[1]
    assert f"millpond {command}" in examples
    assert f"`{command}" in DOCS


def test_help_of_all(millpond: Commands) -> None:
    text = millpond("--help").out
    assert all(re.search(rf"^  {command} ", text, re.MULTILINE) for command in COMMANDS)
    assert millpond("--version").out == f"millpond {package.__version__}\n"
    assert "Missing command" in millpond(code=2).talk


def test_starting_does_not_import_what_is_slow() -> None:
    heavy = {"pyarrow", "numpy", "pandas", "pyspark", "matplotlib", "deltalake", "sqlglot", "rich"}
    code = f"import sys, millpond.cli.main; print(*sorted({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


def test_python_m_millpond_is_millpond(tmp_path: Path) -> None:
    run = subprocess.run([*MILLPOND, "--version"], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert run.stdout == f"millpond {package.__version__}\n"


# Options of all commands.


def test_options_of_all_commands_may_stand_anywhere(pond: Commands, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    pond("init", "--pond", other, "--quiet")
    pond("--pond", other, "create", "x", "--schema", "a int")
    assert pond("streams", f"--pond={other}", "--json").one["name"] == "x"
    assert pond("--json", "streams", "--pond", other).one["name"] == "x"


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        ("put s --json --pond p", "--json --pond p put s"),
        ("put s -q -v --pond=p", "-q -v --pond=p put s"),
        ("get s -- --json", "get s -- --json"),
        ("put --pond", "--pond put"),
    ],
)
def test_options_are_moved_to_the_front(line: str, moved: str) -> None:
    assert options_first(line.split()) == moved.split()


# Errors.


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_has_an_exit_code(kind: type[errors.MillpondError]) -> None:
    assert kind.code in EXIT_OF, f"{kind.__name__} has no exit code: add it to EXIT_OF"
    assert exit_of(kind("x")) == EXIT_OF[kind.code]


def test_the_docs_carry_the_table_of_exit_codes() -> None:
    table = dict(re.findall(r"^\| (\d+) \| (.*) \|$", DOCS, re.MULTILINE))
    assert table == {str(int(code)): meaning for code, meaning in MEANING.items()}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.MemoryFull("no memory", hint="wait"), Exit.BACKPRESSURE),
        (errors.DiskFull("no room", hint="wait"), Exit.BACKPRESSURE),
        (errors.JournalClosed("closed", hint="reopen"), Exit.UNAVAILABLE),
        (errors.Damaged("flipped", hint="restore"), Exit.DAMAGED),
        (PermissionError(13, "Permission denied", "/x"), Exit.UNAVAILABLE),
        (RuntimeError("oops"), Exit.INTERNAL),
    ],
)
def test_an_error_ends_with_its_code_in_words_and_in_json(
    pond: Commands, monkeypatch: pytest.MonkeyPatch, error: Exception, code: Exit
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(Stream, "append", fail)
    said = pond("put", "grid/meters", input=readings(1), code=code)
    assert said.out == ""
    *_, told, hint = said.talk.splitlines()
    assert told.startswith("error: ")
    assert hint.startswith("hint: ")
    said = pond("put", "grid/meters", "--json", input=readings(1), code=code)
    assert set(said.error) == {"code", "message", "hint"}
    assert said.error["message"] == told.removeprefix("error: ")
    assert "Traceback" not in said.talk
    said = pond("put", "grid/meters", "--verbose", input=readings(1), code=code)
    assert isinstance(error, OSError) or "Traceback" in said.talk


def test_a_pond_that_another_process_has_is_locked(pond: Commands) -> None:
    with package.open(pond.path, background=False):
        for words in (["status"], ["put", "grid/meters"], ["cat", "grid/meters"], ["verify"], ["init"]):
            assert pond(*words, "--json", code=4).error["code"] == "pond-locked"


def test_errors_of_usage_are_json_too(pond: Commands) -> None:
    error = pond("nothing", "--json", code=2).error
    assert error["code"] == "usage"
    assert "No such command" in error["message"]
    assert pond("put", "--json", code=2).error["hint"] == "millpond put --help shows how"
    assert "error: " in pond("scan", "grid/meters", "--limit", "-1", code=2).talk


def test_talk_of_the_rooms_below_goes_to_stderr(pond: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    def warn(*given: object, **named: object) -> None:
        logging.getLogger("millpond.pond").warning("look at %s", "this")
        logging.getLogger("millpond.pond").info("only a detail")

    monkeypatch.setattr(Stream, "settle", warn)
    said = pond("settle")
    assert "warning: look at this" in said.talk
    assert "detail" not in said.talk
    assert "only a detail" in pond("settle", "--verbose").talk
    assert pond("settle", "--quiet").talk == ""
