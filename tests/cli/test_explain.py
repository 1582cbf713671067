"""`explain`, in the session of the tests: what a query read, what it was spared, and the picture of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.cli.conftest import Commands, readings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def settled(pond: Commands, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Two objects, of colder and of warmer readings, and five live records."""
    import millpond.spark.session

    monkeypatch.setattr(millpond.spark.session, "local_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    for start in (0, 50):
        pond("put", "grid/meters", input=readings(50, start=start))
        pond("settle")
    pond("put", "grid/meters", input=readings(5, start=100))
    return pond


QUERY = "SELECT max(vid) FROM grid_meters WHERE temp > 9.7 AND temp < 9.95"


def test_it_tells_what_was_read_and_what_ruled_the_rest_out(settled: Commands) -> None:
    told = settled("explain", QUERY, "--json").one
    assert (told["objects_read"], told["objects_total"], told["skipped_by"]) == (1, 2, {"temp": 1})
    assert 0 < told["bytes_read"] < told["bytes_total"]
    assert (told["rows_live"], told["requests"], told["undecided"]) == (5, 2, 0)
    assert told["accuracy"] == pytest.approx(2 / 50)
    assert told["deciding_seconds"] > 0
    assert settled("explain", QUERY, "--json", "--no-accuracy").one["accuracy"] is None


def test_people_read_it_line_by_line(settled: Commands) -> None:
    lines = settled("explain", QUERY).out.splitlines()
    assert lines[0].split(maxsplit=1) == ["objects", "1 of 2 read"]
    assert any(line.endswith("1 objects by temp") for line in lines)
    assert any("4.0% of the bytes read were asked for" in line for line in lines)


def test_the_picture_is_a_png_or_an_svg(settled: Commands, tmp_path: Path) -> None:
    png, svg = tmp_path / "map.png", tmp_path / "map.svg"
    assert f"picture: {png}" in settled("explain", QUERY, "--picture", str(png), "--axes", "date,temp").talk
    with Image.open(png) as picture:
        assert min(picture.size) > 500
        # The one object that is read stands out in its own colour.
        assert any(red > 180 and green < 120 and blue < 100 for _, (red, green, blue, *_) in colours(picture))
    settled("explain", QUERY, "--picture", str(svg), "--axes", "date,temp")
    # Text is drawn as outlines, with the text itself in a comment.
    assert "1 of 2 objects read" in svg.read_text()


def colours(picture: Image.Image) -> list[tuple[int, tuple[int, ...]]]:
    found = picture.convert("RGB").getcolors(maxcolors=1 << 24)
    assert found is not None
    return [(count, colour) for count, colour in found if isinstance(colour, tuple)]


def test_a_picture_that_cannot_be_is_refused_before_spark_starts(settled: Commands, tmp_path: Path) -> None:
    assert (
        settled("explain", QUERY, "--picture", str(tmp_path / "map.gif"), "--json", code=2).error["code"]
        == "invalid-value"
    )
    missing = tmp_path / "none" / "map.png"
    assert settled("explain", QUERY, "--picture", str(missing), "--json", code=2).error["code"] == "invalid-value"
    # The stream has no layout that would say what to draw.
    drawn = settled("explain", QUERY, "--picture", str(tmp_path / "map.png"), "--json", code=2)
    assert "axes" in drawn.error["hint"]


def test_a_query_of_no_stream_has_no_figures_to_tell(settled: Commands) -> None:
    assert settled("explain", "SELEC 1", "--json", code=2).error["code"] == "invalid-input"
