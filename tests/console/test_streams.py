"""The list of streams and the page of one: what there is, made, settled and dropped by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from playwright.sync_api import Locator, Page, expect

import millpond
from tests.console.conftest import GONE, OpenPage, Served


def row(page: Page, stream: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=stream, exact=True))


def test_a_pond_without_streams_says_how_to_make_the_first(serve: Callable[..., Served], open_page: OpenPage) -> None:
    server = serve()
    page = open_page(server)
    expect(page.get_by_role("heading", name="No streams yet")).to_be_visible()
    command = page.locator("pre").inner_text()
    assert f"curl -X PUT {server.url}/v1/streams/grid/meters" in command
    body = json.loads(command.split("-d '")[1].rstrip().removesuffix("'"))
    server.call("PUT", "/v1/streams/grid/meters", body)
    expect(row(page, "grid/meters")).to_be_visible()


def test_a_stream_is_made_appended_to_and_seen(served: Served, open_page: OpenPage) -> None:
    served.create("there/already")
    page = open_page(served)
    page.get_by_role("button", name="New stream…").click()
    page.get_by_label("Name", exact=True).fill("made/meters")
    page.get_by_label("Columns").fill("vid string NOT NULL, temp double")
    page.get_by_label("Keys", exact=True).fill("vid")
    page.get_by_label("Streamlets").fill("2")
    page.get_by_label("Durability").select_option("os")
    page.get_by_role("button", name="Create").click()

    expect(page.get_by_role("heading", name="made/meters")).to_be_visible()
    made = served.call("GET", "/v1/streams/made/meters")
    assert (made["keys"], made["streamlets"], made["durability"]) == (["vid"], 2, "os")
    expect(page.get_by_text("primary key")).to_be_visible()

    record = page.get_by_label("Record (JSON)")
    assert set(json.loads(record.input_value())) == {"vid", "temp"}
    record.fill('{"vid": "m-17", "temp": 20.25}')
    page.get_by_role("button", name="Append").click()
    expect(page.get_by_text("Acknowledged at os")).to_be_visible()
    tail = page.get_by_role("region", name="Newest records of made/meters")
    expect(tail.get_by_role("cell", name="m-17")).to_be_visible()
    expect(tail.get_by_role("cell", name="20.25")).to_be_visible()

    page.get_by_role("link", name="Streams", exact=True).click()
    expect(row(page, "made/meters").locator(".c-live span")).to_have_text("1")
    expect(row(page, "made/meters").locator(".c-head .offsets").first).to_have_text("0 → 1")
    expect(row(page, "made/meters")).to_contain_text("os · 2 streamlets")
    row(page, "made/meters").locator("summary").click()
    expect(row(page, "made/meters").locator("li")).to_have_count(2)


def test_the_rate_is_that_of_the_heads(served: Served, open_page: OpenPage) -> None:
    served.create("rated/meters")
    page = open_page(served)
    rate = row(page, "rated/meters").locator(".c-rate")
    expect(rate).to_contain_text("0/s")
    served.append("rated/meters", *({"vid": "m", "temp": 1.0} for _ in range(1_000)))
    expect(row(page, "rated/meters")).to_have_class("busy")
    expect(rate).not_to_contain_text(" 0/s")
    expect(row(page, "rated/meters")).not_to_have_class("busy")


def test_the_list_is_filtered_and_sorted(served: Served, open_page: OpenPage) -> None:
    for name, size in (("sorted/a", 1), ("sorted/b", 5), ("sorted/c", 3)):
        served.create(name)
        served.append(name, *({"vid": "m" * 50, "temp": 1.0} for _ in range(size)))
    page = open_page(served)
    page.get_by_label("Filter by name").fill("SORTED/")
    names = page.locator("table.streams .c-name a")
    expect(names).to_have_text(["sorted/a", "sorted/b", "sorted/c"])
    page.get_by_role("button", name="Boundary → head").click()
    expect(names).to_have_text(["sorted/b", "sorted/c", "sorted/a"])
    expect(page.get_by_role("columnheader", name="Boundary → head")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Boundary → head").click()
    expect(names).to_have_text(["sorted/a", "sorted/c", "sorted/b"])


def test_a_thousand_streams_are_found_at_once(
    serve: Callable[..., Served], open_page: OpenPage, tmp_path: Path
) -> None:
    with millpond.open(tmp_path / "many") as pond:
        for number in range(1_000):
            pond.create_stream(f"many/s-{number:04}", pa.schema([("vid", pa.string())]), settle=None)
    server = serve(pond=tmp_path / "many")
    page = open_page(server)
    rows = page.locator("table.streams tbody tr")
    expect(page.get_by_text("1,000 streams", exact=True)).to_be_visible()
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show 100 more of 1,000").click()
    expect(rows).to_have_count(200)
    page.get_by_label("Filter by name").fill("0999")
    expect(page.locator("table.streams .c-name a")).to_have_text(["many/s-0999"])
    server.append("many/s-0999", {"vid": "m"})
    expect(row(page, "many/s-0999").locator(".c-live span")).to_have_text("1")


def test_settling_is_previewed_and_done(served: Served, open_page: OpenPage) -> None:
    served.create("settled/meters", settle={"every": "1h"})
    served.append("settled/meters", *({"vid": f"m-{number}", "temp": 1.0} for number in range(7)))
    page = open_page(served, "/#/streams/settled/meters")
    page.get_by_role("button", name="Settle…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("dd")).to_contain_text(["7", "B", "0 → 7"])
    assert served.call("GET", "/v1/streams/settled/meters/status")["rows_settled"] == 0
    dialog.get_by_role("button", name="Settle now").click()
    expect(page.get_by_text("7 records settled into 1 object")).to_be_visible()
    expect(page.get_by_role("region", name="Segments").last.get_by_text("settled")).to_be_visible()
    assert served.call("GET", "/v1/streams/settled/meters/status")["rows_settled"] == 7

    page.get_by_role("button", name="Settle…").click()
    expect(page.get_by_text("Nothing is live")).to_be_visible()
    expect(page.get_by_role("button", name="Settle now")).to_be_disabled()


def test_a_drop_takes_the_name_typed_out(served: Served, open_page: OpenPage) -> None:
    served.create("dropped/meters")
    served.append("dropped/meters", {"vid": "m-1", "temp": 1.0})
    page = open_page(served, "/#/streams/dropped/meters", expected=GONE)
    page.get_by_role("button", name="Drop…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("1 record,")).to_be_visible()
    drop = dialog.get_by_role("button", name="Drop for good")
    expect(drop).to_be_disabled()
    name = dialog.get_by_label("Type dropped/meters to drop it")
    name.fill("dropped/meter")
    name.press("Enter")
    expect(drop).to_be_disabled()
    assert served.call("GET", "/v1/streams/dropped/meters")["name"] == "dropped/meters"
    name.fill("dropped/meters")
    drop.click()
    expect(page.get_by_role("heading", name="Streams")).to_be_visible()
    expect(row(page, "dropped/meters")).to_have_count(0)
    assert "dropped/meters" not in [stream["name"] for stream in served.call("GET", "/v1/streams")]


def test_a_truncation_takes_the_name_typed_out_and_keeps_the_stream(served: Served, open_page: OpenPage) -> None:
    served.create("emptied/meters")
    served.append("emptied/meters", {"vid": "m-1", "temp": 1.0})
    page = open_page(served, "/#/streams/emptied/meters")
    expect(page.get_by_role("cell", name="m-1")).to_be_visible()
    page.get_by_role("button", name="Truncate…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("1 record,")).to_be_visible()
    expect(dialog.get_by_text("generation 2 begins")).to_be_visible()
    go = dialog.get_by_role("button", name="Discard all records")
    expect(go).to_be_disabled()
    dialog.get_by_label("Type emptied/meters to truncate it").fill("emptied/meters")
    go.click()
    expect(page.get_by_text("1 record discarded; this is generation 2.")).to_be_visible()
    assert served.call("GET", "/v1/streams/emptied/meters/count") == {"count": 0}
    served.append("emptied/meters", {"vid": "m-2", "temp": 2.0})
    expect(page.get_by_role("cell", name="m-2")).to_be_visible()


def test_columns_are_added(served: Served, open_page: OpenPage) -> None:
    served.create("widened/meters")
    page = open_page(served, "/#/streams/widened/meters", expected="status of 400")
    page.get_by_role("button", name="Add columns…").click()
    columns = page.get_by_role("dialog").get_by_label("Columns")
    columns.fill("humidity dubble")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("invalid-schema")
    columns.fill("humidity double")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("rowheader", name="humidity")).to_be_visible()
    assert served.call("GET", "/v1/streams/widened/meters")["columns"][-1]["name"] == "humidity"


def test_how_long_records_are_kept_is_changed(served: Served, open_page: OpenPage) -> None:
    served.create("kept/meters")
    page = open_page(served, "/#/streams/kept/meters", expected="status of 400")
    expect(page.get_by_text("for good", exact=True)).to_be_visible()
    page.get_by_role("button", name="Keep for…").click()
    ttl = page.get_by_role("dialog").get_by_label("Keep for")
    ttl.fill("soon")
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("invalid-value")
    ttl.fill("30d")
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(page.get_by_text("for 30 days")).to_be_visible()
    assert served.call("GET", "/v1/streams/kept/meters")["ttl_seconds"] == 2_592_000


def test_a_name_with_a_word_of_the_routes_has_a_page(served: Served, open_page: OpenPage) -> None:
    served.create("odd%2Frecords")
    page = open_page(served, "/#/streams/odd/records")
    page.get_by_label("Record (JSON)").fill('{"vid": "m-3", "temp": 1}')
    page.get_by_role("button", name="Append").click()
    expect(page.get_by_role("cell", name="m-3")).to_be_visible()


def test_a_stream_that_is_not_there_says_so(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/#/streams/not/there", expected="status of 404")
    expect(page.get_by_role("alert")).to_contain_text("stream-not-found")
    served.create("not/there")
    expect(page.get_by_role("heading", name="not/there")).to_be_visible()
