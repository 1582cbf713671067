"""`doctor`: every check, with a pond and without, and that it leaves everything as it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.cli.doctor import machine
from millpond.cli.doctor import pond as pond_checks
from tests.cli.conftest import Commands, Said, readings

OF_THE_MACHINE = {"python", "packages", "java", "spark", "memory", "open files", "ports", "clock"}
OF_THE_DISK = {"disk room", "file system", "sync"}
OF_THE_POND = {"pond", "lock", "journal", "torn tails", "newest frames"}


def by_check(said: Said) -> dict[str, dict[str, Any]]:
    return {each["check"]: each for each in said.several}


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in [directory, *directory.rglob("*")]
    }


def test_it_works_without_a_pond_and_makes_none(millpond: Commands) -> None:
    found = by_check(millpond("doctor", "--json"))
    assert set(found) == OF_THE_MACHINE | OF_THE_DISK | {"pond"}
    assert set(found["java"]) == {"check", "state", "found", "mend"}
    assert "is not a pond" in found["pond"]["found"]
    assert not millpond.path.exists()


def test_it_looks_at_a_pond_and_changes_nothing(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(10))
    before = contents(pond.path)
    found = by_check(pond("doctor", "--json"))
    assert contents(pond.path) == before
    assert set(found) == OF_THE_MACHINE | OF_THE_DISK | OF_THE_POND
    assert found["lock"]["found"] == "free"
    assert "closed cleanly" in found["newest frames"]["found"]
    text = pond("doctor")
    assert "checks: 0 failed" in text.talk
    assert all(line.startswith(("ok", "warn", "     ")) for line in text.out.splitlines())


def test_it_works_while_another_process_has_the_pond(pond: Commands) -> None:
    with millpond.open(pond.path, background=False):
        found = by_check(pond("doctor", "--json"))
        assert found["lock"]["found"] == f"held by process {os.getpid()}"
        assert "another process is writing" in found["newest frames"]["found"]


def test_torn_tails_are_shown(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(10))
    (journal,) = pond.path.glob("journal/*.journal")
    with journal.open("ab") as file:
        file.write(b"half a fra")
    found = by_check(pond("doctor", "--json"))
    assert found["newest frames"]["state"] == "warn"
    assert "10 torn bytes" in found["newest frames"]["found"]
    assert pond("scan", "grid/meters", "--count").out == "10\n"
    found = by_check(pond("doctor", "--json"))
    assert found["torn tails"]["state"] == "warn"
    assert "1 kept" in found["torn tails"]["found"]


def test_a_description_that_cannot_be_read_is_damage(pond: Commands) -> None:
    (pond.path / "pond.json").write_text("{")
    found = by_check(pond("doctor", "--json", code=6))
    assert found["pond"]["state"] == "fail"


def test_a_format_from_the_future(pond: Commands) -> None:
    described = pond.path / "pond.json"
    described.write_text(described.read_text().replace('"format": 1', '"format": 99'))
    found = by_check(pond("doctor", "--json", code=4))
    assert "format 99" in found["pond"]["found"]


def test_no_java(millpond: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.check_java().state == "fail"
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = machine.check_java()
    assert (found.state, found.found) == ("fail", f'version "11.0.2" ({old})')
    assert "Java 17" in found.mend


def test_limits_are_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (256, 1024))
    assert machine.check_open_files().mend == "ulimit -n 1024"
    monkeypatch.setattr(machine, "_available_bytes", lambda: 100_000_000)
    assert machine.check_memory().state == "warn"
    monkeypatch.setattr(machine, "PINNED", {"pyarrow": "1.", "no-such-package": "2."})
    assert "no-such-package missing" in machine.check_packages().found
    monkeypatch.setattr(pond_checks, "_file_system", lambda _: "tmpfs")
    assert pond_checks._check_file_system(tmp_path).state == "warn"
    monkeypatch.setattr(pond_checks, "SYNC_SLOW_SECONDS", 0)
    assert pond_checks._check_sync(tmp_path).state == "warn"
    monkeypatch.setattr(pond_checks, "ROOM_MINIMUM_BYTES", 10**18)
    assert pond_checks._check_room(tmp_path).state == "warn"
