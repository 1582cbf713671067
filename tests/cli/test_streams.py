"""Commands about what there is: init, create, streams, describe, alter, drop."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Commands, readings


def test_init_makes_a_pond_once(millpond: Commands) -> None:
    made = millpond("init", "--json").one
    assert made["made"] is True
    assert Path(made["path"]) == millpond.path
    assert (millpond.path / "pond.json").exists()
    again = millpond("init", "--json").one
    assert again["made"] is False
    assert again["id"] == made["id"]


def test_init_takes_a_directory(millpond: Commands, tmp_path: Path) -> None:
    millpond("init", str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere" / "pond.json").exists()
    assert not millpond.path.exists()


def test_no_other_command_makes_a_pond(millpond: Commands) -> None:
    said = millpond("streams", "--json", code=2)
    assert "is not a pond" in said.error["message"]
    assert "millpond init" in said.error["hint"]
    assert not millpond.path.exists()


def test_init_refuses_a_directory_that_holds_something_else(millpond: Commands) -> None:
    millpond.path.mkdir()
    (millpond.path / "letter.txt").write_text("dear")
    assert "not empty" in millpond("init", code=2).talk


def test_create_describe_and_list_show_the_same_stream(pond: Commands) -> None:
    described = pond("describe", "grid/meters", "--json").one
    assert described["schema"] == "vid string, city string, temp double, date timestamp"
    assert described["keys"] == ["vid", "city"]
    assert described["event_time"] == "date"
    assert described["streamlets"] == 2
    assert (described["settle_every_seconds"], described["settle_bytes"]) == (60.0, 128_000_000)
    (listed,) = pond("streams", "--json").several
    assert listed["name"] == "grid/meters"
    assert listed["records"] == 0
    text = pond("describe", "grid/meters").out
    assert "event_time" in text
    assert "timestamp" in text
    assert "grid/meters" in pond("streams").out


def test_create_takes_every_option(pond: Commands) -> None:
    created = pond(
        *("create", "lab/probes", "--schema", "id bigint NOT NULL, price decimal(10,2)", "--key", "id"),
        *("--durability", "os", "--settle-every", "10s", "--settle-bytes", "16MB", "--partition", "1h"),
        *("--memory", "64MB", "--json"),
    ).one
    assert created["durability"] == "os"
    assert created["settle_every_seconds"] == 10
    assert created["settle_bytes"] == 16_000_000
    assert created["partition_seconds"] == 3600
    assert created["memory_bytes"] == 64_000_000
    assert [column["nullable"] for column in created["columns"]] == [False, True]
    quiet = pond("create", "lab/quiet", "--schema", "x int", "--no-settle", "--json").one
    assert quiet["settle_bytes"] is None


def test_a_raw_stream_has_no_schema_of_its_own(pond: Commands) -> None:
    created = pond("create", "web/hooks", "--raw", "--json").one
    assert created["raw"] is True
    assert created["schema"] == "time timestamp, headers map<string, string>, body binary"


def test_create_wants_exactly_one_source_of_the_schema(pond: Commands) -> None:
    assert "exactly one" in pond("create", "a/b", code=2).talk
    assert "exactly one" in pond("create", "a/b", "--raw", "--schema", "x int", code=2).talk


def test_creating_twice_is_refused_unless_said_to_be_fine(pond: Commands) -> None:
    assert pond("create", "grid/meters", "--schema", "x int", "--json", code=2).error["code"] == "stream-exists"
    refused = pond("create", "grid/meters", "--schema", "x int", "--exist-ok", "--json", code=2).error
    assert "column 0 is vid string, not x int32" in refused["message"]
    pond("create", "grid/meters", "--schema", "vid string", "--exist-ok")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("bad//name", "--schema", "x int"), "invalid-name"),
        (("_pond/mine", "--schema", "x int"), "invalid-name"),
        (("a", "--schema", "x sometype"), "invalid-schema"),
        (("a", "--schema", "_x int"), "invalid-schema"),
        (("a", "--schema", "x int", "--key", "y"), "invalid-schema"),
        (("a", "--schema", "x int", "--settle-every", "60"), "invalid-value"),
        (("a", "--schema", "x int", "--settle-bytes", "lots"), "invalid-value"),
        (("a", "--schema", "x int", "--durability", "paper"), "invalid-value"),
        (("a", "--schema", "x int", "--streamlets", "0"), "invalid-value"),
    ],
)
def test_what_is_wrong_with_a_definition_is_said(pond: Commands, words: tuple[str, ...], code: str) -> None:
    said = pond("create", *words, "--json", code=2)
    assert said.error["code"] == code
    assert said.error["hint"]
    assert [each["name"] for each in pond("streams", "--json").several] == ["grid/meters"]


def test_a_schema_from_a_file(pond: Commands, tmp_path: Path) -> None:
    plain, text, spark = tmp_path / "a.json", tmp_path / "b.sql", tmp_path / "c.json"
    plain.write_text('{"vid": "string", "tags": "array<string>"}')
    text.write_text("-- the meters\nvid string,\ntags array<string>\n")
    tags = {"type": "array", "elementType": "string", "containsNull": True}
    fields = [{"name": "vid", "type": "string", "nullable": True}, {"name": "tags", "type": tags, "nullable": True}]
    spark.write_text(json.dumps({"type": "struct", "fields": fields}))
    for name, path in (("a", plain), ("b", text), ("c", spark)):
        assert (
            pond("create", name, "--schema-file", str(path), "--json").one["schema"] == "vid string, tags array<string>"
        )


def test_a_schema_like_ndjson(pond: Commands, tmp_path: Path) -> None:
    lines = [
        {"id": 1, "x": 1, "at": "2026-01-31T12:00:00.5Z", "day": "2026-01-31", "t": {"a": None}, "l": [], "n": None},
        {"id": 2, "x": 1.5, "at": "2026-01-31 13:00:00", "day": "2026-02-01", "t": {"a": True, "b": "s"}, "l": [1]},
    ]
    path = tmp_path / "data.ndjson"
    path.write_text("\n".join(map(json.dumps, lines)))
    made = pond("create", "like", "--like", str(path), "--json").one
    assert made["schema"] == (
        "id bigint, x double, at timestamp, day date, t struct<a: boolean, b: string>, l array<bigint>, n string"
    )
    pond("put", "like", str(path))
    assert pond("scan", "like", "--count").out.strip() == "2"


def test_a_schema_like_what_cat_wrote(pond: Commands, tmp_path: Path) -> None:
    pond("put", "grid/meters", input=readings(5))
    path = tmp_path / "copy.arrow"
    path.write_bytes(pond("cat", "grid/meters", "--format", "arrow").raw)
    made = pond("create", "copy", "--like", str(path), "--json").one
    assert made["schema"] == "vid string, city string, temp double, date timestamp"


def test_a_schema_like_csv(pond: Commands, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("city,people,since,ok\nNice,345000,1388-09-28,true\n")
    made = pond("create", "like", "--like", str(path), "--json").one
    assert made["schema"] == "city string, people bigint, since date, ok boolean"


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 1}\n{"a": "x"}', '{"a": 1}\n{"a": {"b": 1}}'])
def test_data_without_a_clear_schema_is_refused(pond: Commands, tmp_path: Path, content: str) -> None:
    path = tmp_path / "data.ndjson"
    path.write_text(content)
    assert pond("create", "like", "--like", str(path), "--json", code=2).error["code"] == "invalid-schema"


def test_alter_adds_columns_that_are_null_before(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(3))
    altered = pond("alter", "grid/meters", "--add", "humidity double, tags array<string>", "--json").one
    assert altered["schema"].endswith("date timestamp, humidity double, tags array<string>")
    assert altered["schema_version"] == 1
    pond("put", "grid/meters", input='{"vid": "m-1", "humidity": 0.5, "tags": ["a"]}\n')
    found = pond("scan", "grid/meters", "--columns", "humidity,tags", "--where", "humidity IS NOT NULL").several
    assert found == [{"humidity": 0.5, "tags": ["a"]}]
    assert pond("alter", "grid/meters", "--add", "temp double", "--json", code=2).error["code"] == "invalid-schema"


def test_how_long_records_are_kept_and_which(pond: Commands) -> None:
    made = pond("create", "hot", "--schema", "vid string, temp double", "--ttl", "30d", "--keep", "temp > 30",
                "--only", "vid", "--json").one  # fmt: skip
    assert (made["ttl_seconds"], made["keep"], made["schema"]) == (2_592_000.0, "temp > 30", "vid string")
    pond("put", "hot", input='{"vid": "a", "temp": 31}\n{"vid": "b", "temp": 3}\n')
    assert pond("scan", "hot").several == [{"vid": "a"}]
    assert "kept for 3,600 seconds" in pond("alter", "hot", "--ttl", "1h").talk
    assert pond("alter", "hot", "--ttl", "never", "--json").one["ttl_seconds"] is None
    assert pond("alter", "hot", "--json", code=2).error["code"] == "invalid-value"


def test_drop_asks_first(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(3))
    pond("drop", "grid/meters", input="n\n", code=2)
    pond("drop", "grid/meters", input="", code=2)
    assert pond("streams", "--json").several
    assert pond("drop", "grid/meters", "--yes", "--json").one == {"dropped": "grid/meters", "records": 3}
    assert pond("streams", "--json").several == []


def test_lists_shown_to_people_name_their_columns(pond: Commands) -> None:
    lines = pond("streams").out.splitlines()
    assert lines[0].split() == ["name", "records", "streamlets", "keys", "schema"]
    assert pa.schema([("vid", pa.string())]).field("vid").name in lines[2]


def test_truncate_shows_first_what_goes_and_asks(pond: Commands) -> None:
    pond("put", "grid/meters", input=readings(3))
    said = pond("truncate", "grid/meters", "--preview")
    assert "would lose 3 records, 3 live and 0 in 0 objects; generation 2 would begin" in said.talk
    pond("truncate", "grid/meters", input="n\n", code=2)
    assert len(pond("scan", "grid/meters").several) == 3
    gone = pond("truncate", "grid/meters", "--yes", "--json").one
    assert (gone["generation"], gone["rows_live"], gone["done"]) == (2, 3, True)
    assert pond("scan", "grid/meters").several == []
    pond("put", "grid/meters", input=readings(2))
    assert len(pond("cat", "grid/meters").several) == 2
    said = pond("cat", "grid/meters", "--from", "g1,0:0", "--json", code=3)
    assert said.error["code"] == "truncated"
