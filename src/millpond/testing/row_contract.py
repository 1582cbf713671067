"""The part of the log engine's contract that is about single records, which the engine itself has encoded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from millpond.errors import InvalidRecord, PondClosed, StreamNotFound
from millpond.log.engine import Ack, EncodedRows, LogEngine, Part
from millpond.model.definition import DURABILITIES, Durability
from millpond.testing.engine_records import STREAM, STREAMLETS, append, encoded_part, ids_of, in_threads, rows_of


def encode(rows: Sequence[Any], now_micros: int) -> EncodedRows:
    """Numbers as records of the streamlet that they belong to; negative ones are refused."""
    assert now_micros > 0
    if any(n is None for n in rows):
        raise RuntimeError("an encoder that fails altogether")
    parts: list[Part] = []
    places: list[tuple[int, int] | Exception] = []
    for n in rows:
        places.append(InvalidRecord(f"no {n}") if n < 0 else (len(parts), 0))
        if n >= 0:
            parts.append(encoded_part(n % STREAMLETS, range(n, n + 1)))
    return EncodedRows(parts, places)


class RowAppenderContract:
    """What every engine owes to appends of one record."""

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_a_single_record_is_acknowledged_where_it_is(self, engine: LogEngine, durability: Durability) -> None:
        append_row = engine.row_appender(STREAM.id, encode, STREAM.schema_version)
        before = engine.appended_bytes(STREAM.id)
        for n in range(6):
            got = append_row(n, durability)
            (streamlet,) = got.ranges
            offsets = got.ranges[streamlet]
            assert (streamlet, len(offsets), got.durability, got.duplicate) == (n % STREAMLETS, 1, durability, False)
            assert ids_of(engine, streamlet, offsets.start, offsets.stop) == [n]
            assert engine.appended_bytes(STREAM.id) > before
            before = engine.appended_bytes(STREAM.id)

    def test_a_record_that_cannot_be_encoded_fails_alone(self, engine: LogEngine) -> None:
        """Whoever appends at the same moment is not hurt, and nothing of it is kept."""
        append_row = engine.row_appender(STREAM.id, encode, STREAM.schema_version)
        refused: list[int] = []

        def produce(number: int) -> None:
            for n in range(number * 100, number * 100 + 40):
                if n % 7 == 3:
                    with pytest.raises(InvalidRecord, match=f"no {-n}"):
                        append_row(-n, "os")
                    refused.append(n)
                else:
                    append_row(n, "os")
                    append(engine, encoded_part(0, range(100_000 + n, 100_001 + n)), durability="os")

        in_threads(8, produce)
        sent = {n for number in range(8) for n in range(number * 100, number * 100 + 40)} - set(refused)
        found = [row["id"] for streamlet in range(STREAMLETS) for row in rows_of(engine, streamlet)]
        assert sorted(found) == sorted([*sent, *(100_000 + n for n in sent)])
        assert len(refused) > 20

    def test_an_encoder_that_fails_altogether_hurts_nobody_else(self, engine: LogEngine) -> None:
        append_row = engine.row_appender(STREAM.id, encode, STREAM.schema_version)
        with pytest.raises(RuntimeError, match="altogether"):
            append_row(None, "disk")
        assert append_row(3, "disk").ranges[0].start == 0
        append(engine, encoded_part(0, range(4, 5)))
        assert ids_of(engine, 0) == [3, 4]

    def test_a_record_for_a_stream_that_is_dropped_or_a_log_that_is_closed_is_refused(self, engine: LogEngine) -> None:
        append_row = engine.row_appender(STREAM.id, encode, STREAM.schema_version)
        append_row(1, "disk")
        engine.drop_stream(STREAM.id)
        with pytest.raises(StreamNotFound):
            append_row(2, "disk")
        engine.close()
        with pytest.raises(PondClosed):
            append_row(3, "disk")

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_a_submitted_record_is_told_of_when_it_is_there(self, engine: LogEngine, durability: Durability) -> None:
        appender = engine.row_appender(STREAM.id, encode, STREAM.schema_version)
        told: list[tuple[Ack | None, BaseException | None]] = []
        all_told = threading.Event()

        def tell(answer: Ack | None, error: BaseException | None) -> None:
            told.append((answer, error))
            if len(told) == 40:
                all_told.set()

        for n in range(40):
            appender.submit(-1 if n % 10 == 9 else n, durability, tell)
        assert all_told.wait(30)
        acks = [answer for answer, error in told if answer is not None and error is None]
        refused = [error for answer, error in told if answer is None]
        assert len(acks) == 36
        assert [type(error) for error in refused] == [InvalidRecord] * 4
        found = [
            n
            for ack in acks
            for streamlet, offsets in ack.ranges.items()
            for n in ids_of(engine, streamlet, offsets.start, offsets.stop)
        ]
        assert sorted(found) == [n for n in range(40) if n % 10 != 9]

    def test_nothing_is_submitted_to_what_is_closed(self, engine: LogEngine) -> None:
        appender = engine.row_appender(STREAM.id, encode, STREAM.schema_version)
        engine.close()
        told: list[object] = []
        with pytest.raises(PondClosed):
            appender.submit(1, "disk", lambda answer, error: told.append((answer, error)))
        assert not told
