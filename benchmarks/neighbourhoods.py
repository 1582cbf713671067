"""What the benchmarks of skipping ask: squares around meters, one meter of each part of the map that has any.

As in the published experiment: the map is cut into cells of 0.1°, a meter is drawn from each cell that is not empty,
and a square of so many kilometres lies around it. Cells count alike, however many meters they hold: most queries are
about the country, where objects reach far, and few about towns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.gridpocket import Readings
from millpond.gridpocket.country import meters
from millpond.model.predicate import And, Compare, Predicate

KM_PER_DEGREE = 111.195
CELL_DEGREES = 0.1

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Squares:
    """Boxes of one size, south, west, north, east of each; and the meter in the middle of each."""

    km: float
    vid: npt.NDArray[np.int64]
    south: Floats
    west: Floats
    north: Floats
    east: Floats

    def __len__(self) -> int:
        return len(self.vid)

    @property
    def predicates(self) -> list[Predicate]:
        sides = (self.south.tolist(), self.north.tolist(), self.west.tolist(), self.east.tolist())
        return [
            And(
                (
                    Compare(">=", "latitude", south),
                    Compare("<=", "latitude", north),
                    Compare(">=", "longitude", west),
                    Compare("<=", "longitude", east),
                )
            )
            for south, north, west, east in zip(*sides, strict=True)
        ]

    def sql(self, at: int) -> str:
        return (
            (
                f"latitude BETWEEN {self.south[at]!r}D AND {self.north[at]!r}D "
                f"AND longitude BETWEEN {self.west[at]!r}D AND {self.east[at]!r}D"
            )
            .replace("np.float64(", "")
            .replace(")", "")
        )

    def reaching(self, low: Floats, high: Floats, sizes: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Bytes and objects that min/max skipping reads for all squares; bounds have a latitude and a longitude."""
        objects = size = 0
        for at in range(len(self)):
            met = (low[:, 0] <= self.north[at]) & (high[:, 0] >= self.south[at])
            met &= (low[:, 1] <= self.east[at]) & (high[:, 1] >= self.west[at])
            objects += int(met.sum())
            size += int(sizes[met].sum())
        return size, objects


def squares(readings: Readings, km: float, seed: int = 11) -> Squares:
    """A square around a random meter of each cell that has one."""
    known = meters(readings.seed, 0, readings.meters)
    cells = np.floor(np.stack([known.lat, known.lon]) / CELL_DEGREES).astype(np.int64)
    shuffled = np.random.default_rng(seed).permutation(readings.meters)
    _, first = np.unique(cells[:, shuffled], axis=1, return_index=True)
    chosen = shuffled[first]
    lat, lon = known.lat[chosen], known.lon[chosen]
    up = km / 2 / KM_PER_DEGREE
    across = up / np.cos(np.radians(lat))
    return Squares(km, chosen, lat - up, lon - across, lat + up, lon + across)


def told(objects_read: int, queries: int, sizes: npt.NDArray[np.int64]) -> dict[str, Any]:
    """What explains a figure: how many objects a query reads, and how unlike their sizes are."""
    return {
        "queries": queries,
        "objects": len(sizes),
        "objects_read_per_query": round(objects_read / queries, 2),
        "object_bytes": [int(size) for size in np.quantile(sizes, (0.0, 0.5, 1.0))],
    }
