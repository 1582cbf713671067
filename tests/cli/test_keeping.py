"""settle, status, verify."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Commands, readings


def test_settle_moves_what_is_live(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(50))
    (report,) = pond("settle", "grid/meters", "--json").several
    assert (report["stream"], report["rows"], report["version"]) == ("grid/meters", 50, 1)
    (again,) = pond("settle", "--json").several
    assert (again["rows"], again["objects"]) == (0, 0)
    status = pond("status", "grid/meters", "--json").one
    assert (status["rows_live"], status["rows_settled"]) == (0, 50)
    assert "grid/meters" in pond("settle").out


def test_settle_leaves_out_streams_that_are_not_archived_unless_named(pond: Commands) -> None:
    pond("create", "quiet", "--schema", "x int", "--no-settle")
    assert [each["stream"] for each in pond("settle", "--json").several] == ["grid/meters"]
    assert pond("settle", "quiet", "--json", code=2).error["code"] == "invalid-value"
    assert pond("settle", "nothing", "--json", code=3).error["code"] == "stream-not-found"


def test_status_of_the_pond_and_of_a_stream(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(12))
    everything = pond("status", "--json").one
    assert everything["path"] == str(pond.path)
    (stream,) = everything["streams"]
    assert (stream["name"], stream["rows_live"], stream["rows_settled"]) == ("grid/meters", 12, 0)
    assert {"memory_bytes", "journal_bytes", "refused"} <= set(everything["log"])
    assert sum(stream["head"].values()) == 12
    text = pond("status").out
    assert str(pond.path) in text
    assert "grid/meters" in text
    assert "live       12 records" in pond("status", "grid/meters").out


def test_verify_of_a_pond_that_is_as_written(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(30))
    pond("settle")
    pond("put", "grid/meters", input=readings(5, start=30))
    said = pond("verify", "--json")
    assert said.one["ok"] is True
    assert said.one["findings"] == []
    assert (said.one["records"], said.one["streams"]) == (35, 1)
    text = pond("verify")
    assert text.out == ""
    assert "35 records" in text.talk


def test_verify_finds_a_flipped_bit_in_an_object(pond: Commands) -> None:
    """B7: damage is found, named, and told by the exit code."""
    pond("put", "grid/meters", input=readings(30))
    pond("settle")
    (path,) = pond.path.glob("archive/*/g00001/*/*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    said = pond("verify", "--json", code=6)
    assert said.one["ok"] is False
    assert any(path.name in finding["path"] for finding in said.one["findings"])
    assert all(finding["hint"] for finding in said.one["findings"])
    text = pond("verify", code=6)
    assert text.out.startswith("error: archive/")
    assert "hint: " in text.out


def test_a_damaged_journal_does_not_open(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(30))
    (path,) = pond.path.glob("journal/*.journal")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    for words in (["status"], ["verify"], ["cat", "grid/meters"]):
        error = pond(*words, "--json", code=6).error
        assert error["code"] == "damaged"
        assert path.name in error["message"]
    doctor = [json.loads(line) for line in pond("doctor", "--json", code=6).out.splitlines()]
    (found,) = [each for each in doctor if each["state"] == "fail"]
    assert found["check"] == "newest frames"
    assert found["mend"]


@pytest.mark.parametrize("words", [("verify", "extra"), ("settle", "--nope"), ("status", "a", "b")])
def test_a_wrong_line_is_refused(pond: Commands, words: tuple[str, ...]) -> None:
    assert pond(*words, "--json", code=2).error["code"] == "usage"


def test_an_index_is_added_and_rebuilt(pond: Commands) -> None:
    made = ["--schema", "city string, n bigint", "--index", "values:n", "--layout", "kdtree:n,buckets=2"]
    pond("create", "a/b", *made)
    pond("put", "a/b", input='{"city": "Nice", "n": 1}\n{"city": "Lille", "n": 2}\n')
    pond("settle")
    pond("alter", "a/b", "--index", "values:city", "--index", "bloom:n,rate=0.001")
    described = pond("describe", "a/b", "--json").one
    assert [index["kind"] for index in described["indexes"]] == ["values", "bloom"]
    assert described["layout"]["buckets"] == 2
    (report,) = pond("reindex", "a/b", "--json").several
    assert report["stream"] == "a/b"
    assert report["objects"] >= 1
    (again,) = pond("reindex", "a/b", "--json").several
    assert again["objects"] == 0
    assert pond("alter", "a/b", "--index", "nosuch:city", "--json", code=2).error["code"] == "invalid-value"
    pond("alter", "a/b", "--index", "none", "--layout", "none")
    assert pond("describe", "a/b", "--json").one["indexes"] == []
