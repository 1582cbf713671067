"""The picture of a comparison: day by day, as a whole, and where the homes are. Drawn without a display."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.cli.demo.neighbours.comparison import Comparison
from millpond.cli.demo.picture import COLD, FAINT, INK, LOAD

_METERS_PER_DEGREE = 111_195.0


def draw(path: Path, comparison: Comparison, by_day: pa.Table, by_home: pa.Table, note: str) -> None:
    """Draw the answers to a PNG file. `note`: what the query cost."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    spaced = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.10)
    # A figure of its own, without pyplot, is drawn by Agg: no display is asked for.
    figure = Figure(figsize=(13.5, 6.6), dpi=110, facecolor="white", layout=spaced)
    axes = figure.subplot_mosaic(
        [["cold", "cold", "all"], ["days", "days", "all"], ["days", "days", "map"], ["days", "days", "map"]],
        width_ratios=[1.0, 1.0, 0.85],
        height_ratios=[1.0, 0.55, 1.2, 1.2],
    )
    home = comparison.home
    figure.suptitle(
        f"Meter {home.vid} in {home.city} and its neighbours within {comparison.radius_meters / 1000:g} km: "
        f"{home.type}, about {home.size} m²",
        color=INK,
        fontsize=13,
        fontweight="bold",
        x=0.01,
        ha="left",
    )
    _draw_days(axes["cold"], axes["days"], by_day)
    _draw_all(axes["all"], home.vid, by_home)
    _draw_map(axes["map"], comparison, by_home)
    figure.supxlabel(note, color=FAINT, fontsize=8.5, x=0.01, ha="left")
    figure.savefig(path)


def _draw_days(cold: Any, days: Any, by_day: pa.Table) -> None:
    from matplotlib import dates

    ticks: Any = dates  # its classes are not typed
    day = by_day.column("day").cast(pa.timestamp("us")).to_numpy()
    mine, others, celsius = (by_day.column(name).to_numpy() for name in ("mine", "neighbours", "celsius"))
    cold.plot(day, celsius, color=FAINT, linewidth=1.4)
    cold.set_title("Temperature (°C)", color=INK, fontsize=10, loc="left")
    days.fill_between(day, mine, others, where=mine >= others, interpolate=True, color=LOAD, alpha=0.18, linewidth=0)
    days.fill_between(day, mine, others, where=mine < others, interpolate=True, color=COLD, alpha=0.18, linewidth=0)
    days.plot(day, others, color=COLD, linewidth=1.8)
    days.plot(day, mine, color=LOAD, linewidth=1.8)
    years = " and ".join(sorted({str(each)[:4] for each in day}))
    days.set_title(f"Consumption in {years} (kWh a day)", color=INK, fontsize=10, loc="left")
    days.set_ylim(0, float(max(mine.max(), others.max())) * 1.08)
    # Each line is named at its end, above or below the other one.
    above = mine[-1] >= others[-1]
    for values, name, color, up in ((mine, "this home", LOAD, above), (others, "neighbours", COLD, not above)):
        days.annotate(
            name, (day[-1], values[-1]), xytext=(6, 7 if up else -7), textcoords="offset points", color=color,
            fontsize=9.5, fontweight="bold", va="center", annotation_clip=False,
        )  # fmt: skip
    cold.sharex(days)
    cold.tick_params(labelbottom=False)
    locator = ticks.AutoDateLocator(maxticks=9)
    days.xaxis.set_major_locator(locator)
    days.xaxis.set_major_formatter(ticks.ConciseDateFormatter(locator, show_offset=False))
    span = day[-1] - day[0]
    days.set_xlim(day[0] - span / 80, day[-1] + span / 6)
    for axes in (cold, days):
        axes.grid(color=FAINT, alpha=0.25)
    _quieten(cold, days)


def _draw_all(axes: Any, vid: int, by_home: pa.Table) -> None:
    """The whole period: the home against the mean."""
    vids, kwh = by_home.column("vid").to_numpy(), by_home.column("kwh").to_numpy()
    mine, mean = float(kwh[vids == vid][0]), float(kwh[vids != vid].mean())
    bars = axes.barh(["neighbours", "this home"], [mean, mine], color=[COLD, LOAD], height=0.55)
    axes.bar_label(bars, labels=[f"{mean:,.0f} kWh", f"{mine:,.0f} kWh"], padding=5, color=INK, fontsize=10)
    axes.set_xlim(0, max(mine, mean) * 1.32)
    more = mine / mean - 1
    verdict = f"{abs(more):.0%} {'more' if more > 0 else 'less'} than the mean of {len(kwh) - 1} neighbours"
    axes.set_title(f"All together: {verdict}", color=INK, fontsize=10, loc="left")
    axes.set_xticks([])
    _quieten(axes)
    axes.tick_params(labelsize=9.5, colors=INK)


def _draw_map(axes: Any, comparison: Comparison, by_home: pa.Table) -> None:
    """Where the homes are, in kilometres from the one that asks; darker is more."""
    home, radius = comparison.home, comparison.radius_meters / 1000
    vids, kwh = by_home.column("vid").to_numpy(), by_home.column("kwh").to_numpy()
    north = (by_home.column("latitude").to_numpy() - home.latitude) * _METERS_PER_DEGREE / 1000
    narrower = np.cos(np.radians(home.latitude))
    east = (by_home.column("longitude").to_numpy() - home.longitude) * narrower * _METERS_PER_DEGREE / 1000
    around = np.linspace(0, 2 * np.pi, 200)
    axes.plot(radius * np.cos(around), radius * np.sin(around), color=FAINT, linewidth=0.8)
    other = vids != home.vid
    dots = axes.scatter(east[other], north[other], c=kwh[other], cmap="YlGnBu", s=42, edgecolors=INK, linewidths=0.4)
    axes.scatter([0], [0], marker="*", s=230, color=LOAD, edgecolors="white", linewidths=0.8, zorder=3)
    bar = axes.figure.colorbar(dots, ax=axes, shrink=0.8, pad=0.02, aspect=22)
    bar.set_label("kWh", color=FAINT, fontsize=9)
    bar.outline.set_visible(False)
    axes.set_aspect("equal")
    axes.set_title("Where they are (km)", color=INK, fontsize=10, loc="left")
    _quieten(axes, bar.ax)


def _quieten(*all_axes: Any) -> None:
    for axes in all_axes:
        axes.tick_params(colors=FAINT, labelsize=8, length=0)
        for side in axes.spines.values():
            side.set_visible(False)
