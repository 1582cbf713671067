"""The query box: what matches, what it took to find, what was wrong with the question, and the answer to keep."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import OpenPage, Served


@pytest.fixture(scope="session")
def asked(served: Served) -> Served:
    """A stream of five hundred settled records and three live ones."""
    served.create("asked/meters", "vid string, temp double, serial bigint", keys=["vid"], settle={"every": "1h"})
    records = [{"vid": f"m-{number}", "temp": number / 10, "serial": 2**53 + number} for number in range(503)]
    served.append("asked/meters", *records[:500])
    served.call("POST", "/v1/streams/asked/meters/settle")
    served.append("asked/meters", *records[500:])
    return served


def ask(page: Page, where: str, columns: str = "", limit: str = "100") -> None:
    page.get_by_label("Stream", exact=True).fill("asked/meters")
    page.get_by_label("Where").fill(where)
    page.get_by_label("Columns").fill(columns)
    page.get_by_label("Limit").fill(limit)
    page.get_by_role("button", name="Run", exact=True).click()


def test_what_matches_is_shown_with_what_it_took(asked: Served, open_page: OpenPage) -> None:
    page = open_page(asked, "/#/query")
    ask(page, "temp >= 49.8", "vid, temp")
    result = page.get_by_role("region", name="Result").last
    expect(result.locator("thead th")).to_have_text(["vid", "temp"])
    expect(result.locator("tbody tr")).to_have_count(5)
    expect(page.get_by_text("5 records in")).to_be_visible()
    expect(page.locator(".explain")).to_contain_text("1 of 1 object read")
    expect(page.locator(".explain")).to_contain_text("3 live records looked at")
    ask(page, "temp > 50.0")
    expect(page.locator(".explain")).to_contain_text("0 of 1 object read")
    expect(page.locator(".explain")).to_contain_text("1 skipped")
    ask(page, "temp > 1000")
    expect(page.get_by_text("No record matches.")).to_be_visible()


def test_whole_numbers_keep_all_their_digits(asked: Served, open_page: OpenPage) -> None:
    page = open_page(asked, "/#/query")
    ask(page, "vid = 'm-1'")
    expect(page.get_by_role("cell", name="9007199254740993")).to_be_visible()


def test_a_wrong_question_is_answered_with_the_cause_and_the_fix(asked: Served, open_page: OpenPage) -> None:
    page = open_page(asked, "/#/query", expected="status of 400")
    ask(page, "tempp > 1")
    problem = page.get_by_role("alert")
    expect(problem.locator("code")).to_have_text("invalid-predicate")
    expect(problem.locator(".cause")).to_contain_text("there is no column 'tempp'")
    expect(problem.locator(".fix")).to_contain_text("the columns are vid, temp, serial")
    ask(page, "temp > 50.05")
    expect(problem).to_have_count(0)
    expect(page.get_by_text("2 records in")).to_be_visible()


@pytest.mark.parametrize(("button", "name"), [("CSV", "csv"), ("NDJSON", "ndjson"), ("Arrow", "arrow")])
def test_the_answer_can_be_kept(asked: Served, open_page: OpenPage, tmp_path: Path, button: str, name: str) -> None:
    page = open_page(asked, "/#/query")
    ask(page, "temp > 50.05", "vid")
    with page.expect_download() as waiting:
        page.get_by_role("button", name=f"Download {button}").click()
    assert waiting.value.suggested_filename == f"asked.meters.{name}"
    waiting.value.save_as(tmp_path / name)
    body = (tmp_path / name).read_bytes()
    if name == "arrow":
        assert sorted(pa.ipc.open_stream(body).read_all()["vid"].to_pylist()) == ["m-501", "m-502"]
    else:
        assert body.count(b"m-501") == body.count(b"m-502") == 1


def test_what_was_asked_is_remembered_in_this_tab_only(asked: Served, open_page: OpenPage) -> None:
    page = open_page(asked, "/#/query")
    ask(page, "temp > 50.05")
    expect(page.get_by_text("2 records in")).to_be_visible()
    ask(page, "temp > 50.15")
    expect(page.get_by_text("1 record in")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Where")).to_have_value("temp > 50.15")
    expect(page.get_by_text("1 record in")).to_be_visible()
    page.get_by_role("button", name="asked/meters where temp > 50.05").click()
    expect(page.get_by_text("2 records in")).to_be_visible()
    assert page.evaluate("Object.keys(localStorage).length") == 0
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("heading", name="History")).to_be_hidden()


def test_a_stream_with_a_layout_is_drawn_on_a_map(served: Served, open_page: OpenPage) -> None:
    layout = {"kind": "kdtree", "columns": ["lat", "lon"], "buckets": 4}
    served.create("drawn/places", "lat double, lon double", layout=layout, settle={"every": "1h"})
    places = [{"lat": 43 + row / 10, "lon": 1 + column / 10} for row in range(40) for column in range(40)]
    served.append("drawn/places", *places)
    served.call("POST", "/v1/streams/drawn/places/settle")
    page = open_page(served, "/#/query?stream=drawn/places&where=lat%20%3C%2044%20AND%20lon%20%3C%202&limit=10")
    drawn = page.get_by_role("img", name="objects are read")
    expect(drawn).to_be_visible()
    expect(drawn).to_have_attribute("aria-label", re.compile("1 of 4 objects are read; lon runs across, lat up"))
    expect(drawn.locator("rect.spared")).to_have_count(3)
    expect(drawn.locator("rect.read")).to_have_count(1)
    expect(drawn.locator("rect.asked")).to_have_count(1)
