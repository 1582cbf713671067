"""The picture of a query on the map of a stream's objects: what is read, what is ruled out, where it looks.

Drawn without a display, as PNG or SVG by the name of the file. Degrees are drawn as they lie on the ground at the
middle of the map, if the two columns look like degrees.
"""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidValue
from millpond.query.object_map import ObjectMap

SUFFIXES = (".png", ".svg")
INK, FAINT, SPARED, READ, ASKED = "#1d2b3a", "#8a97a5", "#b9c4cf", "#c8553d", "#2e6f9e"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Around everything that is drawn, as a part of its size.
_MARGIN = 0.04
# What is shown in small beside a map on which the query is a dot: so much of its width, at most.
_DOT = 0.06


def check_picture(path: Path) -> None:
    """Whether a picture can be drawn there, before anything else is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidValue(f"no picture of kind {path.suffix!r}", hint=f"end the name in {' or '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise InvalidValue(f"no directory {path.absolute().parent}", hint="make it first, or name another file")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InvalidValue("pictures need matplotlib", hint="pip install 'millpond[demo]'") from error


def draw_map(drawn: ObjectMap, schema: pa.Schema, path: Path, title: str) -> None:
    """Draw the objects and the query to a file."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    if not drawn.boxes:
        raise InvalidValue("of no object is it known where it lies", hint="settle the stream, or name other columns")
    west, south, east, north = _extent(drawn)
    dot = _is_dot(drawn, (west, south, east, north))
    figure = Figure(figsize=(13 if dot else 9, 7), dpi=110, facecolor="white", layout="constrained")
    panels = figure.subplots(1, 2 if dot else 1, squeeze=False)[0]
    for axes in panels:
        _draw_boxes(axes, drawn)
        _draw_asked(axes, drawn, (west, south, east, north))
        _dress(axes, drawn, schema)
    panels[0].set_xlim(west, east)
    panels[0].set_ylim(south, north)
    if dot:
        _zoom(panels[1], drawn)
        panels[1].set_title("around the query", color=FAINT, fontsize=9, loc="left")
    if _are_degrees(drawn):
        for axes in panels:
            axes.set_aspect(1 / np.cos(np.radians(np.clip(sum(axes.get_ylim()) / 2, -80, 80))), adjustable="box")
    figure.suptitle(textwrap.fill(title, 110), color=INK, fontsize=11, fontweight="bold", x=0.01, ha="left")
    read, total = sum(drawn.read), drawn.objects_total
    said = f"{read:,} of {total:,} objects read"
    if drawn.objects_unknown:
        said += f"; of {drawn.objects_unknown:,} it is not known where they lie"
    if len(drawn.boxes) + drawn.objects_unknown < total:
        said += f"; {len(drawn.boxes):,} drawn"
    panels[0].set_title(said, color=INK, fontsize=10, loc="left")
    key = [("read", READ), ("ruled out", SPARED), ("asked for", ASKED)]
    lines = [Line2D([], [], color=colour, label=name) for name, colour in key]
    figure.legend(handles=lines, loc="outside lower center", ncols=3, fontsize=9, frameon=False, labelcolor=INK)
    figure.savefig(path)


def _extent(drawn: ObjectMap) -> tuple[float, float, float, float]:
    boxes = np.array(drawn.boxes)
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    pad = np.maximum((high - low) * _MARGIN, 1e-9)
    (west, south), (east, north) = low - pad, high + pad
    return float(west), float(south), float(east), float(north)


def _asked(drawn: ObjectMap, extent: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """What is asked for, as a box; a side without a bound is that of the map."""
    (x0, x1), (y0, y1) = drawn.asked_x, drawn.asked_y
    west, south, east, north = extent
    return (
        west if x0 is None else x0,
        south if y0 is None else y0,
        east if x1 is None else x1,
        north if y1 is None else y1,
    )


def _is_dot(drawn: ObjectMap, extent: tuple[float, float, float, float]) -> bool:
    west, south, east, north = _asked(drawn, extent)
    small = max((east - west) / (extent[2] - extent[0]), (north - south) / (extent[3] - extent[1]))
    return any(drawn.read) and 0 <= small < _DOT


def _draw_boxes(axes: Any, drawn: ObjectMap) -> None:
    from matplotlib.collections import PolyCollection

    boxes, read = np.array(drawn.boxes), np.array(drawn.read)
    corners = boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
    for chosen, edge, face, order in ((~read, SPARED, "none", 1), (read, READ, f"{READ}22", 3)):
        axes.add_collection(
            PolyCollection(corners[chosen], facecolors=face, edgecolors=edge, linewidths=0.8, zorder=order)
        )


def _draw_asked(axes: Any, drawn: ObjectMap, extent: tuple[float, float, float, float]) -> None:
    from matplotlib.patches import Rectangle

    if drawn.asked_x == drawn.asked_y == (None, None):
        return
    west, south, east, north = _asked(drawn, extent)
    axes.add_patch(Rectangle((west, south), east - west, north - south, fc=f"{ASKED}33", ec=ASKED, lw=1.4, zorder=4))


def _zoom(axes: Any, drawn: ObjectMap) -> None:
    """The objects that are read, and what is asked for, but no more than a few times its size."""
    west, south, east, north = _asked(drawn, _extent(drawn))
    wide, high = max(east - west, 1e-9), max(north - south, 1e-9)
    axes.set_xlim(west - 2 * wide, east + 2 * wide)
    axes.set_ylim(south - 2 * high, north + 2 * high)


def _are_degrees(drawn: ObjectMap) -> bool:
    west, south, east, north = _extent(drawn)
    named = {drawn.x.lower()[:3], drawn.y.lower()[:3]}
    return named == {"lon", "lat"} and -200 <= west <= east <= 200 and -100 <= south <= north <= 100


def _dress(axes: Any, drawn: ObjectMap, schema: pa.Schema) -> None:
    for name, axis in ((drawn.x, axes.xaxis), (drawn.y, axes.yaxis)):
        axis.set_label_text(name, color=FAINT, fontsize=9)
        kind = schema.field(name).type
        if pa.types.is_temporal(kind):
            axis.set_major_formatter(lambda micros, _: f"{_EPOCH + timedelta(microseconds=micros):%Y-%m-%d\n%H:%M}")
    axes.tick_params(colors=FAINT, labelsize=8)
    for side in axes.spines.values():
        side.set_color(SPARED)
