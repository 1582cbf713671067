"""A map of a stream's objects over two of its columns: where each lies, which a query reads, and where it looks.

What is drawn is what is decided by: an object's extent is that of its index entry. An object of which nothing is known
lies everywhere; it is counted, not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.object_index import ObjectIndex
from millpond.errors import InvalidValue
from millpond.model.definition import StreamDefinition
from millpond.model.past_query import past_query
from millpond.model.predicate import Predicate

# More boxes than this are a blur to look at, and megabytes to send.
OBJECTS_MAX = 5_000

_DRAWN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp)
_DAY_MICROS = 86_400_000_000

Box = tuple[float, float, float, float]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ObjectMap:
    """Boxes are (x low, y low, x high, y high). `read` and `bytes` are those of the objects in `boxes`, of which there
    are at most `OBJECTS_MAX`, those that are read first. `asked`: what the query asks for along each axis; None: no
    bound. Dates and times are microseconds since 1970."""

    x: str
    y: str
    boxes: list[Box]
    read: list[bool]
    bytes: list[int]
    asked_x: tuple[float | None, float | None]
    asked_y: tuple[float | None, float | None]
    objects_total: int
    objects_unknown: int


def map_columns(definition: StreamDefinition, axes: Sequence[str] | None) -> tuple[str, str]:
    """The columns along x and y: those given, else the first two of the layout, of which the first is drawn upwards,
    as a latitude is."""
    if axes is None:
        laid = () if definition.layout is None else definition.layout.columns
        if len(laid) < 2:
            raise InvalidValue(
                f"{definition.name} has no layout of two columns to draw", hint="name two columns: axes=('lon', 'lat')"
            )
        axes = (laid[1], laid[0])
    if len(axes) != 2 or axes[0] == axes[1]:
        raise InvalidValue(f"a map has two axes, not {', '.join(axes) or 'none'}", hint="name two columns")
    for name in axes:
        if definition.schema.get_field_index(name) < 0:
            raise InvalidValue(f"no column {name!r}", hint=f"columns: {', '.join(definition.schema.names)}")
        kind = definition.schema.field(name).type
        if not any(fits(kind) for fits in _DRAWN):
            raise InvalidValue(f"column {name!r} is {kind}", hint="a map is drawn over numbers, dates or times")
    return axes[0], axes[1]


def object_map(
    objects: ObjectIndex, keep: Mask, predicate: Predicate | None, schema: pa.Schema, x: str, y: str
) -> ObjectMap:
    """Where the objects lie along `x` and `y`, and which of them (`keep`) are read."""
    columns = objects.stats.columns
    sides = [columns[x].lows, columns[y].lows, columns[x].highs, columns[y].highs]
    known = np.ones(len(objects), np.bool_)
    for name, side in zip((x, y, x, y), sides, strict=True):
        known &= ~np.isnan(side) if side.dtype.kind == "f" else columns[name].null_counts >= 0
    places = np.flatnonzero(known)
    first_read = places[np.argsort(~keep[places], kind="stable")][:OBJECTS_MAX]
    scales = [_DAY_MICROS if pa.types.is_date(columns[name].type) else 1 for name in (x, y, x, y)]
    boxes = np.stack([side[first_read] * float(scale) for side, scale in zip(sides, scales, strict=True)], axis=1)
    asked = None if predicate is None else past_query(predicate, schema, 0)
    ranges = {} if asked is None else asked.ranges
    return ObjectMap(
        x,
        y,
        [(west, south, east, north) for west, south, east, north in boxes.tolist()],
        keep[first_read].tolist(),
        objects.sizes[first_read].tolist(),
        ranges.get(x, (None, None)),
        ranges.get(y, (None, None)),
        len(objects),
        int(len(objects) - np.count_nonzero(known)),
    )
