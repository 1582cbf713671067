"""The picture that the demonstration leaves: where the meters are and what they draw, and the week's load curve.

Drawn from the answers that Spark gave, without a display.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.cli.demo.town import TOWNS

INK, FAINT, LOAD, COLD = "#1d2b3a", "#8a97a5", "#c8553d", "#2e6f9e"
# Where a town's name goes, if on its right it would fall on a neighbour: across and up, in multiples of its radius.
NAME_AT = {
    "Cannes": (0.0, -1.0),
    "Antibes": (0.9, -0.8),
    "Nice": (1.0, -0.5),
    "Menton": (0.0, 1.0),
    "Grasse": (-1.0, 0.3),
    "Draguignan": (-1.0, 0.0),
    "Toulon": (-1.0, 0.0),
    "Martigues": (-1.0, 0.0),
}


def draw(path: Path, by_meter: pa.Table, by_town: pa.Table, curve: pa.Table, title: str) -> None:
    """Draw the answers to a PNG file."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    spaced = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    # A figure of its own, without pyplot, is drawn by Agg: no display is asked for.
    figure = Figure(figsize=(13.5, 6.6), dpi=110, facecolor="white", layout=spaced)
    axes = figure.subplot_mosaic([["map", "cold"], ["map", "load"], ["map", "load"]], width_ratios=[1.15, 1.0])
    figure.suptitle(title, color=INK, fontsize=13, fontweight="bold", x=0.01, ha="left")
    _draw_map(axes["map"], by_meter, by_town)
    _draw_curves(axes["cold"], axes["load"], curve)
    figure.savefig(path)


def _draw_map(axes: Any, by_meter: pa.Table, by_town: pa.Table) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.patheffects import withStroke

    lat, lon, load = (by_meter.column(name).to_numpy() for name in ("lat", "lon", "kilowatts"))
    cells = axes.hexbin(
        lon, lat, C=load, reduce_C_function=np.sum, gridsize=(130, 78), cmap="YlOrRd", norm=LogNorm(), linewidths=0.1
    )
    average = {row["city"]: row["kilowatts"] for row in by_town.to_pylist()}
    halo = [withStroke(linewidth=2.5, foreground="white")]
    for name, town_lat, town_lon, people, _ in TOWNS:
        if name not in average:
            continue
        across, up = NAME_AT.get(name, (1.0, 0.0))
        radius = 0.035 + 0.0042 * people**0.5
        axes.annotate(
            f"{name} {average[name]:.2f}",
            (town_lon + across * radius, town_lat + 0.9 * up * radius),
            ha="left" if across > 0 else "right" if across < 0 else "center",
            va="center",
            fontsize=8.5,
            color=INK,
            path_effects=halo,
        )
    axes.set_xlim(4.45, 7.7)
    axes.set_ylim(42.97, 44.68)
    # A degree of longitude is shorter than one of latitude.
    axes.set_aspect(1 / np.cos(np.radians(43.7)))
    axes.set_title("Load on the map, and the average meter of each town (kW)", color=INK, fontsize=10, loc="left")
    axes.set_xlabel("longitude (°E)", color=FAINT, fontsize=9)
    axes.set_ylabel("latitude (°N)", color=FAINT, fontsize=9)
    bar = axes.figure.colorbar(cells, ax=axes, orientation="horizontal", shrink=0.6, pad=0.02, aspect=45)
    bar.set_label("kW per cell of about 2 km", color=FAINT, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.minorticks_off()
    bar.ax.xaxis.set_major_formatter("{x:g}")
    _quieten(axes, bar.ax)


def _draw_curves(cold: Any, load: Any, curve: pa.Table) -> None:
    from matplotlib import dates

    days: Any = dates  # its classes are not typed
    hours = curve.column("hour").cast(pa.timestamp("us")).to_numpy()
    kilowatts, celsius = (curve.column(name).to_numpy() for name in ("kilowatts", "celsius"))
    cold.plot(hours, celsius, color=COLD, linewidth=1.6)
    cold.axhline(0, color=FAINT, linewidth=0.6)
    cold.set_title("Temperature, average of all meters (°C)", color=INK, fontsize=10, loc="left")
    load.fill_between(hours, kilowatts, color=LOAD, alpha=0.2, linewidth=0)
    load.plot(hours, kilowatts, color=LOAD, linewidth=1.6)
    load.set_ylim(0, float(kilowatts.max()) * 1.08)
    load.set_title("Load, average of all meters (kW)", color=INK, fontsize=10, loc="left")
    cold.sharex(load)
    cold.tick_params(labelbottom=False)
    load.xaxis.set_major_locator(days.DayLocator())
    load.xaxis.set_major_formatter(days.DateFormatter("%a\n%d %b"))
    for axes in (cold, load):
        axes.margins(x=0.01)
        axes.grid(color=FAINT, alpha=0.25)
    _quieten(cold, load)


def _quieten(*all_axes: Any) -> None:
    for axes in all_axes:
        axes.tick_params(colors=FAINT, labelsize=8, length=0)
        for side in axes.spines.values():
            side.set_visible(False)
