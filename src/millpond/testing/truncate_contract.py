"""The part of the log engine's contract that is about truncation: a new generation in place of all records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millpond.errors import InvalidValue, OffsetGone, StreamNotFound, Truncated
from millpond.log.engine import Ack, LogEngine, Standing, StreamAppend
from millpond.model.definition import DURABILITIES, Durability, StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.testing.engine_records import (
    DEADLINE_SECONDS,
    INGEST,
    OTHER,
    STREAM,
    STREAMLETS,
    append,
    arrow_part,
    encoded_part,
    ids_of,
    in_threads,
)
from millpond.testing.row_contract import encode

EMPTY = dict.fromkeys(range(STREAMLETS), 0)


def generation(number: int, stream: StreamDefinition = STREAM) -> StreamDefinition:
    """The stream, truncated until it has this generation."""
    return replace(stream, generation=number)


class TruncateContract:
    """What every engine owes to a stream that is truncated (C11)."""

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_a_truncated_stream_is_empty_and_begins_at_zero(self, engine: LogEngine, durability: Durability) -> None:
        append(engine, arrow_part(0, range(5)), encoded_part(2, range(3)), durability=durability)
        append(engine, arrow_part(0, range(4)), stream=OTHER)
        assert engine.standing(STREAM.id) == Standing(1, {0: 5, 1: 0, 2: 3})
        engine.truncate_stream(generation(2))
        assert engine.standing(STREAM.id) == Standing(2, EMPTY)
        assert engine.starts(STREAM.id) == EMPTY
        assert engine.bytes_live(STREAM.id) == 0
        assert engine.segments(STREAM.id) == []
        assert engine.find(STREAM.id, "id", 1, streamlet=None, limit=9, below={}) == []
        assert append(engine, arrow_part(0, range(50, 52)), durability=durability).ranges == {0: OffsetRange(0, 2)}
        assert ids_of(engine, 0) == [50, 51]
        assert ids_of(engine, 0, stream=OTHER.id) == [0, 1, 2, 3]
        assert engine.standing(OTHER.id).generation == 1

    def test_a_generation_only_goes_up(self, engine: LogEngine) -> None:
        engine.truncate_stream(generation(4))
        append(engine, arrow_part(0, range(2)))
        for number in (1, 3, 4):
            with pytest.raises(InvalidValue):
                engine.truncate_stream(generation(number))
        assert ids_of(engine, 0) == [0, 1]
        with pytest.raises(StreamNotFound):
            engine.truncate_stream(replace(STREAM, id=99, generation=2))

    def test_whoever_names_the_old_generation_is_told(self, engine: LogEngine) -> None:
        """Also where the new one has records under the same offsets."""
        append(engine, arrow_part(0, range(5)))
        assert ids_of(engine, 0, 0, 5, generation=1) == [0, 1, 2, 3, 4]
        engine.truncate_stream(generation(2))
        append(engine, arrow_part(0, range(70, 80)))
        with pytest.raises(Truncated):
            ids_of(engine, 0, 0, 5, generation=1)
        assert ids_of(engine, 0, 0, 5, generation=2) == [70, 71, 72, 73, 74]
        engine.release(STREAM.id, {0: 5}, generation=1)
        assert engine.starts(STREAM.id) == EMPTY, "a release of the old generation let go of the new one"
        engine.release(STREAM.id, {0: 10}, generation=2)
        with pytest.raises(OffsetGone):
            ids_of(engine, 0, 0, 5)

    def test_a_retry_of_what_was_truncated_is_told_so_and_leaves_no_trace(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(3)), producer="p", sequence=4)
        engine.truncate_stream(generation(2))
        assert append(engine, arrow_part(0, range(3)), producer="p", sequence=4) == Ack({}, "disk", duplicate=True)
        known = engine.known(STREAM.id, "p", 4)
        assert known is not None
        assert known.ranges == {}
        assert engine.heads(STREAM.id) == EMPTY
        assert append(engine, arrow_part(0, range(1)), producer="p", sequence=5).ranges == {0: OffsetRange(0, 1)}

    def test_what_is_appended_meanwhile_is_in_one_generation_or_in_the_other(self, engine: LogEngine) -> None:
        """Whole: what every way of appending put into the new generation is dense there from 0."""
        rows = engine.row_appender(STREAM.id, encode, STREAM.schema_version)

        def work(number: int) -> None:
            for n in range(30):
                if number == 0:
                    engine.truncate_stream(generation(n + 2))
                elif number == 1:
                    append(engine, *[arrow_part(s, range(n, n + 1)) for s in range(STREAMLETS)], durability="os")
                elif number == 2:
                    rows(n, "memory")
                else:
                    both = [
                        StreamAppend(each, [encoded_part(0, range(n, n + 1))], INGEST) for each in (STREAM.id, OTHER.id)
                    ]
                    engine.append_together(both, durability=DURABILITIES[n % 3])

        in_threads(4, work)
        assert engine.standing(STREAM.id).generation == 31
        for streamlet, head in engine.heads(STREAM.id).items():
            assert len(ids_of(engine, streamlet, 0, head, generation=31)) == head
        assert ids_of(engine, 0, stream=OTHER.id) == list(range(30)), "a truncation took from another stream"

    def test_whoever_waits_is_woken(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(50)))
        heads = engine.heads(STREAM.id)

        def work(number: int) -> None:
            if number:
                engine.truncate_stream(generation(2))
                return
            while engine.standing(STREAM.id).generation == 1:
                assert not engine.wait(STREAM.id, heads, DEADLINE_SECONDS)

        in_threads(2, work)
