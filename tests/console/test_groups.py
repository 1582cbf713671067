"""The consumer groups of a stream: lag that moves, members, a move that is previewed, dead letters sent back."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import OpenPage, Served
from tests.console.test_use import tab_to


def fill(served: Served, stream: str, records: int) -> None:
    served.append(stream, *({"vid": f"m-{number}", "temp": float(number)} for number in range(records)))


def join(served: Served, stream: str, group: str, instance: str) -> dict[str, Any]:
    found: dict[str, Any] = served.call(
        "POST", f"/v1/streams/{stream}/groups/{group}/members", {"instance": instance, "lease": "1h"}
    )
    return found


def member(served: Served, who: dict[str, Any], verb: str, **body: Any) -> Any:
    path = f"/v1/streams/{who['stream']}/groups/{who['group']}/members/{who['instance']}/{verb}"
    return served.call("POST", path, {"epoch": who["epoch"], **body})


def process(served: Served, who: dict[str, Any], number: int, records: int, dead: tuple[int, ...] = ()) -> None:
    """Poll and commit; `dead`: the offsets among it that are given up on."""
    found = member(served, who, "poll", max_records=records)["deliveries"]
    numbers = [delivery["receipt"]["number"] for delivery in found]
    given_up = [{"number": numbers[0], "offset": offset, "attempts": 3, "reason": "too hot"} for offset in dead]
    member(served, who, "commit", number=number, done=[{"number": each} for each in numbers], dead=given_up)


def row(page: Page, group: str) -> Locator:
    return page.get_by_role("region", name="Groups").get_by_role("row").filter(has_text=group)


def status(served: Served, stream: str, group: str) -> dict[str, Any]:
    found: dict[str, Any] = served.call("GET", f"/v1/streams/{stream}/groups/{group}")
    return found


def test_groups_are_shown_as_they_work(served: Served, open_page: OpenPage) -> None:
    served.create("grouped/meters")
    fill(served, "grouped/meters", 10)
    page = open_page(served, "/#/streams/grouped/meters")
    expect(page.get_by_text("None yet: a consumer makes one by joining it.")).to_be_visible()
    one = join(served, "grouped/meters", "billing", "worker-1")
    shown = row(page, "billing")
    expect(shown).to_contain_text("fifo")
    expect(shown.locator("strong")).to_have_text("10")
    expect(shown).to_contain_text("worker-1")
    process(served, one, 1, 4)
    expect(shown.locator("strong")).to_have_text("6")
    expect(shown.locator(".offsets").first).to_have_text("4 → 10")
    member(served, one, "poll", max_records=2)
    expect(shown).to_contain_text("worker-1 (2)")
    fill(served, "grouped/meters", 5)
    expect(shown.locator("strong")).to_have_text("11")


def test_a_group_is_moved_after_a_look_at_what_that_means(served: Served, open_page: OpenPage) -> None:
    served.create("moved/meters")
    fill(served, "moved/meters", 10)
    process(served, join(served, "moved/meters", "billing", "worker-1"), 1, 7)
    page = open_page(served, "/#/streams/moved/meters", expected="status of 400")
    page.get_by_role("button", name="Move billing…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("dd")).to_have_text(["0: 7", "0: 0", "7 records", "0 records", "worker-1"])
    dialog.get_by_label("To", exact=True).select_option("latest")
    expect(dialog.locator("dd")).to_have_text(["0: 7", "0: 10", "0 records", "3 records", "worker-1"])
    dialog.get_by_label("To", exact=True).select_option("offset")
    move = dialog.get_by_role("button", name="Move the group")
    expect(move).to_be_disabled()
    dialog.get_by_label("Which").fill("99")
    dialog.get_by_label("Which").blur()
    expect(dialog.get_by_role("alert")).to_contain_text("invalid-value")
    expect(move).to_be_disabled()
    dialog.get_by_label("Which").fill("0:2")
    dialog.get_by_label("Which").blur()
    expect(dialog.locator("dd")).to_have_text(["0: 7", "0: 2", "5 records", "0 records", "worker-1"])
    assert status(served, "moved/meters", "billing")["positions"] == {"0": 7}
    move.click()
    expect(page.get_by_text("billing goes on from 0: 2.")).to_be_visible()
    expect(row(page, "billing").locator("strong")).to_have_text("8")
    expect(row(page, "billing")).to_contain_text("nobody")
    assert status(served, "moved/meters", "billing")["positions"] == {"0": 2}


def test_a_group_is_moved_and_deleted_with_keys_alone(served: Served, open_page: OpenPage) -> None:
    served.create("keyed/meters")
    fill(served, "keyed/meters", 3)
    process(served, join(served, "keyed/meters", "billing", "worker-1"), 1, 3)
    page = open_page(served, "/#/streams/keyed/meters")
    expect(row(page, "billing")).to_be_visible()
    tab_to(page, "Move…")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").locator("dd").nth(2)).to_have_text("3 records")
    tab_to(page, "Move the group")
    page.keyboard.press("Enter")
    expect(row(page, "billing").locator("strong")).to_have_text("3")
    tab_to(page, "Delete…")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("forgotten")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Enter")  # the focus is back on the button
    tab_to(page, "Forget it")
    page.keyboard.press("Enter")
    expect(page.get_by_text("billing is forgotten.")).to_be_visible()
    assert served.call("GET", "/v1/streams/keyed/meters/groups") == []


def test_dead_letters_are_counted_and_sent_back(served: Served, open_page: OpenPage) -> None:
    served.create("dead/meters")
    fill(served, "dead/meters", 6)
    process(served, join(served, "dead/meters", "billing", "worker-1"), 1, 6, dead=(1, 4))
    page = open_page(served, "/#/streams/dead/meters")
    row(page, "billing").get_by_role("button", name="2: send back…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 records went to the dead letters")
    expect(dialog.get_by_role("link", name="Look at them")).to_have_attribute("href", "#/streams/dead/meters/dead")
    dialog.get_by_role("button", name="Send them back").click()
    expect(page.get_by_text("2 records sent back.")).to_be_visible()
    expect(row(page, "billing").locator("strong")).to_have_text("2")
    assert served.call("GET", "/v1/streams/dead/meters/count")["count"] == 8


def test_a_group_may_be_called_anything(served: Served, open_page: OpenPage) -> None:
    served.create("named/meters")
    fill(served, "named/meters", 2)
    name = "<b>a/b %20 é</b>"
    join(served, "named/meters", "%3Cb%3Ea%2Fb%20%2520%20%C3%A9%3C%2Fb%3E", "worker-1")
    page = open_page(served, "/#/streams/named/meters")
    expect(row(page, name)).to_be_visible()
    page.get_by_role("button", name="Move").click()
    expect(page.get_by_role("dialog").locator("dd").first).to_have_text("0: 0")
