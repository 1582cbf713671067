"""The plots: what they are drawn from, and that they move."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.console.conftest import OpenPage, Served

TEXT = """# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.1",stream="a}b"} %d
wait_seconds_bucket{le="0.2",stream="a}b"} %d
wait_seconds_bucket{le="+Inf",stream="a}b"} %d
wait_seconds_bucket{le="0.1",stream="c"} 0.0
wait_seconds_bucket{le="0.2",stream="c"} 10.0
wait_seconds_bucket{le="+Inf",stream="c"} 10.0
rows_total{stream="a}b"} 3.0
rows_total{stream="c"} 4.5e+01
"""


def test_metrics_are_read_and_quantiles_are_those_of_what_came_between(served: Served, open_page: OpenPage) -> None:
    page = open_page(served)
    found = page.evaluate(
        """async ([before, after]) => {
            const { parseMetrics, quantile, growth } = await import("/console/metrics.js");
            const [early, late] = [parseMetrics(before), parseMetrics(after)];
            const at = (seconds, metrics) => ({ seconds, metrics });
            return [early.sums.get("rows_total"), quantile(0.5, early, late, "wait_seconds"),
                quantile(0.9, early, late, "wait_seconds"), quantile(0.999, early, late, "wait_seconds"),
                quantile(0.5, late, late, "wait_seconds"), quantile(0.5, early, late, "other"),
                growth(at(1, early), at(3, late), "rows_total"), growth(at(1, early), at(3, late), "other")];
        }""",
        [TEXT % (5, 5, 5), (TEXT % (55, 95, 105)).replace("3.0", "5.0")],
    )
    # Between the two: 50 up to 0.1, 40 more up to 0.2, 10 beyond.
    assert found == [48, pytest.approx(0.1), pytest.approx(0.2), 0.2, None, None, 1, None]


def test_an_axis_ends_at_a_round_number(served: Served, open_page: OpenPage) -> None:
    page = open_page(served)
    rounded = """async (values) => values.map((await import("/console/plots.js")).roundUp)"""
    values = [0, 1, 3, 7.2, 99, 100, 1234, 0.0031]
    assert page.evaluate(rounded, values) == pytest.approx([1, 1, 4, 8, 100, 100, 2000, 0.004])


def test_the_plots_move_while_records_come(served: Served, open_page: OpenPage) -> None:
    served.create("plotted/meters")
    page = open_page(served, "/#/activity")
    plots = {
        name: page.get_by_role("region", name=name) for name in ("Appended records", "Appended bytes", "Sync time")
    }
    following = open_page(served, "/#/streams/plotted/meters")
    expect(following.locator(".state")).to_contain_text("live")
    served.append("plotted/meters", *({"vid": "m", "temp": 1.0} for _ in range(1_000)))
    for plot in plots.values():
        expect(plot.locator("path.line").first).to_have_attribute("d", re.compile("M.*L"))
    first = plots["Appended records"].locator("path.line").get_attribute("d")
    expect(page.get_by_role("region", name="End-to-end latency").locator("path.line").first).to_have_attribute(
        "d", re.compile("M")
    )
    assert first is not None
    expect(plots["Appended records"].locator("path.line")).not_to_have_attribute("d", first)


def test_a_server_without_metrics_still_shows_what_it_knows(serve: Callable[..., Served], open_page: OpenPage) -> None:
    server = serve("--no-metrics")
    server.create("plain/meters")
    server.append("plain/meters", {"vid": "m", "temp": 1.0})
    page = open_page(server, "/#/activity", expected="status of 404")
    expect(page.get_by_role("region", name="Appended records")).to_contain_text("no data yet")
    expect(page.get_by_role("region", name="Boundary lag").locator(".now strong")).to_have_text("1")
