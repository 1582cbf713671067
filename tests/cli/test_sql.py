"""`sql`, in the session of the tests: the command itself would start one and stop it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millpond.errors import SparkUnavailable
from tests.cli.conftest import Commands, readings
from tests.serving import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def asked(pond: Commands, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A pond with 60 records settled and 40 live, and a session that is not stopped."""
    import millpond.spark.session

    monkeypatch.setattr(millpond.spark.session, "local_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    pond("put", "grid/meters", input=readings(60))
    pond("settle")
    pond("put", "grid/meters", input=readings(40, start=60))
    return pond


def test_a_query_sees_live_and_settled_records_as_one(asked: Commands) -> None:
    """B2 at the command line."""
    said = asked(
        "sql", "SELECT city, count(*) AS n, max(temp) AS t FROM grid_meters GROUP BY city ORDER BY city", "--json"
    )
    assert said.several == [
        {"city": "Gap", "n": 33, "t": 9.8},
        {"city": "Menton", "n": 33, "t": 9.7},
        {"city": "Nice", "n": 34, "t": 9.9},
    ]
    assert "and 40 live records" in said.talk


def test_what_was_skipped_is_on_stderr(asked: Commands) -> None:
    said = asked("sql", "SELECT vid FROM grid_meters WHERE temp > 9.85", "--format", "csv")
    assert list(csv.reader(io.StringIO(said.out))) == [["vid"], ["m-9"]]
    assert "read 0 of 1 objects" in said.talk
    assert "skipped 1 objects (1 by temp)" in said.talk


def test_results_as_a_table_with_a_limit(asked: Commands) -> None:
    said = asked("sql", "SELECT vid, date FROM grid_meters ORDER BY temp", "--limit", "2", "--format", "table")
    assert said.out.splitlines()[0].split() == ["vid", "date"]
    assert len(said.out.splitlines()) == 4
    assert "2026-01-31 00:00:00Z" in said.out


def test_queries_without_a_stream(asked: Commands) -> None:
    assert asked("sql", "SELECT 1 AS one", "--json").several == [{"one": 1}]
    listed = asked("sql", "SHOW VIEWS", "--json").several
    assert "grid_meters" in {each["viewName"] for each in listed}


@pytest.mark.parametrize("query", ["SELEC 1", "SELECT nothing FROM grid_meters", "SELECT * FROM no_such_view"])
def test_a_query_that_spark_refuses_is_the_users_to_mend(asked: Commands, query: str) -> None:
    error = asked("sql", query, "--json", code=2).error
    assert error["code"] == "invalid-input"
    assert "JVM stacktrace" not in error["message"]


def test_without_java_it_says_what_to_do(pond: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from millpond.spark.session import local_session

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="needs Java"):
        local_session(tmp_path / "scratch")
    pond.environment = {name: value for name, value in pond.environment.items() if name != "JAVA_HOME"}
    pond.environment["PATH"] = str(tmp_path)
    assert pond("sql", "SELECT 1", "--json", code=4).error["code"] == "spark-unavailable"


@pytest.mark.parametrize("form", ["ndjson", "csv", "table", "arrow"])
def test_whatever_spark_answers_can_be_printed(asked: Commands, form: str) -> None:
    query = (
        "SELECT 1 AS a, 2 AS a, NULL AS n, INTERVAL '1' DAY AS i, array(1, 2) AS l, map('a', 1) AS m, "
        "named_struct('x', 1) AS s, CAST('b' AS BINARY) AS b, current_timestamp() AS t, 1.50 AS d, "
        "current_date() AS y, "
        "TIMESTAMP_NTZ '2026-01-31 12:00:00' AS z"
    )
    assert asked("sql", query, "--format", form).raw


def test_files_of_others_are_indexed_and_queried(asked: Commands, tmp_path: Path) -> None:
    """F2 at the command line: index, list, query, refresh, status, drop."""
    for at in range(3):
        (tmp_path / "weather").mkdir(exist_ok=True)
        rows = "".join(f"{10 * at + n},Nice\n" for n in range(10))
        (tmp_path / "weather" / f"{at}.csv").write_text("temp,city\n" + rows)
    path = str(tmp_path / "weather")
    made = asked(
        "index", path, "--format", "csv", "--option", "header=true", "--schema", "temp int, city string",
        "--index", "minmax:temp", "--index", "values:city", "--json",
    ).one  # fmt: skip
    assert (made["name"], made["files"], made["rows"], made["indexes"][0]) == ("weather", 3, 30, "minmax:temp")
    said = asked("sql", "SELECT count(*) AS n FROM weather WHERE temp < 5", "--json")
    assert said.several == [{"n": 5}]
    assert "read 1 of 3 objects" in said.talk
    assert [each["name"] for each in asked("datasets", "--json").several] == ["weather"]
    assert "weather" in asked("datasets").out
    (tmp_path / "weather" / "1.csv").unlink()
    assert "1 removed; 0 were read" in asked("dataset", "refresh", "weather").out
    assert asked("dataset", "status", path, "--json").one["files"] == 2
    for wrong in (("--format", "xlsx", "--name", "other"), ("--format", "csv", "--option", "header")):
        assert asked("index", path, *wrong, "--json", code=2).error["code"] == "invalid-value"
    asked("dataset", "drop", "weather")
    assert asked("dataset", "status", "weather", "--json", code=3).error["code"] == "dataset-not-found"
    assert asked("datasets", "--json").several == []


def test_files_of_others_are_indexed_for_a_served_pond(asked: Commands, tmp_path: Path) -> None:
    (tmp_path / "weather").mkdir()
    for at in range(2):
        (tmp_path / "weather" / f"{at}.csv").write_text(f"{at}\n")
    with serving(asked.path) as served:
        asked.environment["MILLPOND_POND"] = served.url
        made = asked(
            "index", str(tmp_path / "weather"), "--format", "csv", "--schema", "n int", "--index", "minmax:n", "--json"
        ).one
        assert (made["name"], made["files"]) == ("weather", 2)
        said = asked("sql", "SELECT count(*) AS n FROM weather WHERE n = 1", "--json")
        assert said.several == [{"n": 1}]
        assert "read 1 of 2 objects" in said.talk
        assert "0 were read" in asked("dataset", "refresh", "weather").out
        asked("dataset", "drop", "weather")
        assert asked("datasets", "--json").several == []
