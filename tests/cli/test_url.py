"""Commands on a served pond: the same words, the same answers, with a token that shows nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millpond.cli.exits import Exit
from millpond.pond.tokens import TokenGate
from millpond.wire.requests import CreateToken
from tests.cli.conftest import Commands, readings, rows
from tests.serving import Served, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for tokens, and one that may do everything."""
    path = tmp_path_factory.mktemp("served") / "pond"
    Commands(path)("init")
    token = TokenGate(str(path)).create(CreateToken("all", ("read", "write", "admin"))).token
    with serving(path, token=token) as running:
        yield running


@pytest.fixture
def remote(millpond: Commands, server: Served) -> Commands:
    """Commands on the served pond, with its stream `grid/meters` made anew."""
    assert server.token is not None
    millpond.environment |= {"MILLPOND_POND": server.url, "MILLPOND_TOKEN": server.token}
    if any(each["name"] == "grid/meters" for each in millpond("streams", "--json").several):
        millpond("drop", "grid/meters", "--yes")
    millpond(
        *("create", "grid/meters", "--schema", "vid string, city string, temp double, date timestamp"),
        *("--key", "vid", "--key", "city", "--event-time", "date", "--streamlets", "2"),
    )
    return millpond


def test_the_whole_way_of_a_record(remote: Commands, tmp_path: Path) -> None:
    put = remote("put", "grid/meters", "--json", input=readings(100)).one
    assert (put["rows"], put["complete"], put["durability"]) == (100, True, "disk")
    assert len(remote("cat", "grid/meters", "--format", "ndjson").several) == 100
    assert rows(remote("get", "grid/meters", "m-3", "--limit", "1"), ["vid", "temp"]) == [("m-3", 9.3)]
    assert len(rows(remote("get", "grid/meters", "Nice", "--by", "city", "--limit", "1000"), ["city"])) == 34
    assert remote("scan", "grid/meters", "--where", "temp >= 9", "--count", "--json").one == {"count": 10}
    assert remote("scan", "grid/meters", "--explain", "--json").one["rows_live"] == 100
    assert len(remote("scan", "grid/meters", "--columns", "vid", "--limit", "7").several) == 7
    settled = remote("settle", "grid/meters", "--json").one
    assert (settled["stream"], settled["rows"]) == ("grid/meters", 100)
    assert remote("settle", "grid/meters", "--json").one["rows"] == 0
    segments = remote("segments", "grid/meters", "--json").several
    assert {segment["state"] for segment in segments} == {"settled"}
    read = remote("segments", "grid/meters", "--read", segments[0]["id"]).several
    assert len(read) == segments[0]["rows"]
    assert remote("status", "grid/meters", "--json").one["rows_settled"] == 100
    assert remote("status", "--json").one["streams"][0]["name"] == "grid/meters"
    assert remote("verify", "--json").one["ok"]


def test_sql_sees_live_and_settled_records_as_one(
    remote: Commands, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    import millpond.spark.session

    monkeypatch.setattr(millpond.spark.session, "local_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    remote("put", "grid/meters", input=readings(60))
    remote("settle")
    remote("put", "grid/meters", input=readings(40, start=60))
    said = remote("sql", "SELECT count(*) AS n, max(temp) AS t FROM grid_meters", "--json")
    assert said.one == {"n": 100, "t": 9.9}


def test_streams_are_described_altered_and_dropped(remote: Commands) -> None:
    described = remote("describe", "grid/meters", "--json").one
    assert described["keys"] == ["vid", "city"]
    assert described["columns"][2] == {"name": "temp", "type": "double", "nullable": True}
    altered = remote("alter", "grid/meters", "--add", "humidity double", "--json").one
    assert altered["schema"].endswith("humidity double")
    assert [each["name"] for each in remote("streams", "--json").several] == ["grid/meters"]
    remote("drop", "grid/meters", "--yes")
    assert remote("describe", "grid/meters", "--json", code=Exit.NOT_FOUND).error["code"] == "stream-not-found"


def test_an_input_put_twice_is_there_once(remote: Commands) -> None:
    for known in (0, 50):
        said = remote("put", "grid/meters", "--producer", "once", "--json", input=readings(50)).one
        assert said["rows_known"] == known
    assert remote("scan", "grid/meters", "--count", "--json").one["count"] == 50


def test_a_row_that_does_not_fit_is_named(remote: Commands) -> None:
    said = remote("put", "grid/meters", "--json", input='{"vid": "a"}\n{"temp": "warm"}\n', code=Exit.INVALID)
    assert said.error["code"] == "invalid-record"
    assert "line 2" in said.error["message"]


def test_the_token_by_file_and_by_option(remote: Commands, server: Served, tmp_path: Path) -> None:
    token = remote.environment.pop("MILLPOND_TOKEN")
    assert remote("streams", "--json", code=Exit.INVALID).error["code"] == "unauthenticated"
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    assert remote("streams", "--token-file", str(file), "--json").several
    assert remote("--token", token, "streams", "--json").several
    said = remote("streams", "--token", token, "--token-file", str(file), "--json", code=Exit.INVALID)
    assert "give one of the two" in said.error["hint"]
    file.write_text("\n")
    assert (
        "holds no token" in remote("streams", "--token-file", str(file), "--json", code=Exit.INVALID).error["message"]
    )


def test_the_token_shows_nowhere(remote: Commands, server: Served) -> None:
    assert server.token is not None
    said = [
        remote("--help"),
        remote("streams", "--verbose"),
        remote("cat", "no/such", "--verbose", code=Exit.NOT_FOUND),
        remote("streams", "--token", "wrong-" + server.token, "--verbose", code=Exit.INVALID),
        remote("init", "--verbose", code=Exit.INVALID),
    ]
    for each in said:
        assert server.token not in each.out
        assert server.token not in each.talk
    assert "MILLPOND_TOKEN" in said[0].out


@pytest.mark.parametrize("command", ["init", "doctor", "demo"])
def test_commands_on_a_directory_say_that_they_need_one(remote: Commands, server: Served, command: str) -> None:
    said = remote(command, "--pond", server.url, "--json", code=Exit.INVALID)
    assert "works on a pond's own directory" in said.error["message"]
    assert "--pond DIR" in said.error["hint"]


def test_tokens_are_made_listed_and_revoked(remote: Commands) -> None:
    made = remote("token", "create", "reader", "--right", "read", "--prefix", "grid", "--json").one
    assert made["name"] == "reader"
    listed = remote("token", "list", "--json").several
    assert {each["name"] for each in listed} == {"all", "reader"}
    remote.environment["MILLPOND_TOKEN"] = made["token"]
    assert remote("scan", "grid/meters", "--count", "--json").one == {"count": 0}
    assert remote("drop", "grid/meters", "--yes", "--json", code=Exit.INVALID).error["code"] == "forbidden"


def test_a_server_that_is_away_is_exit_code_4(millpond: Commands) -> None:
    said = millpond("streams", "--pond", "http://127.0.0.1:1", "--json", code=Exit.UNAVAILABLE)
    assert said.error["code"] == "unavailable"
    assert "http://127.0.0.1:1 does not answer" in said.error["message"]


def test_groups_are_consumed_listed_and_moved(remote: Commands) -> None:
    remote("put", "grid/meters", input=readings(40))
    assert len(remote("consume", "grid/meters", "--group", "billing", "--limit", "10").several) == 10
    assert len(remote("consume", "grid/meters", "--group", "billing", "--wait", "0s").several) == 30
    (group,) = remote("groups", "grid/meters", "--json").several
    assert (group["group"], group["lag_total"], group["members"]) == ("billing", 0, [])
    moved = remote("group", "reset", "grid/meters", "billing", "--to", "earliest", "--yes", "--json").one
    assert (moved["again"], moved["preview"]) == (40, False)
    assert remote("replay", "grid/meters", "--json").one["records"] == 0
    remote("group", "delete", "grid/meters", "billing", "--yes")
    assert remote("groups", "grid/meters", "--json").several == []
