"""The part of the log engine's contract that is about retries: what a producer sends again is kept once."""

from __future__ import annotations

from millpond.errors import StaleSequence
from millpond.log.engine import Ack, LogEngine
from millpond.model.offsets import OffsetRange
from millpond.testing.engine_records import OTHER, STREAM, append, arrow_part, encoded_part, in_threads


class RetryContract:
    """What every engine owes to a producer that numbers its appends (I2)."""

    def test_a_retry_gets_the_first_offsets(self, engine: LogEngine) -> None:
        """I2"""
        first = append(engine, arrow_part(0, range(3)), encoded_part(1, range(3, 4)), producer="p", sequence=1)
        append(engine, arrow_part(0, range(10, 12)), producer="p", sequence=2)
        again = append(engine, arrow_part(0, range(3)), encoded_part(1, range(3, 4)), producer="p", sequence=1)
        assert again.ranges == first.ranges
        assert (first.duplicate, again.duplicate) == (False, True)
        assert engine.heads(STREAM.id) == {0: 5, 1: 1, 2: 0}

    def test_producers_and_streams_do_not_know_each_others_sequences(self, engine: LogEngine) -> None:
        for producer in ("a", "b"):
            assert not append(engine, arrow_part(0, range(1)), producer=producer, sequence=0).duplicate
        assert not append(engine, arrow_part(0, range(1)), stream=OTHER, producer="a", sequence=0).duplicate
        assert engine.heads(STREAM.id)[0] == 2

    def test_retries_at_the_same_moment_are_one(self, engine: LogEngine) -> None:
        for sequence in range(10):
            got: list[Ack] = []

            def retry(_: int, sequence: int = sequence, got: list[Ack] = got) -> None:
                got.append(append(engine, arrow_part(0, range(2)), producer="p", sequence=sequence))

            in_threads(6, retry)
            assert {appended.ranges[0] for appended in got} == {OffsetRange(sequence * 2, sequence * 2 + 2)}
            assert sum(not appended.duplicate for appended in got) == 1

    def test_a_retry_is_recognised_after_its_records_are_released(self, engine: LogEngine) -> None:
        first = append(engine, arrow_part(0, range(3)), producer="p", sequence=5)
        engine.release(STREAM.id, {0: 3})
        assert append(engine, arrow_part(0, range(3)), producer="p", sequence=5).ranges == first.ranges
        assert engine.heads(STREAM.id)[0] == 3

    def test_an_old_retry_is_recognised_or_refused_but_never_taken_anew(self, engine: LogEngine) -> None:
        first = append(engine, arrow_part(0, range(1)), producer="p", sequence=1)
        for sequence in range(2, 300):
            append(
                engine, encoded_part(0, range(sequence, sequence + 1)), producer="p", sequence=sequence, durability="os"
            )
        heads = engine.heads(STREAM.id)
        try:
            again = append(engine, arrow_part(0, range(1)), producer="p", sequence=1)
        except StaleSequence:
            pass
        else:
            assert again.ranges == first.ranges
        assert engine.heads(STREAM.id) == heads
