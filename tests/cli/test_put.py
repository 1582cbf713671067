"""`put`: records from files and pipes."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.cli import put as put_module
from millpond.cli.put import of_equal_size
from millpond.cli.source import Source
from tests.cli.conftest import Commands, readings

PATIENCE_SECONDS = 60


def count(pond: Commands) -> int:
    found: int = pond("scan", "grid/meters", "--count", "--json").one["count"]
    return found


def test_ndjson_from_stdin_is_acknowledged(pond: Commands) -> None:
    said = pond("put", "grid/meters", "--json", input=readings(25))
    assert said.one["rows"] == 25
    assert said.one["batches"] == 1
    assert said.one["durability"] == "disk"
    assert said.one["complete"] is True
    assert "acknowledged 25 rows" in said.talk
    assert count(pond) == 25


def test_without_json_nothing_is_on_stdout(pond: Commands) -> None:
    assert pond("put", "grid/meters", input=readings(2)).out == ""
    said = pond("put", "grid/meters", "--quiet", input=readings(2))
    assert (said.out, said.talk) == ("", "")


def test_files_are_read_one_after_another_by_their_names(pond: Commands, tmp_path: Path) -> None:
    lines, table, arrow = tmp_path / "a.ndjson", tmp_path / "b.csv", tmp_path / "c.arrow"
    lines.write_text(readings(3))
    pond("put", "grid/meters", str(lines))
    table.write_text(pond("scan", "grid/meters", "--format", "csv").out)
    arrow.write_bytes(pond("scan", "grid/meters", "--format", "arrow").raw)
    said = pond("put", "grid/meters", str(table), str(arrow), "-", "--json", input=readings(1)).one
    assert said["rows"] == 7
    assert said["bytes"] == table.stat().st_size + arrow.stat().st_size + len(readings(1))
    assert count(pond) == 10


def test_the_format_can_be_given(pond: Commands) -> None:
    said = pond("put", "grid/meters", "--format", "csv", "--json", input="vid,temp\nm-1,1.5\nm-2,\n")
    assert said.one["rows"] == 2
    assert pond("scan", "grid/meters", "--where", "temp IS NULL", "--columns", "vid").several == [{"vid": "m-2"}]
    assert pond("put", "grid/meters", "--format", "xml", "--json", code=2).error["code"] == "invalid-value"


def test_batches_are_of_ten_thousand_rows(pond: Commands) -> None:
    assert pond("put", "grid/meters", "--json", input=readings(25_000)).one["batches"] == 3
    assert count(pond) == 25_000


def test_a_bad_row_is_named_and_what_was_acknowledged_before_it_stays(pond: Commands) -> None:
    lines = readings(24_999) + '{"vid": "m-1", "temp": "warm"}\n' + readings(5)
    said = pond("put", "grid/meters", "--json", input=lines, code=2)
    assert said.error["code"] == "invalid-record"
    assert "line 25000, column 'temp': 'warm'" in said.error["message"]
    assert said.one["rows"] == 20_000
    assert said.one["complete"] is False
    assert "acknowledged 20,000 rows in 2 batches" in said.talk
    assert count(pond) == 20_000


def test_a_bad_row_of_a_file_is_named_with_the_file(pond: Commands, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("vid,temp\nm-1,1\nm-2,cold\n")
    said = pond("put", "grid/meters", str(path), code=2)
    assert f"error: {path}: record 2, column 'temp': 'cold'" in said.talk
    assert "hint: " in said.talk


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json\n", "line 1 is not JSON"),
        ('{"vid": "m"}\n[1]\n', "line 2"),
        ('{"vid": "m", "nope": 1}\n', "column 'nope': the stream has no such column"),
        ('{"_offset": 1}\n', "set by Millpond"),
    ],
)
def test_what_is_no_record_is_refused(pond: Commands, text: str, said: str) -> None:
    assert said in pond("put", "grid/meters", input=text, code=2).talk
    assert count(pond) == 0


def test_empty_input_is_nothing(pond: Commands) -> None:
    assert pond("put", "grid/meters", "--json", input="").one["rows"] == 0


def test_missing_files_and_streams(pond: Commands) -> None:
    assert "no-such-file is not a file" in pond("put", "grid/meters", "no-such-file", code=2).talk
    assert pond("put", "grid/other", "--json", input="", code=3).error["code"] == "stream-not-found"


def test_a_durability_of_its_own(pond: Commands) -> None:
    assert pond("put", "grid/meters", "--durability", "os", "--json", input=readings(1)).one["durability"] == "os"
    assert pond("put", "grid/meters", "--durability", "x", "--json", code=2).error["code"] == "invalid-value"


def test_raw_streams_take_bodies(pond: Commands) -> None:
    pond("create", "web/hooks", "--raw")
    pond("put", "web/hooks", input='{"body": "hello", "headers": {"from": "me"}}\n{"body_base64": "/w=="}\n')
    found = pond("scan", "web/hooks").several
    assert [(row.get("body"), row.get("body_base64")) for row in found] == [("hello", None), (None, "/w==")]


# With a producer.


def test_putting_the_same_input_again_adds_nothing(pond: Commands) -> None:
    words = ("put", "grid/meters", "--producer", "import", "--json")
    assert pond(*words, input=readings(25_000)).one["rows"] == 25_000
    again = pond(*words, input=readings(25_000)).one
    assert (again["rows"], again["rows_known"], again["complete"]) == (0, 25_000, True)
    assert count(pond) == 25_000


def test_after_a_bad_row_is_mended_the_same_producer_goes_on(pond: Commands) -> None:
    words = ("put", "grid/meters", "--producer", "import", "--json")
    said = pond(*words, input=readings(24_999) + '{"vid": 5}\n', code=2)
    assert said.one["rows"] == 20_000
    mended = pond(*words, input=readings(25_000)).one
    assert (mended["rows"], mended["rows_known"]) == (5_000, 20_000)
    assert count(pond) == 25_000


def test_more_batches_than_the_pond_remembers(pond: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_module, "BATCH_ROWS", 10)
    words = ("put", "grid/meters", "--producer", "import", "--json")
    assert pond(*words, input=readings(500)).one["batches"] == 50
    grown = pond(*words, input=readings(520)).one
    assert (grown["rows"], grown["rows_known"]) == (20, 500)
    assert count(pond) == 520


def test_another_input_under_the_same_name_is_refused(pond: Commands) -> None:
    """A grown input would otherwise lose what was added to its last, partial batch."""
    words = ("put", "grid/meters", "--producer", "import", "--json")
    pond(*words, input=readings(15_000))
    said = pond(*words, input=readings(18_000), code=2)
    assert "8000 rows, but was acknowledged with 5000" in said.error["message"]
    assert "--producer" in said.error["hint"]
    assert count(pond) == 15_000


def test_batches_of_equal_size() -> None:
    batches = [pa.record_batch({"x": pa.array(range(n), pa.int64())}) for n in (3, 0, 5, 1, 4)]
    assert [batch.num_rows for batch in of_equal_size(batches, 4)] == [4, 4, 4, 1]
    together = pa.Table.from_batches(list(of_equal_size(batches, 4))).column("x").to_pylist()
    assert together == pa.Table.from_batches(batches).column("x").to_pylist()
    assert list(of_equal_size([], 4)) == []


# Pipes and signals.


def wait_until(pond: Commands, size: int) -> None:
    """Until the journal has grown to so many bytes: the pond itself is the other process's."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(file.stat().st_size for file in (pond.path / "journal").glob("*.journal")) < size:
        assert time.monotonic() < deadline, "the records did not arrive"
        time.sleep(0.02)


def journal_size(pond: Commands) -> int:
    return sum(file.stat().st_size for file in (pond.path / "journal").glob("*.journal"))


def test_a_slow_pipe_is_followed_and_ctrl_c_loses_nothing(pond: Commands) -> None:
    """A line is appended when it comes, not when a batch is full; Ctrl-C then ends it with what was acknowledged."""
    process = pond.start("put", "grid/meters", "--json")
    assert process.stdin is not None
    size = journal_size(pond)
    for at in range(3):
        process.stdin.write(readings(1, at).encode())
        process.stdin.flush()
        wait_until(pond, size + 1)
        size = journal_size(pond)
    process.send_signal(signal.SIGINT)
    out, talk = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, talk.decode()
    report = json.loads(out)
    assert (report["rows"], report["complete"]) == (3, False)
    assert b"Traceback" not in talk
    assert count(pond) == 3


def test_ctrl_c_during_an_append_takes_effect_behind_it(pond: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.pond.stream import Stream

    append = Stream.append

    def pressed(self: Stream, *given: object, **named: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return append(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Stream, "append", pressed)
    said = pond("put", "grid/meters", "--json", input=readings(25_000), code=130)
    assert (said.one["rows"], said.one["complete"]) == (10_000, False)
    monkeypatch.undo()
    assert count(pond) == 10_000


def test_a_second_ctrl_c_does_not_wait_for_the_append(pond: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.pond.stream import Stream

    def hanging(self: Stream, *given: object, **named: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the append went on")

    monkeypatch.setattr(Stream, "append", hanging)
    said = pond("put", "grid/meters", "--json", input=readings(10), code=130)
    assert (said.one["rows"], said.one["complete"]) == (0, False)


def test_a_pipe_from_one_pond_to_another(pond: Commands, tmp_path: Path) -> None:
    pond("put", "grid/meters", input=readings(1_000))
    run = pond.shell(
        "set -e; export OTHER=$PWD/other\n"
        "millpond --pond $OTHER init -q\n"
        'millpond --pond $OTHER create -q copy --schema "vid string, city string, temp double, date timestamp"\n'
        "millpond scan grid/meters | millpond put copy --pond $OTHER --json -q",
        tmp_path,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["rows"] == 1_000


@pytest.mark.parametrize("ending", ["\n", ""])
def test_lines_are_handed_on_by_the_batch(ending: str) -> None:
    told: list[int] = []
    text = "\n".join(f"line {n}" for n in range(25)) + ending
    source = Source(io.BytesIO(text.encode()), told.append, pipe=False, lines=10)
    pieces = []
    while piece := source.read1():
        pieces.append(piece)
    assert b"".join(pieces).decode() == text
    assert [piece.count(b"line") for piece in pieces] == [10, 10, 5]
    assert sum(told) == len(text)
