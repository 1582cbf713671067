"""The part of the log engine's contract that is about appends to several streams as one."""

from __future__ import annotations

import threading

import pytest

from millpond.errors import InvalidValue, MillpondError, StaleSequence, StreamNotFound
from millpond.log.engine import Ack, LogEngine, Part, StreamAppend
from millpond.model.definition import DURABILITIES, Durability, StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.testing.engine_records import (
    INGEST,
    OTHER,
    STREAM,
    STREAMLETS,
    append,
    arrow_part,
    encoded_part,
    ids_of,
    in_threads,
    rows_of,
)


def of(stream: StreamDefinition, *parts: Part, later: int = 0) -> StreamAppend:
    """One of the appends, at a fixed time and so many microseconds."""
    return StreamAppend(stream.id, parts, INGEST + later)


class TogetherContract:
    """What every engine owes to appends that are made together."""

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_appends_together_are_answered_each_in_their_order(self, engine: LogEngine, durability: Durability) -> None:
        append(engine, arrow_part(0, range(2)), stream=OTHER)
        got = engine.append_together(
            [
                of(OTHER, encoded_part(0, range(2, 3))),
                of(STREAM, arrow_part(0, range(3)), encoded_part(2, range(3, 4)), later=5),
                of(OTHER, arrow_part(0, range(3, 5))),
            ],
            durability=durability,
        )
        assert got == [
            Ack({0: OffsetRange(2, 3)}, durability),
            Ack({0: OffsetRange(0, 3), 2: OffsetRange(0, 1)}, durability),
            Ack({0: OffsetRange(3, 5)}, durability),
        ]
        assert ids_of(engine, 0, stream=OTHER.id) == [0, 1, 2, 3, 4]
        assert [ids_of(engine, s) for s in range(STREAMLETS)] == [[0, 1, 2], [], [3]]
        times = {row["_ingest_time"].timestamp() for s in (0, 2) for row in rows_of(engine, s)}
        assert [round(time * 1e6) for time in times] == [INGEST + 5]

    def test_one_append_that_is_refused_leaves_nothing_of_any(self, engine: LogEngine) -> None:
        good = of(OTHER, arrow_part(0, range(2)))
        for bad in (of(STREAM, arrow_part(STREAMLETS, range(2))), StreamAppend(99, [arrow_part(0, range(1))], INGEST)):
            with pytest.raises(MillpondError):
                engine.append_together([good, bad], durability="disk", producer="p", sequence=1)
        assert engine.heads(OTHER.id) == {0: 0}
        assert engine.known(OTHER.id, "p", 1) is None

    def test_readers_see_all_of_it_at_one_moment(self, engine: LogEngine) -> None:
        """Whoever sees a record of the stream that is looked at first finds its fellow in the other."""
        done = threading.Event()

        def produce() -> None:
            try:
                for n in range(60):
                    both = [of(STREAM, arrow_part(1, range(n, n + 1))), of(OTHER, encoded_part(0, range(n, n + 1)))]
                    engine.append_together(both if n % 2 else both[::-1], durability=DURABILITIES[n % 3])
            finally:
                done.set()

        def watch(number: int) -> None:
            looks = (STREAM.id, 1), (OTHER.id, 0)
            (first, one), (second, two) = looks if number == 1 else looks[::-1]
            finished = False
            while not finished:
                finished = done.is_set()
                seen = engine.heads(first)[one]
                assert engine.heads(second)[two] >= seen
                assert ids_of(engine, two, 0, seen, stream=second) == list(range(seen))

        in_threads(3, lambda number: produce() if number == 0 else watch(number))
        assert (engine.heads(STREAM.id)[1], engine.heads(OTHER.id)[0]) == (60, 60)

    def test_nothing_at_all_is_appended_without_a_trace(self, engine: LogEngine) -> None:
        assert engine.append_together([], durability="disk") == []
        empty = engine.append_together([of(STREAM), of(OTHER)], durability="os", producer="p", sequence=3)
        assert empty == [Ack({}, "os"), Ack({}, "os")]
        assert engine.known(STREAM.id, "p", 3) is None

    def test_streams_that_get_nothing_may_be_named(self, engine: LogEngine) -> None:
        got = engine.append_together([of(STREAM), of(OTHER, arrow_part(0, range(1)))], durability="disk")
        assert got == [Ack({}, "disk"), Ack({0: OffsetRange(0, 1)}, "disk")]

    def test_a_producer_is_remembered_with_the_first_stream(self, engine: LogEngine) -> None:
        """I2: whatever else is named, a retry is one, and leaves no trace in any stream."""
        both = [of(OTHER, arrow_part(0, range(2))), of(STREAM, arrow_part(0, range(3)))]
        first = engine.append_together(both, durability="disk", producer="p", sequence=4)
        assert [each.duplicate for each in first] == [False, False]
        again = engine.append_together(both, durability="disk", producer="p", sequence=4)
        assert again == [Ack({0: OffsetRange(0, 2)}, "disk", duplicate=True), Ack({}, "disk", duplicate=True)]
        assert append(engine, arrow_part(0, range(2)), stream=OTHER, producer="p", sequence=4).duplicate
        assert not append(engine, arrow_part(1, range(1)), producer="p", sequence=4).duplicate
        assert engine.heads(OTHER.id) == {0: 2}
        assert engine.heads(STREAM.id) == {0: 3, 1: 1, 2: 0}

    def test_a_producer_without_records_in_the_first_stream_is_refused(self, engine: LogEngine) -> None:
        with pytest.raises(InvalidValue):
            engine.append_together(
                [of(STREAM), of(OTHER, arrow_part(0, range(1)))], durability="disk", producer="p", sequence=1
            )
        assert engine.heads(OTHER.id) == {0: 0}

    def test_retries_together_at_the_same_moment_are_one(self, engine: LogEngine) -> None:
        for sequence in range(10):
            got: list[list[Ack]] = []

            def retry(_: int, sequence: int = sequence, got: list[list[Ack]] = got) -> None:
                both = [of(STREAM, arrow_part(0, range(2))), of(OTHER, arrow_part(0, range(1)))]
                got.append(engine.append_together(both, durability="disk", producer="p", sequence=sequence))

            in_threads(4, retry)
            assert {answers[0].ranges[0] for answers in got} == {OffsetRange(sequence * 2, sequence * 2 + 2)}
            assert sum(not answers[0].duplicate for answers in got) == 1
        assert (engine.heads(STREAM.id)[0], engine.heads(OTHER.id)[0]) == (20, 10)

    def test_what_is_known_is_told_without_an_append(self, engine: LogEngine) -> None:
        assert engine.known(STREAM.id, "p", 7) is None
        for durability in DURABILITIES:
            first = append(engine, arrow_part(0, range(2)), producer=durability, sequence=7, durability=durability)
            known = engine.known(STREAM.id, durability, 7)
            assert known is not None
            assert (known.ranges, known.duplicate) == (first.ranges, True)
            assert engine.known(STREAM.id, durability, 8) is None
            assert engine.known(OTHER.id, durability, 7) is None
        assert engine.heads(STREAM.id)[0] == 6
        with pytest.raises(StreamNotFound):
            engine.known(99, "p", 7)

    def test_what_is_too_old_to_be_known_is_refused_or_remembered(self, engine: LogEngine) -> None:
        first = append(engine, arrow_part(0, range(1)), producer="p", sequence=1)
        for sequence in range(2, 200):
            append(engine, arrow_part(0, range(1)), producer="p", sequence=sequence, durability="memory")
        try:
            known = engine.known(STREAM.id, "p", 1)
        except StaleSequence:
            return
        assert known is not None
        assert known.ranges == first.ranges
