"""The built-in index kinds keep the contract, over every type that they take."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond import Bloom, Boxes, IndexKind, MinMax, Values
from millpond.model.schema import TIMESTAMP
from millpond.testing.index_contract import IndexContract

TEMP = pa.schema([("temp", pa.float64()), ("city", pa.string())])


class TestMinMax(IndexContract):
    schema = TEMP

    def make(self) -> IndexKind:
        return MinMax("temp")


class TestValuesOfDoubles(IndexContract):
    schema = TEMP

    def make(self) -> IndexKind:
        return Values("temp", limit=4)


class TestValuesOfText(IndexContract):
    schema = TEMP

    def make(self) -> IndexKind:
        return Values("city")


class TestValuesOfTimes(IndexContract):
    schema = pa.schema([("at", TIMESTAMP), ("day", pa.date32())])

    def make(self) -> IndexKind:
        return Values("at")


class TestValuesOfDecimals(IndexContract):
    schema = pa.schema([("price", pa.decimal128(9, 2))])

    def make(self) -> IndexKind:
        return Values("price")


class TestValuesOfFlags(IndexContract):
    schema = pa.schema([("on", pa.bool_()), ("raw", pa.binary())])

    def make(self) -> IndexKind:
        return Values("on")


class TestWords(IndexContract):
    schema = pa.schema([("text", pa.string())])

    def make(self) -> IndexKind:
        return Values("text", words=True)


class TestBloomOfText(IndexContract):
    schema = TEMP

    def make(self) -> IndexKind:
        return Bloom("city")


class TestBloomOfSingles(IndexContract):
    schema = pa.schema([("temp", pa.float32()), ("n", pa.int64())])

    def make(self) -> IndexKind:
        return Bloom("temp", rate=0.3)


class TestBloomOfDecimals(IndexContract):
    schema = pa.schema([("price", pa.decimal128(38, 5)), ("n", pa.int64())])

    def make(self) -> IndexKind:
        return Bloom("price")


class TestBloomOfTimes(IndexContract):
    schema = pa.schema([("at", TIMESTAMP), ("day", pa.date32())])

    def make(self) -> IndexKind:
        return Bloom("day")


class TestBoxes(IndexContract):
    schema = pa.schema([("lat", pa.float64()), ("lon", pa.float32()), ("n", pa.int32())])

    def make(self) -> IndexKind:
        return Boxes("lat", "lon", boxes=3)


class TestBoxesOfThree(IndexContract):
    schema = pa.schema([("lat", pa.float64()), ("lon", pa.float32()), ("n", pa.int32())])

    def make(self) -> IndexKind:
        return Boxes("lat", "lon", "n", boxes=8)


def test_a_suite_that_does_not_say_which_kind_is_told_what_is_missing() -> None:
    class Untold(IndexContract):
        schema = TEMP

    with pytest.raises(TypeError, match=r"Untold.*\bmake\b"):
        Untold()  # type: ignore[abstract]
