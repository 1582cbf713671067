"""The page of pipelines: who runs, how far behind, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.console.conftest import OpenPage, Served


def test_pipelines_are_shown_with_lag_and_last_batch(serve: Callable[..., Served], open_page: OpenPage) -> None:
    served = serve()
    page = open_page(served, "/#/pipelines")
    expect(page.get_by_role("heading", name="No pipeline has reported")).to_be_visible()
    served.create("grid/hourly")
    report = {"name": "hourly", "sources": ["grid/meters", "grid/weather"], "batch": 6, "batch_rows": 1200}
    figures = {"batch_seconds": 0.84, "rows": 9000, "behind": 4321}
    served.call("POST", "/v1/streams/grid/hourly/pipelines", {**report, **figures})
    row = page.get_by_role("row", name="hourly")
    expect(row).to_contain_text("running")
    expect(row.get_by_role("cell")).to_contain_text(
        [
            "hourly",
            "grid/meters + grid/weather",
            "grid/hourly",
            "running",
            "4,321",
            "6: 1,200 records in 0.8 s",
            "9,000",
        ]
    )
    served.call("POST", "/v1/streams/grid/hourly/pipelines", {**report, "batch": 7, "behind": 0, "rows": 10200})
    expect(row).to_contain_text("7: 1,200 records")
    broken = {**report, "state": "waiting", "restarts": 1, "failure": "pipeline 'hourly', line 7: <b>division</b>"}
    served.call("POST", "/v1/streams/grid/hourly/pipelines", broken)
    expect(row).to_contain_text("failed, starts again")
    expect(row).to_contain_text("line 7: <b>division</b>")
    row.get_by_role("link", name="grid/hourly").click()
    expect(page.get_by_role("heading", name="grid/hourly")).to_be_visible()
