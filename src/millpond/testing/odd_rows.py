"""Rows for tests of skipping: blocks that lie apart, so that indexes rule much out, with every oddity in some of them.

There are nulls, NaN, infinities, -0.0, the ends of integers, text that is empty, long, or beside the surrogates, days
before 1970, microseconds, decimals with all their digits, places at the poles, on the antimeridian and nowhere.
The same seed gives the same rows.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.model.schema import TIMESTAMP

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("whole", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(9, 2)),
        ("huge", pa.decimal128(38, 6)),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("note", pa.string()),
        ("data", pa.binary()),
        ("day", pa.date32()),
        ("at", TIMESTAMP),
        ("city", pa.string()),
        ("lat", pa.float64()),
        ("lon", pa.float32()),
    ]
)

FIRST = datetime(1969, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC)
STEP = timedelta(hours=37)
CITIES = {
    "Nice": (43.7, 7.25),
    "Paris": (48.85, 2.35),
    "Suva": (-18.1, 179.9),
    "Apia": (-13.8, -179.9),
    "Alert": (89.95, -62.3),
    "pôle": (-89.9, 0.0),
    "Null Island": (0.0, 0.0),
}
# One is longer than the bounds of an index; some differ only beyond them.
TEXTS = ["", "a", "ab", "a%", "a_b", "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "é", "日本", "z" * 70, "z" * 90]
EDGES: dict[str, list[Any]] = {
    "tiny": [-128, 127, 0],
    "whole": [-(2**31), 2**31 - 1, 0],
    "big": [-(2**63), 2**63 - 1, 2**53, 2**53 + 1],
    "single": [math.nan, math.inf, -math.inf, -0.0, 0.10000000149011612],
    "double": [math.nan, math.inf, -math.inf, -0.0, 0.1, 5e-324, 1e308],
    "money": [Decimal("-9999999.99"), Decimal("9999999.99"), Decimal("0.00"), Decimal("0.10")],
    "huge": [Decimal("9" * 32 + ".000001"), Decimal("-" + "9" * 32 + ".999999"), Decimal("0.100000")],
    "text": [*TEXTS, "Z", "\U0001f30a", "z" * 64 + "\U0010ffff" * 4],
    "note": ["", "!", "NICE nice"],
    "data": [b"", b"\x00", b"\xff\xff", b"\xff" * 70],
    "day": [date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31)],
    # In one of them the clocks of New York were set to a zone's time: five hours from UTC, no longer 4:56:02.
    "at": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1883, 11, 18, 12, tzinfo=UTC),
        FIRST,
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
    "city": ["", "nice", "Nice "],
    "lat": [90.0, -90.0, 90.5, math.nan, math.inf, -0.0],
    "lon": [180.0, -180.0, 181.0, math.nan, -math.inf, -0.0],
}


def odd_rows(seed: int, blocks: int, rows: int, *, around: datetime = FIRST, step: timedelta = STEP) -> list[pa.Table]:
    """So many blocks of so many rows. Of four blocks one is full of edges, of five one is mostly null. Times lie
    around the given one, those of a block within seven steps."""
    dice = random.Random(seed)
    found = []
    for block in range(blocks):
        made = [_row(dice, block, blocks, around, step) for _ in range(rows)]
        for number, row in enumerate(made):
            row["id"] = block * rows + number
        found.append(pa.Table.from_pylist(made, schema=SCHEMA))
    return found


def _row(dice: random.Random, block: int, blocks: int, around: datetime, step: timedelta) -> dict[str, Any]:
    n = (block - blocks // 2) * 7 + dice.randrange(7)
    moment = around + n * step + timedelta(microseconds=dice.randrange(3))
    city = dice.choice(sorted(CITIES)) if block % 3 == 0 else sorted(CITIES)[block % len(CITIES)]
    lat, lon = CITIES[city]
    row: dict[str, Any] = {
        "tiny": n,
        "whole": n * 1000,
        "big": n * 10**15,
        "single": n / 8,
        "double": n / 10,
        "money": Decimal(n) / 4,
        "huge": Decimal(n) * 10**9,
        "flag": block % 3 == 0,
        "text": chr(ord("a") + block % 26) + str(n),
        "note": f"{city}: {dice.choice(['warm', 'cold'])}, {abs(n)}",
        "data": bytes([block % 256, n % 256]),
        "day": moment.date(),
        "at": moment,
        "city": city,
        "lat": max(-90.0, min(90.0, lat + dice.uniform(-0.05, 0.05))),
        "lon": max(-180.0, min(180.0, lon + dice.uniform(-0.2, 0.2))),
    }
    nulls = (0.05, 0.0, 0.0, 0.05, 0.8)[block % 5]
    for name in row:
        if dice.random() < nulls:
            row[name] = None
        elif block % 4 == 3 and name in EDGES and dice.random() < 0.3:
            row[name] = dice.choice(EDGES[name])
    return row
