"""What can stand on one side of a comparison in the text of a WHERE clause."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple, TypeAlias

from millpond.model.derived import Derived
from millpond.model.literal import Value, as_double
from millpond.model.predicate import Column


class Ref(NamedTuple):
    """A column; `as_double`: it was cast to DOUBLE, so literals beside it are doubles."""

    column: Column
    as_double: bool = False

    def beside(self, value: Value) -> Value:
        """The literal in the type that it is compared in."""
        return as_double(value) if self.as_double and is_number(value) else value  # type: ignore[arg-type]


class Lit(NamedTuple):
    value: Value


class Distance(NamedTuple):
    """`st_distance` between the place in two columns and a point, and what it is then multiplied with or divided by."""

    lat: Column
    lon: Column
    to_lat: float
    to_lon: float
    scale: tuple[tuple[str, float], ...] = ()

    def scaled(self, meters: float) -> float:
        """What becomes of a distance."""
        for op, factor in self.scale:
            meters = meters * factor if op == "*" else meters / factor
        return meters


Operand: TypeAlias = Ref | Lit | Distance | Derived


def is_number(value: Value) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
