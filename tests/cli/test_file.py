"""`millpond file`: bytes through pipes, into and out of a pond."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cli.conftest import MILLPOND, Commands

CAMERA = "sensors/cam1"


def test_bytes_go_in_and_come_out(millpond: Commands, tmp_path: Path) -> None:
    millpond("init")
    every_byte = bytes(range(256)) * 5_000
    source = tmp_path / "frames"
    source.write_bytes(every_byte)
    said = millpond("file", "put", CAMERA, str(source))
    assert "ends at 1,280,000" in said.talk
    millpond("file", "put", CAMERA, input=b"tail\n")
    assert millpond("file", "get", CAMERA).raw == every_byte + b"tail\n"
    assert millpond("file", "get", CAMERA, "--from", "1279998", "--count", "4").raw == b"\xfe\xffta"
    assert millpond("file", "get", CAMERA, "--from", "-5").raw == b"tail\n"
    assert millpond("file", "get", CAMERA, "--from", "-9999999", "--count", "2").raw == b"\x00\x01"
    assert millpond("file", "ls", "--json").several == [{"file": CAMERA, "bytes": 1_280_005}]
    assert millpond("file", "ls", "logs/", "--json").several == []


def test_what_cannot_be_is_refused(millpond: Commands) -> None:
    millpond("init")
    millpond("create", "grid/meters", "--schema", "vid string")
    millpond("file", "put", CAMERA, "--new", input=b"abc")
    assert "is there already" in millpond("file", "put", CAMERA, "--new", input=b"abc", code=2).talk
    assert "no file" in millpond("file", "put", "grid/meters", input=b"abc", code=2).talk
    assert "no file" in millpond("file", "rm", "grid/meters", code=2).talk
    assert "is not a file" in millpond("file", "put", CAMERA, "/nowhere", code=2).talk
    millpond("file", "rm", CAMERA)
    assert "no stream" in millpond("file", "get", CAMERA, code=3).talk


def test_it_stands_in_a_pipe(millpond: Commands) -> None:
    millpond("init")
    lines = b"".join(b"line %d\n" % number for number in range(10_000))
    put = [*MILLPOND, "file", "put", "logs/app", "--exclusive"]
    subprocess.run(put, input=lines, env=millpond.environment, check=True, capture_output=True)
    got = subprocess.run(
        [*MILLPOND, "file", "get", "logs/app"], env=millpond.environment, check=True, capture_output=True
    )
    assert got.stdout == lines
