"""The live tail: records as they come, those that match, from where it was cut, never more than a page can hold."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import OpenPage, Served


def rows(page: Page) -> Locator:
    return page.locator(".tail tbody tr")


def offsets(page: Page) -> list[int]:
    return [int(text) for text in page.locator(".tail tbody td:nth-last-child(2)").all_inner_texts()]


def test_only_what_matches_is_shown(served: Served, open_page: OpenPage) -> None:
    served.create("filtered/meters")
    served.append("filtered/meters", {"vid": "cold", "temp": 5.0}, {"vid": "warm", "temp": 25.0})
    page = open_page(served, "/#/streams/filtered/meters", expected="status of 400")
    expect(rows(page)).to_have_count(2)
    where = page.get_by_label("Filter of the tail (where)")
    where.fill("temp > 20")
    where.press("Enter")
    expect(rows(page)).to_have_count(1)
    served.append("filtered/meters", {"vid": "colder", "temp": 4.0}, {"vid": "warmer", "temp": 26.0})
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("warmer")
    expect(page.locator(".tail")).not_to_contain_text("cold")

    where.fill("tempp > 20")
    where.press("Enter")
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("invalid-predicate")
    expect(problem).to_contain_text("there is no column 'tempp'")
    expect(problem).to_contain_text("Fix: the columns are vid, temp")


def test_a_paused_tail_goes_on_where_it_stopped(served: Served, open_page: OpenPage) -> None:
    served.create("paused/meters")
    page = open_page(served, "/#/streams/paused/meters")
    served.append("paused/meters", {"vid": "a", "temp": 1.0})
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".state")).to_have_text("paused")
    served.append("paused/meters", {"vid": "b", "temp": 1.0}, {"vid": "c", "temp": 1.0})
    # The page knows of them by then, and does not show them.
    expect(page.locator(".tile .offsets").first).to_have_text("0 → 3")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Resume").click()
    expect(rows(page)).to_have_count(3)
    assert offsets(page) == [2, 1, 0]


def test_the_page_stays_small_however_much_comes(served: Served, open_page: OpenPage) -> None:
    served.create("flooded/meters")
    page = open_page(served, "/#/streams/flooded/meters")
    expect(page.locator(".state")).to_have_text("live")
    for at in range(0, 5_000, 1_000):
        served.append("flooded/meters", *({"vid": f"m-{at + number}", "temp": 1.0} for number in range(1_000)))
    expect(rows(page).first).to_contain_text("m-4999")
    expect(rows(page)).to_have_count(200)
    assert offsets(page) == list(range(4_999, 4_799, -1))


def test_a_server_that_comes_back_is_followed_from_where_it_was_cut(
    serve: Callable[..., Served], open_page: OpenPage
) -> None:
    server = serve()
    server.create("cut/meters")
    server.append("cut/meters", {"vid": "before", "temp": 1.0})
    page = open_page(server, "/#/streams/cut/meters", expected="ERR_|status of 503")
    expect(rows(page)).to_have_count(1)
    server.stop()
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    expect(page.locator(".state")).to_have_text("reconnecting…")
    server.start()
    expect(page.get_by_text("The server does not answer")).to_be_hidden()
    expect(page.locator(".state")).to_contain_text("live")
    server.append("cut/meters", {"vid": "after", "temp": 1.0})
    expect(rows(page)).to_have_count(2)
    assert offsets(page) == [1, 0]


def test_records_stay_text_whatever_they_hold(served: Served, open_page: OpenPage) -> None:
    evil = "<img src=x onerror=\"alert('run')\"><script>alert('run')</script>"
    served.create("evil/meters", "vid string, note string")
    served.append("evil/meters", {"vid": evil, "note": "javascript:alert('run')"})
    page = open_page(served, "/#/streams/evil/meters", expected="status of 40[04]")
    cell = page.get_by_role("button", name=evil[:40])
    expect(cell).to_be_visible()
    cell.click()
    expect(page.get_by_role("dialog").locator("pre")).to_have_text(evil)
    page.keyboard.press("Escape")
    expect(page.locator(".tail img, .tail script, main script")).to_have_count(0)
    page.goto(f"{served.url}/#/query?stream=evil/meters&limit=10")
    expect(page.get_by_role("button", name=evil[:40])).to_be_visible()
    expect(page.locator("main img, main script")).to_have_count(0)
    # In an error, and as a name that is none.
    page.get_by_label("Where").fill(f"vid = {evil}")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("invalid-predicate")
    page.goto(f"{served.url}/#/streams/{quote(evil, safe='')}")
    expect(page.get_by_role("alert")).to_contain_text("onerror")
    expect(page.locator("main img, main script")).to_have_count(0)
    assert page.evaluate("window.violations") == []


def test_a_busy_tail_tells_a_screen_reader_little(served: Served, open_page: OpenPage) -> None:
    served.create("said/meters")
    page = open_page(served, "/#/streams/said/meters")
    expect(page.locator(".state")).to_have_text("live")
    served.append("said/meters", *({"vid": "m", "temp": 1.0} for _ in range(500)))
    status = page.locator(".tail [role=status]")
    expect(status).to_have_text("500 new records, 500 in all")
    assert status.get_attribute("aria-live") == "polite"
    expect(page.locator(".tail table[aria-live], .tail tbody[aria-live]")).to_have_count(0)
