"""For everyone: with keys alone, on a phone, in the dark, with a screen reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import GONE, OpenPage, Served

PAGES = ["#/streams", "#/streams/used/meters", "#/query?stream=used/meters&limit=10", "#/activity", "#/tokens"]


@pytest.fixture(scope="session")
def used(served: Served) -> Served:
    served.create("used/meters", "vid string, temp double, note string", keys=["vid"], streamlets=4)
    note = "a long note without end " * 20
    served.append("used/meters", *({"vid": f"m-{n}", "temp": 1.0, "note": note} for n in range(50)))
    return served


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the control of this name has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == name:
            return
    raise AssertionError(f"no Tab leads to {name!r}")


def test_a_stream_is_made_used_and_dropped_with_keys_alone(used: Served, open_page: OpenPage) -> None:
    page = open_page(used, expected=GONE)
    expect(page.get_by_role("link", name="used/meters", exact=True)).to_be_visible()
    page.keyboard.press("n")
    page.keyboard.type("keys/only")
    page.keyboard.press("Tab")
    page.keyboard.type("vid string")
    tab_to(page, "Create")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="keys/only")).to_be_visible()
    tab_to(page, "Append")
    page.keyboard.press("Enter")
    expect(page.locator(".tail tbody tr")).to_have_count(1)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("p")
    expect(page.locator(".state")).to_have_text("paused")

    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.get_by_role("heading", name="Streams")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("keys/")
    expect(page.locator("table.streams tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    tab_to(page, "keys/only")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="keys/only")).to_be_visible()
    tab_to(page, "Drop…")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.textContent") == "Drop…"
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.type("keys/only")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Streams")).to_be_visible()
    assert "keys/only" not in [stream["name"] for stream in used.call("GET", "/v1/streams")]


def test_the_keys_are_listed_and_a_query_runs_from_its_fields(used: Served, open_page: OpenPage) -> None:
    page = open_page(used, "/#/query?stream=used/meters")
    expect(page.get_by_role("heading", name="Query")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("pause or resume the tail")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_label("Stream", exact=True)).to_be_focused()
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("50 records in")).to_be_visible()


@pytest.mark.parametrize("path", PAGES)
def test_a_phone_shows_each_page_without_scrolling_sideways(used: Served, open_page: OpenPage, path: str) -> None:
    page = open_page(used, f"/{path}", width=360, height=740)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    if "used" in path:
        expect(page.locator("table.records tbody tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    outside = (
        "[...document.querySelectorAll('main button, main input, main a')].filter((node) => !node.closest('.scroll')"
    )
    assert page.evaluate(outside + " && node.getBoundingClientRect().right > 360).map((node) => node.outerHTML)") == []


@pytest.mark.parametrize("path", PAGES)
def test_every_control_has_a_name_and_every_page_its_landmarks(used: Served, open_page: OpenPage, path: str) -> None:
    page = open_page(used, f"/{path}")
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    for landmark in ("banner", "main", "contentinfo"):
        expect(page.get_by_role(landmark)).to_have_count(1)  # type: ignore[arg-type]
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_count(5)
    expect(page.locator("nav [aria-current=page]")).to_have_count(1)
    unnamed = """[...document.querySelectorAll("button, a, input, textarea, select, [role=region]")]
        .filter((node) => !node.closest("[hidden]") && !(node.getAttribute("aria-label") || node.labels?.length
            || node.textContent.trim())).map((node) => node.outerHTML)"""
    assert page.evaluate(unnamed) == []


def contrast(page: Page, selector: str) -> float:
    """Of the text of an element against the page, by the formula of WCAG."""
    ratio: float = page.evaluate(
        """(selector) => {
            const light = (colour) => {
                const canvas = new OffscreenCanvas(1, 1).getContext("2d");
                canvas.fillStyle = colour;
                canvas.fillRect(0, 0, 1, 1);
                const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((part) => part / 255)
                    .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const text = light(getComputedStyle(document.querySelector(selector)).color);
            const ground = light(getComputedStyle(document.body).backgroundColor);
            return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
        }""",
        selector,
    )
    return ratio


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_the_light_and_in_the_dark(used: Served, open_page: OpenPage, scheme: str) -> None:
    page = open_page(used, scheme=scheme)
    expect(page.get_by_role("link", name="used/meters", exact=True)).to_be_visible()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground.removeprefix("rgb(").rstrip(")").split(","))) > 384) == (scheme == "light")
    for selector in ("h1", ".total", ".c-name a", ".c-name small", "nav a:not([aria-current])", ".foot a"):
        assert contrast(page, selector) >= 4.5, selector


def test_the_theme_is_chosen_by_hand_and_stays(used: Served, open_page: OpenPage) -> None:
    page = open_page(used, scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    system = page.evaluate(ground)
    toggle = page.get_by_role("button", name="Theme:")
    toggle.click()
    toggle.click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    dark = page.evaluate(ground)
    assert dark != system
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) == dark
    toggle.click()
    assert page.evaluate(ground) == system


def test_a_server_that_is_away_is_said_to_be_and_its_return_too(
    serve: Callable[..., Served], open_page: OpenPage
) -> None:
    server = serve()
    server.create("away/meters")
    page = open_page(server, expected="ERR_|status of 503")
    expect(page.get_by_role("link", name="away/meters")).to_be_visible()
    server.stop()
    expect(page.get_by_role("status").filter(has_text="does not answer")).to_be_visible()
    server.start()
    expect(page.locator("#away")).to_be_hidden()
    server.create("back/meters")
    expect(page.get_by_role("link", name="back/meters")).to_be_visible()
