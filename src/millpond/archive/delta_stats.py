"""The statistics that other engines find in a Delta add action.

Delta keeps them as JSON, which cannot express everything: what it cannot is left out, and an engine then reads the
object. Millpond itself decides by its index entries, not by these. Left out: NaN and infinities, binary, booleans
(Delta defines no order for them), decimals with more digits than a double holds (readers parse the number as one),
and times outside the years 1 to 9999.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from millpond.model.stats import ColumnRange

# Every decimal of up to 15 digits survives the way through a double.
_DOUBLE_DIGITS = 15


def stats_json(rows: int, columns: Mapping[str, ColumnRange]) -> str:
    """`numRecords`, `minValues`, `maxValues`, `nullCount` as the Delta protocol defines them."""
    mins, maxs, nulls = {}, {}, {}
    for name, column in columns.items():
        nulls[name] = column.nulls
        low, high = _expressible(column.min), _expressible(column.max)
        if low is not None:
            mins[name] = low
        if high is not None:
            maxs[name] = high
    stats = {"numRecords": rows, "minValues": mins, "maxValues": maxs, "nullCount": nulls}
    # Not as ASCII: deltalake decodes escaped surrogate pairs to other characters, and would skip objects by them.
    return json.dumps(stats, allow_nan=False, ensure_ascii=False)


def _expressible(value: Any) -> Any:
    match value:
        case bool() | bytes() | None:
            return None
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return _number(value)
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if value.year >= 1000 else None
        case date():
            return value.isoformat()
    return value


def _number(value: Decimal) -> int | float | None:
    if len(value.as_tuple().digits) > _DOUBLE_DIGITS:
        return None
    return int(value) if value == value.to_integral_value() else float(value)
