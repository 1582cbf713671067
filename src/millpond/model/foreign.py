"""Values of other libraries as Python's own: numpy scalars and arrays, pandas' NaT and NA, enums, odd mappings.

Rows are checked strictly and quickly first; only what failed comes here and is checked once more, so that a dict made
from a data frame is as welcome as one that was typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np

# pandas' two ways to say that there is nothing, known by name so that pandas need not be imported.
_MISSING = {"NaTType", "NAType"}
# No schema nests deeper; a list that holds itself ends here.
_DEPTH_MAX = 40


def own_value(value: Any, depth: int = 0) -> Any:
    """`value` in Python's own types as far as it has a counterpart there, itself otherwise."""
    kind = type(value)
    if kind in (str, int, float, bool, bytes, date, datetime, type(None)) or depth > _DEPTH_MAX:
        return value
    if kind.__name__ in _MISSING:
        return None
    if isinstance(value, np.generic):
        return _own_scalar(value)
    if isinstance(value, np.ndarray):
        return [own_value(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {own_value(key, depth + 1): own_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [own_value(item, depth + 1) for item in value]
    # The value itself, whatever a subclass (an enum, say) answers when asked for it.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value


def _own_scalar(value: np.generic) -> Any:
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        micros = value.astype("M8[us]")
        # A finer value that is not whole stays what it is, and is refused as such.
        return micros.item() if micros == value else value
    return value.item()
