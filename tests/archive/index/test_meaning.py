"""Entries that do not mean what they seem to: of other options, of odd terms, of kinds that answer nonsense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millpond
from millpond.model import predicate as predicates
from millpond.model.predicate import Compare, IsNull, Predicate


class Bands(millpond.IndexKind):
    """Which bands of so many degrees there are: what a number means depends on how wide they are."""

    name = "testbands"

    def __init__(self, column: str, width: float = 5.0) -> None:
        super().__init__(column, width=width)
        self._width = width

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        return [pa.field("bands", pa.list_(pa.int64()))]

    def _bands(self, values: Any) -> Any:
        return np.floor(np.asarray(values) / self._width).astype(np.int64)

    def describe(self, rows: pa.Table) -> Mapping[str, Any]:
        return {"bands": pa.array(np.unique(self._bands(rows.column(self.column).drop_null())))}

    def keep(self, term: Predicate, entries: Any) -> Any:
        match term:
            case Compare("=", _, value):
                wanted = int(self._bands([value])[0])
                return np.array([each is None or wanted in each for each in entries.column("bands").to_pylist()])
        return None


class Ragged(millpond.IndexKind):
    """Its answers are no masks."""

    name = "testragged"

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        return [pa.field("one", pa.int64())]

    def describe(self, rows: pa.Table) -> Mapping[str, Any]:
        return {"one": 1}

    def keep(self, term: Predicate, entries: Any) -> Any:
        return [[True], [True, False]]


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[millpond.Pond]:
    with millpond.open(tmp_path / "pond", background=False) as pond:
        yield pond


def temperatures(pond: millpond.Pond, *indexes: millpond.IndexKind) -> millpond.Stream:
    stream = pond.create_stream("temps", pa.schema([("temp", pa.float64()), ("city", pa.string())]), indexes=indexes)
    stream.append([{"temp": -10.0}, {"temp": 35.0}])
    stream.settle()
    return stream


def test_entries_of_other_options_are_not_believed_until_they_are_made_anew(pond: millpond.Pond) -> None:
    stream = temperatures(pond, Bands("temp", width=2.0))
    assert stream.explain("temp = 20").skipped_by == {"testbands(temp)": 1}
    for width in (5.0, 2.0, 7.0):
        pond.alter_stream("temps", indexes=[Bands("temp", width=width)])
        assert stream.count("temp = 35") == 1
        stream.rebuild_indexes()
        assert stream.count("temp = 35") == 1
        assert stream.explain("temp = 20").skipped_by == {"testbands(temp)": 1}


def test_kinds_that_mean_the_same_under_all_options_keep_their_entries(pond: millpond.Pond) -> None:
    stream = temperatures(pond, millpond.Values("temp", limit=4))
    pond.alter_stream("temps", indexes=[millpond.Values("temp", limit=8)])
    assert stream.explain("temp = 20").skipped_by == {"values(temp)": 1}


def test_an_answer_that_is_no_mask_costs_reading_and_is_told(pond: millpond.Pond) -> None:
    stream = temperatures(pond, Ragged("temp"))
    report = stream.explain("temp = 20")
    assert report.objects_read == 1
    assert "testragged(temp)" in report.failures
    assert stream.count("temp = 35") == 1


def test_a_path_of_one_part_is_that_column(pond: millpond.Pond) -> None:
    """As it may come over the wire. All cities of the object are null."""
    stream = temperatures(pond)
    told = predicates.decode('{"is": "is_null", "column": ["city"]}')
    assert told == IsNull("city")
    assert stream.count(told) == stream.count("city IS NULL") == 2
    assert stream.count(predicates.decode('{"is": "compare", "op": "<=>", "column": ["city"], "value": null}')) == 2
