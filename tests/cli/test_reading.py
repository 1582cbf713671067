"""cat, get, scan, segments: records without Spark."""

from __future__ import annotations

import csv
import io
import json
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.cli.output import escaped
from millpond.query import parse_start
from tests.cli.conftest import Commands, readings, rows


@pytest.fixture
def half_settled(pond: Commands) -> Commands:
    """60 records settled, 40 live."""
    pond("put", "grid/meters", input=readings(60))
    pond("settle")
    pond("put", "grid/meters", input=readings(40, start=60))
    return pond


def test_cat_gives_every_record_in_order_with_its_place(half_settled: Commands) -> None:
    said = half_settled("cat", "grid/meters")
    found = rows(said, ["_streamlet", "_offset"])
    assert len(set(found)) == 100
    for streamlet in (0, 1):
        offsets = [offset for where, offset in found if where == streamlet]
        assert offsets == list(range(len(offsets)))
    assert sorted(row["temp"] for row in said.several) == [n / 10 for n in range(100)]


def test_cat_from_a_place(half_settled: Commands) -> None:
    everything = half_settled("cat", "grid/meters").several
    assert half_settled("cat", "grid/meters", "--from", "latest").out == ""
    rest = half_settled("cat", "grid/meters", "--from", "0:10,1:5").several
    assert len(rest) == 100 - 15
    moment = max(row["_ingest_time"] for row in everything)
    assert len(half_settled("cat", "grid/meters", "--from", moment).several) == 40
    said = half_settled("cat", "grid/meters", "--from", "7", "--json", code=2)
    assert "of which of the 2 streamlets" in said.error["message"]
    assert half_settled("cat", "grid/meters", "--from", "yesterday", "--json", code=2).error["code"] == "invalid-value"


def test_what_a_place_may_be() -> None:
    assert parse_start("120") == 120
    assert parse_start("0:5, 1:7") == {0: 5, 1: 7}
    assert parse_start("earliest") == "earliest"
    assert parse_start("2026-01-31T12:00:00Z") == "2026-01-31T12:00:00Z"


def test_cat_limits_projects_and_filters(half_settled: Commands) -> None:
    assert len(half_settled("cat", "grid/meters", "--limit", "7").several) == 7
    assert half_settled("cat", "grid/meters", "--limit", "0").out == ""
    said = half_settled("cat", "grid/meters", "--columns", "vid,_offset", "--where", "temp >= 9.8")
    assert [sorted(row) for row in said.several] == [["_offset", "vid"]] * 2
    said = half_settled("cat", "grid/meters", "--columns", "vdi", "--json", code=2)
    assert "did you mean 'vid'" in said.error["hint"]


def test_every_format_carries_the_same_records(half_settled: Commands) -> None:
    lines = half_settled("scan", "grid/meters", "--where", "temp < 1").several
    table = half_settled("scan", "grid/meters", "--where", "temp < 1", "--format", "csv").out
    arrow = half_settled("scan", "grid/meters", "--where", "temp < 1", "--format", "arrow").raw
    text = half_settled("scan", "grid/meters", "--where", "temp < 1", "--format", "table").out.splitlines()
    assert len(lines) == 10
    assert [row["vid"] for row in csv.DictReader(io.StringIO(table))] == [row["vid"] for row in lines]
    assert pa.ipc.open_stream(arrow).read_all().column("vid").to_pylist() == [row["vid"] for row in lines]
    assert text[0].split() == ["vid", "city", "temp", "date"]
    assert [line.split()[0] for line in text[2:]] == [row["vid"] for row in lines]
    assert half_settled("scan", "grid/meters", "--format", "xml", "--json", code=2).error["code"] == "invalid-value"


def test_a_record_cannot_move_the_cursor_of_who_looks_at_it(pond: Commands) -> None:
    pond("put", "grid/meters", input=json.dumps({"vid": "\x1b[2J\nboo"}) + "\n")
    text = pond("cat", "grid/meters", "--format", "table").out
    assert "\x1b" not in text
    assert "\\x1b[2J\\nboo" in text
    assert escaped("Fréjus ∪") == "Fréjus ∪"


def test_get_by_primary_and_by_secondary_key(half_settled: Commands) -> None:
    found = half_settled("get", "grid/meters", "m-7", "--limit", "3").several
    assert [row["temp"] for row in found] == [9.7, 8.7, 7.7]
    by_city = half_settled("get", "grid/meters", "Gap", "--by", "city", "--limit", "100").several
    assert len(by_city) == 33
    assert {row["city"] for row in by_city} == {"Gap"}
    said = half_settled("get", "grid/meters", "m-99", "--json")
    assert said.out == ""
    assert "no record with vid = m-99" in said.talk


def test_get_by_what_is_no_key(half_settled: Commands) -> None:
    said = half_settled("get", "grid/meters", "1", "--by", "temp", "--json", code=2)
    assert "'temp' is not a key" in said.error["message"]
    half_settled("create", "keyless", "--schema", "x int")
    assert "no keys" in half_settled("get", "keyless", "1", "--json", code=2).error["message"]


def test_a_key_is_read_as_its_column_has_it(pond: Commands) -> None:
    pond("create", "numbers", "--schema", "id bigint, day date", "--key", "id", "--key", "day")
    pond("put", "numbers", input='{"id": 17, "day": "2026-01-31"}\n')
    assert pond("get", "numbers", "17").several[0]["id"] == 17
    assert pond("get", "numbers", "2026-01-31", "--by", "day").several[0]["id"] == 17
    assert pond("get", "numbers", "seventeen", "--json", code=2).error["code"] == "invalid-value"


def test_scan_over_both_halves(half_settled: Commands) -> None:
    """K6, K13: a predicate and columns over live and settled records."""
    said = half_settled(
        "scan", "grid/meters", "--where", "temp BETWEEN 5.5 AND 6.4 AND city <> 'Gap'", "--columns", "temp"
    )
    assert sorted(row["temp"] for row in said.several) == [n / 10 for n in range(55, 65) if n % 3 != 2]
    assert len(half_settled("scan", "grid/meters", "--limit", "5").several) == 5
    assert half_settled("scan", "grid/meters", "--count").out == "100\n"
    assert half_settled("scan", "grid/meters", "--where", "temp >= 9", "--count", "--json").one == {"count": 10}
    assert (
        half_settled("scan", "grid/meters", "--where", "temp >", "--json", code=2).error["code"] == "invalid-predicate"
    )


def test_explain_says_what_would_be_skipped(half_settled: Commands) -> None:
    report = half_settled("scan", "grid/meters", "--where", "temp > 100", "--explain", "--json").one
    assert report["objects_total"] > report["objects_read"] == 0
    assert report["skipped_by"] == {"temp": report["objects_total"]}
    assert report["rows_live"] == 40
    text = half_settled("scan", "grid/meters", "--where", "temp > 100", "--explain").out
    assert text.startswith(f"reads 0 of {report['objects_total']} objects")
    assert "reads" in half_settled("scan", "grid/meters", "--limit", "1", "--verbose").talk


def test_segments_of_both_halves_and_their_records(half_settled: Commands) -> None:
    listed = half_settled("segments", "grid/meters", "--json").several
    assert {each["state"] for each in listed} > {"settled"}
    read = [row for each in listed for row in half_settled("segments", "grid/meters", "--read", each["id"]).several]
    assert sorted(row["temp"] for row in read) == [n / 10 for n in range(100)]
    assert "settled" in half_settled("segments", "grid/meters").out
    half_settled("segments", "grid/meters", "--read", "nothing", code=2)


def test_reading_changes_nothing(half_settled: Commands) -> None:
    """What only looks at a pond does not settle or merge behind the user's back."""
    before = half_settled("status", "grid/meters", "--json").one
    for words in (["cat", "grid/meters"], ["get", "grid/meters", "m-1"], ["scan", "grid/meters"], ["verify"]):
        half_settled(*words)
    assert half_settled("status", "grid/meters", "--json").one == before


def test_a_reader_that_leaves_ends_it_quietly(pond: Commands, tmp_path: Path) -> None:
    pond("put", "grid/meters", input=readings(5_000))
    for words in ("cat grid/meters", "cat grid/meters --format csv", "scan grid/meters --format table"):
        run = pond.shell(f'millpond {words} | head -n 3; echo "${{PIPESTATUS[0]}}"', tmp_path)
        assert run.stdout.splitlines()[-1] == "0"
        assert len(run.stdout.splitlines()) == 4
        assert run.stderr == ""


def test_following_ends_with_ctrl_c(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(3))
    process = pond.start("cat", "grid/meters", "--follow")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert sorted(json.loads(line)["temp"] for line in lines) == [0.0, 0.1, 0.2]
    process.send_signal(signal.SIGINT)
    out, talk = process.communicate(timeout=60)
    assert (process.returncode, out, talk) == (130, b"", b"")


def test_a_long_table_is_printed_as_it_comes(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(2_500))
    lines = pond("scan", "grid/meters", "--columns", "vid,temp", "--format", "table").out.splitlines()
    assert len(lines) == 2_502
    assert pond("scan", "grid/meters", "--where", "temp > 1000", "--format", "table").out.count("\n") == 2
