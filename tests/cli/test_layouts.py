"""queries, relayout."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Commands


@pytest.fixture
def places(millpond: Commands) -> Commands:
    """1,200 places in three objects, of a stream with a layout, and ten queries on record."""
    millpond("init", str(millpond.path))
    millpond("create", "grid/places", "--schema", "vid string, lat double, lon double")
    for _ in range(3):
        lines = (f'{{"vid": "m{n}", "lat": {n * 7 % 400}.5, "lon": {n * 13 % 300}.5}}' for n in range(400))
        millpond("put", "grid/places", input="\n".join(lines))
        millpond("settle")
    millpond("alter", "grid/places", "--layout", "kdtree:lat,lon,buckets=8")
    for low in range(10):
        millpond("scan", "grid/places", "--where", f"lat >= {low * 40} AND lat < {low * 40 + 10}", "--count")
    return millpond


def test_what_was_asked_is_shown(places: Commands) -> None:
    found = places("queries", "grid/places", "--json").several
    assert len(found) == 10
    assert '"column":"lat"' in found[0]["predicate"]
    assert (found[0]["objects_read"], found[0]["objects_total"]) == (3, 3)
    assert [each["predicate"] for each in places("queries", "grid/places", "--limit", "2", "--json").several] == [
        each["predicate"] for each in found[-2:]
    ]
    places("create", "quiet", "--schema", "x int")
    assert "no query of quiet is on record" in places("queries", "quiet").talk


def test_a_stream_learns_and_is_laid_out_anew(places: Commands) -> None:
    asked = places("relayout", "grid/places", "--plan", "--preview", "--here", "--json").one
    assert (asked["queries"], asked["swapped"]) == (10, False)
    assert asked["ratio"] < 0.6
    assert "counts from now on" in places("relayout", "grid/places", "--plan", "--here").out
    done = places("relayout", "grid/places", "--here", "--object-bytes-min", "0B", "--json").one
    assert (done["rows"], done["objects_before"], done["objects_after"]) == (1_200, 3, 8)
    assert "lies as the model says" in places("relayout", "grid/places", "--here", "--object-bytes-min", "0B").out
    assert places("scan", "grid/places", "--count").out.strip() == "1200"
    assert places("verify", "--json").one["ok"] is True


def test_a_stream_without_a_layout_is_told_so(places: Commands) -> None:
    places("create", "plain", "--schema", "x int")
    assert "has no layout" in places("relayout", "plain", "--here", "--json", code=2).error["message"]
