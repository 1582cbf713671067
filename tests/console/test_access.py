"""Tokens: asked for when needed, kept in the tab, shown for what they allow, made and revoked by hand."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import OpenPage, Served

REFUSED = "status of 40[13]"


class Guarded:
    """A server that asks for tokens, and two of them."""

    def __init__(self, server: Served) -> None:
        self.server = server
        server.create("grid/meters")
        server.append("grid/meters", {"vid": "m-1", "temp": 21.5})
        server.create("shop/orders")
        self.admin = self.token("boss", "read", "write", "admin")
        self.reader = self.token("reader", "read", prefixes=["grid"])

    def token(self, name: str, *rights: str, prefixes: list[str] | None = None) -> str:
        body = {"name": name, "rights": rights, "prefixes": prefixes or [""]}
        secret: str = self.server.call("POST", "/v1/tokens", body, token=getattr(self, "admin", None))["token"]
        return secret


@pytest.fixture
def guarded(serve: Callable[..., Served]) -> Guarded:
    return Guarded(serve())


def show(page: Page, token: str) -> None:
    page.get_by_role("dialog").get_by_label("Token").fill(token)
    page.get_by_role("button", name="Use it").click()


def test_a_token_is_asked_for_kept_in_the_tab_and_forgotten(guarded: Guarded, open_page: OpenPage) -> None:
    page = open_page(guarded.server, expected=REFUSED)
    show(page, "mp_0000000000_wrong")
    expect(page.get_by_role("alert")).to_contain_text("unauthenticated")
    show(page, guarded.admin)
    expect(page.get_by_role("link", name="grid/meters")).to_be_visible()
    assert page.evaluate("Object.values(sessionStorage)") == [guarded.admin]
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert guarded.admin not in page.content()

    page.get_by_role("button", name="boss").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("listitem")).to_have_text(["admin, read, write on everything"])
    dialog.get_by_role("button", name="Forget the token").click()
    expect(page.get_by_role("heading", name="A token, please")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_what_one_has_no_right_for_is_disabled_with_the_reason(guarded: Guarded, open_page: OpenPage) -> None:
    page = open_page(guarded.server, expected=REFUSED)
    show(page, guarded.reader)
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="grid/meters"))
    # Without the right to read everything, the standing of each stream is asked for by itself.
    expect(row.locator(".c-live span")).to_have_text("1")
    expect(page.get_by_role("link", name="shop/orders")).to_have_count(0)
    new = page.get_by_role("button", name="New stream…")
    expect(new).to_be_disabled()
    expect(new).to_have_attribute("title", "reader: no right to admin the pond as a whole")

    page.get_by_role("link", name="grid/meters").click()
    expect(page.get_by_role("cell", name="m-1")).to_be_visible()
    for name, right in (
        ("Settle…", "admin"),
        ("Truncate…", "admin"),
        ("Drop…", "admin"),
        ("Keep for…", "admin"),
        ("Add columns…", "admin"),
        ("Append", "write"),
    ):
        control = page.get_by_role("button", name=name, exact=True)
        expect(control).to_be_disabled()
        expect(control).to_have_attribute("title", f"reader: no right to {right} grid/meters")
    page.get_by_role("link", name="Activity").click()
    expect(page.get_by_text("needs the right to read the pond as a whole")).to_be_visible()
    page.get_by_role("link", name="Tokens").click()
    expect(page.get_by_text("needs the right to administer the pond as a whole")).to_be_visible()
    page.goto(f"{guarded.server.url}/#/streams/shop/orders")
    expect(page.get_by_role("alert")).to_contain_text("forbidden")


def test_tokens_are_made_shown_once_and_revoked(guarded: Guarded, open_page: OpenPage) -> None:
    page = open_page(guarded.server, "/#/tokens", expected=REFUSED)
    show(page, guarded.admin)
    page.get_by_role("button", name="New token…").click()
    page.get_by_label("Name").fill("truck-7")
    page.get_by_label("write", exact=True).check()
    page.get_by_label("read", exact=True).uncheck()
    page.get_by_label("Streams", exact=True).fill("grid")
    page.get_by_role("button", name="Create").click()
    secret = page.locator(".secret").inner_text()
    page.get_by_role("button", name="Close").click()
    row = page.get_by_role("row").filter(has_text="truck-7")
    expect(row.get_by_role("cell").first).to_have_text("write")
    expect(row).to_contain_text("grid")
    page.reload()
    expect(row).to_be_visible()
    assert secret not in page.content()

    records = f"{guarded.server.url}/v1/streams/grid/meters/records"
    headers = {"Authorization": f"Bearer {secret}"}
    assert httpx.post(records, json={"vid": "t", "temp": 1.0}, headers=headers).status_code == 200
    page.get_by_role("button", name="Revoke truck-7").click()
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(row).to_have_count(0)
    assert httpx.post(records, json={"vid": "t", "temp": 1.0}, headers=headers).status_code == 401


def test_the_first_token_stays_readable_though_it_closes_the_gate(
    serve: Callable[..., Served], open_page: OpenPage
) -> None:
    page = open_page(serve(), "/#/tokens", expected=REFUSED)
    page.get_by_role("button", name="New token…").click()
    page.get_by_label("Name").fill("first")
    page.get_by_label("admin", exact=True).check()
    page.get_by_label("write", exact=True).check()
    # From the next poll on, the server knows this tab no more.
    with page.expect_response(lambda answer: answer.status == 401):
        page.get_by_role("button", name="Create").click()
    secret = page.locator(".secret")
    expect(secret).to_be_visible()
    expect(page.get_by_role("heading", name="A token, please")).to_have_count(0)
    page.get_by_role("button", name="Use it in this tab").click()
    expect(page.get_by_role("button", name="first", exact=True)).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="first")).to_be_visible()
