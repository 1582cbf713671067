"""The part of the log engine's contract that is about reading: by offsets, by key, by column and by predicate."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.log.engine import LogEngine
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Compare, IsNull, Not, Unknown
from millpond.model.schema import stored_schema
from millpond.testing.engine_records import (
    INGEST,
    OTHER,
    SCHEMA,
    STREAM,
    append,
    arrow_part,
    encoded_part,
    ids_of,
    row_of,
    rows_of,
)


class ReadContract:
    """What every engine owes to readers (K2, K3, K6, K13)."""

    def test_reads_are_of_exactly_the_range_in_order(self, engine: LogEngine) -> None:
        for n in range(0, 100, 4):
            append(engine, (encoded_part if n % 8 else arrow_part)(0, range(n, n + 4)), durability="os")
        for start, stop in [(0, 100), (0, 1), (99, 100), (3, 5), (17, 83), (50, 50)]:
            rows = rows_of(engine, 0, start, stop)
            assert [row["id"] for row in rows] == list(range(start, stop))
            assert [row["_offset"] for row in rows] == list(range(start, stop))

    def test_readers_get_the_stored_schema(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(4)), encoded_part(1, range(1)))
        for streamlet in (0, 1):
            for batch in engine.read(STREAM.id, streamlet, OffsetRange(0, 1)):
                assert batch.schema.equals(stored_schema(SCHEMA)), batch.schema
                batch.validate(full=True)

    @pytest.mark.parametrize(
        "columns", [["value"], ["_offset"], ["name", "_streamlet", "id"], ["_ingest_time", "value"]]
    )
    def test_columns_are_those_asked_for_in_that_order(self, engine: LogEngine, columns: list[str]) -> None:
        """K13"""
        append(engine, arrow_part(0, range(4)), encoded_part(1, range(4)))
        for streamlet in (0, 1):
            whole = rows_of(engine, streamlet)
            (batch,) = list(engine.read(STREAM.id, streamlet, OffsetRange(0, 4), columns=columns)) or [None]
            assert batch is not None
            assert batch.schema.names == columns
            assert batch.to_pylist() == [{name: row[name] for name in columns} for row in whole]

    def test_predicates_are_applied_where_the_data_is(self, engine: LogEngine) -> None:
        """K13: rows for which the predicate is not true (false or unknown) stay where they are."""
        for n in range(0, 60, 6):
            append(engine, (encoded_part if n % 12 else arrow_part)(0, range(n, n + 6)), durability="os")
        cases: list[tuple[Any, Callable[[dict[str, Any]], bool]]] = [
            (Compare(">", "value", 10.0), lambda r: r["value"] is not None and r["value"] > 10),
            (Compare("=", "name", "name-3"), lambda r: r["name"] == "name-3"),
            (IsNull("name"), lambda r: r["name"] is None),
            (Not(Compare("=", "name", "name-3")), lambda r: r["name"] is not None and r["name"] != "name-3"),
            (Compare("<", "_offset", 7), lambda r: r["id"] < 7),
        ]
        for predicate, wanted in cases:
            expected = [n for n in range(60) if wanted(row_of(n))]
            assert ids_of(engine, 0, predicate=predicate) == expected, predicate
            assert ids_of(engine, 0, 10, 50, predicate=predicate) == [n for n in expected if 10 <= n < 50], predicate

    def test_a_predicate_may_use_a_column_that_is_not_asked_for(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(20)))
        found = rows_of(engine, 0, columns=["id"], predicate=Compare(">=", "value", 4.0))
        assert found == [{"id": n} for n in range(20) if n / 4 >= 4 and n % 7 != 6]

    def test_what_is_not_understood_counts_as_true_only_when_loose(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(6)))
        assert ids_of(engine, 0, predicate=Unknown("something"), loose=True) == list(range(6))
        with pytest.raises(MillpondError):
            ids_of(engine, 0, predicate=Unknown("something"))

    def test_a_read_goes_on_while_the_stream_grows(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(50)))
        reading = engine.read(STREAM.id, 0, OffsetRange(0, 50))
        append(engine, arrow_part(0, range(50, 60)))
        assert [row["id"] for batch in reading for row in batch.to_pylist()] == list(range(50))

    def test_keys_are_found_newest_first(self, engine: LogEngine) -> None:
        """K3, K6"""
        for n in range(0, 40, 2):
            append(engine, (encoded_part if n % 4 else arrow_part)(0, range(n, n + 2)), durability="os")
        append(engine, arrow_part(1, range(3, 4)))

        def found(
            column: str, value: Any, *, streamlet: int | None = None, limit: int = 100, below: int = 40
        ) -> list[list[int]]:
            batches = engine.find(STREAM.id, column, value, streamlet=streamlet, limit=limit, below={0: below, 1: 1})
            by_streamlet: dict[int, list[int]] = {}
            for batch in batches:
                for row in batch.to_pylist():
                    assert row[column] == value
                    by_streamlet.setdefault(row["_streamlet"], []).append(row["_offset"])
            return [by_streamlet[s] for s in sorted(by_streamlet)]

        assert found("id", 17) == [[17]]
        assert found("id", 3) == [[3], [0]]
        assert found("id", 3, streamlet=1) == [[0]]
        assert found("name", "name-3", streamlet=0) == [[33, 23, 13, 3]]
        assert found("name", "name-3", streamlet=0, limit=2) == [[33, 23]]
        assert found("name", "name-3", streamlet=0, below=33) == [[23, 13, 3]]
        assert found("id", 1_000) == []
        assert found("name", "nobody") == []

    def test_segments_cover_what_is_held(self, engine: LogEngine) -> None:
        """K2"""
        for n in range(0, 30, 3):
            append(engine, arrow_part(0, range(n, n + 3)), encoded_part(2, range(n, n + 1)), durability="os")
        by_streamlet: dict[int, list[OffsetRange]] = {}
        for segment in engine.segments(STREAM.id):
            assert segment.bytes > 0
            assert segment.first_ingest_micros == segment.last_ingest_micros == INGEST
            by_streamlet.setdefault(segment.streamlet, []).append(segment.offsets)
        heads = engine.heads(STREAM.id)
        for streamlet, ranges in by_streamlet.items():
            assert ranges[0].start == 0
            assert ranges[-1].stop == heads[streamlet]
            assert all(a.stop == b.start for a, b in itertools.pairwise(ranges))
        assert engine.bytes_live(STREAM.id) > 0
        assert engine.bytes_live(OTHER.id) == 0
