"""The contract of log engines as a test suite: subclass it, say how an engine is opened, and run it with pytest.

    class TestMyEngine(LogEngineContract):
        def open_engine(self, directory): return MyEngine(directory)

`LogEngineContract` holds what every engine owes: appending, letting go and the end here, the rest in the suites that it
is made of. `durable_engine_contract` holds what one owes that outlives its process. The engines that Millpond ships
pass the same suites. Not here: faults (see `FaultyStorage`), speed, and what the protocol leaves to the engine, such as
when memory is given back.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import MillpondError, OffsetGone, PondClosed, StaleSequence, StreamNotFound
from millpond.log.engine import Ack, LogEngine, Part, StreamAppend
from millpond.model.definition import DURABILITIES, Durability
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import IsNull
from millpond.model.rows import codec_of
from millpond.model.schema import stored_schema
from millpond.testing.engine_records import (
    DEADLINE_SECONDS,
    INGEST,
    OTHER,
    SCHEMA,
    STREAM,
    STREAMLETS,
    append,
    arrow_part,
    encoded_part,
    ids_of,
    in_threads,
    row_of,
    rows_of,
    submit,
)
from millpond.testing.read_contract import ReadContract
from millpond.testing.retry_contract import RetryContract
from millpond.testing.row_contract import RowAppenderContract
from millpond.testing.together_contract import TogetherContract
from millpond.testing.truncate_contract import TruncateContract


class LogEngineContract(RowAppenderContract, RetryContract, ReadContract, TogetherContract, TruncateContract, ABC):
    """What every log engine owes (I1, I2, K4, K9, E7)."""

    @abstractmethod
    def open_engine(self, directory: Path) -> LogEngine:
        """A new engine that keeps what it keeps, if anything, in `directory`."""

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[LogEngine]:
        engine = self.open_engine(tmp_path / "log")
        engine.add_stream(STREAM)
        engine.add_stream(OTHER)
        yield engine
        engine.close()

    # Appending.

    def test_offsets_are_dense_from_zero_per_streamlet(self, engine: LogEngine) -> None:
        """I2"""
        assert append(engine, arrow_part(0, range(3))).ranges == {0: OffsetRange(0, 3)}
        got = append(engine, arrow_part(0, range(3, 5)), encoded_part(2, range(5, 6)))
        assert got.ranges == {0: OffsetRange(3, 5), 2: OffsetRange(0, 1)}
        assert engine.heads(STREAM.id) == {0: 5, 1: 0, 2: 1}
        assert engine.heads(OTHER.id) == {0: 0}

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_an_ack_names_its_durability_and_is_readable_at_once(
        self, engine: LogEngine, durability: Durability
    ) -> None:
        """K4: read your own ack, at every durability."""
        for n in range(10):
            got = append(engine, arrow_part(1, range(n, n + 1)), durability=durability)
            assert got.durability == durability
            assert not got.duplicate
            assert ids_of(engine, 1, n, n + 1) == [n]

    def test_arrow_and_encoded_rows_mix_in_one_order(self, engine: LogEngine) -> None:
        at = 0
        for n, size in enumerate([1, 4, 1, 1, 30, 2, 1]):
            part = (encoded_part if n % 2 else arrow_part)(0, range(at, at + size))
            append(engine, part)
            at += size
        expected = [{**row_of(n), "_streamlet": 0, "_offset": n, "_ingest_time": INGEST} for n in range(at)]
        found = rows_of(engine, 0)
        for row in found:
            row["_ingest_time"] = round(row["_ingest_time"].timestamp() * 1e6)
        assert found == expected

    def test_an_append_is_all_or_nothing(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(2)))
        with pytest.raises(MillpondError):
            append(engine, arrow_part(0, range(2)), arrow_part(STREAMLETS, range(2)))
        assert engine.heads(STREAM.id) == {0: 2, 1: 0, 2: 0}
        assert append(engine, arrow_part(0, range(2, 3))).ranges == {0: OffsetRange(2, 3)}
        assert ids_of(engine, 0) == [0, 1, 2]

    def test_offsets_stay_dense_and_ordered_under_many_producers(self, engine: LogEngine) -> None:
        """I2, K9: every producer's records are in its order; a record is in one place, and the ack says which."""
        acked: list[list[tuple[int, int, int]]] = [[] for _ in range(8)]

        def produce(producer: int) -> None:
            for n in range(40):
                first = producer * 10_000 + n * 10
                streamlet = (producer + n) % STREAMLETS
                make = encoded_part if (producer + n) % 2 else arrow_part
                got = append(engine, make(streamlet, range(first, first + 1 + n % 3)), durability="os")
                offsets = got.ranges[streamlet]
                assert ids_of(engine, streamlet, offsets.start, offsets.stop) == list(range(first, first + 1 + n % 3))
                acked[producer] += [
                    (streamlet, offset, first + at) for at, offset in enumerate(range(offsets.start, offsets.stop))
                ]

        in_threads(8, produce)
        everything = {
            (streamlet, row["_offset"]): row["id"]
            for streamlet in range(STREAMLETS)
            for row in rows_of(engine, streamlet)
        }
        assert {(s, o): i for each in acked for s, o, i in each} == everything
        for streamlet, head in engine.heads(STREAM.id).items():
            assert sorted(o for s, o in everything if s == streamlet) == list(range(head))
        for each in acked:
            for streamlet in range(STREAMLETS):
                offsets = [offset for s, offset, _ in each if s == streamlet]
                assert offsets == sorted(offsets)

    def test_heads_show_whole_appends_and_only_what_can_be_read(self, engine: LogEngine) -> None:
        """E7, and heads are of one moment: appends that give every streamlet the same never show as uneven."""
        done = threading.Event()

        def produce() -> None:
            try:
                for n in range(60):
                    append(engine, *[arrow_part(s, range(n * 2, n * 2 + 2)) for s in range(STREAMLETS)])
            finally:
                done.set()

        def watch(_: int) -> None:
            finished = False
            while not finished:
                finished = done.is_set()
                heads = engine.heads(STREAM.id)
                assert len(set(heads.values())) == 1, heads
                for streamlet, head in heads.items():
                    assert ids_of(engine, streamlet, 0, head) == list(range(head))

        in_threads(3, lambda number: produce() if number == 0 else watch(number))
        assert engine.heads(STREAM.id) == dict.fromkeys(range(STREAMLETS), 120)

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_submits_are_told_of_and_appended_in_their_order(self, engine: LogEngine, durability: Durability) -> None:
        told: queue.SimpleQueue[tuple[Ack | None, BaseException | None]] = queue.SimpleQueue()
        last: object = None
        for n in range(50):
            parts = [arrow_part(1, range(2 * n, 2 * n + 2))] if n % 10 else []
            last = submit(engine, *parts, told=lambda *each: told.put(each), durability=durability, after=last)
        answers = [told.get(timeout=DEADLINE_SECONDS) for _ in range(50)]
        assert [error for _, error in answers] == [None] * 50
        assert {answer.durability for answer, _ in answers if answer is not None} == {durability}
        given = [answer.ranges[1] for answer, _ in answers if answer is not None and answer.ranges]
        assert sorted(given, key=lambda offsets: offsets.start) == [OffsetRange(n, n + 2) for n in range(0, 90, 2)]
        kept = [n for n in range(100) if n // 2 % 10]
        assert ids_of(engine, 1) == kept

    def test_what_is_submitted_after_a_failure_fails_as_well(self, engine: LogEngine) -> None:
        """Or has been told of as a retry, by an engine that remembers all."""
        for sequence in range(100):
            append(engine, arrow_part(0, range(1)), producer="p", sequence=sequence)
        told: queue.SimpleQueue[tuple[Ack | None, BaseException | None]] = queue.SimpleQueue()

        def tell(answer: Ack | None, error: BaseException | None) -> None:
            told.put((answer, error))

        first = submit(engine, arrow_part(0, range(1)), told=tell, producer="p", sequence=0)
        empty = submit(engine, told=lambda *_: None, after=first)
        submit(engine, arrow_part(1, range(1)), told=tell, after=empty)
        answers = [told.get(timeout=DEADLINE_SECONDS) for _ in range(2)]
        if answers[0][1] is None:
            assert answers[0][0] is not None
            assert answers[0][0].duplicate
            assert engine.heads(STREAM.id)[1] == 1
        else:
            assert [type(error) for _, error in answers] == [StaleSequence, StaleSequence]
            assert engine.heads(STREAM.id)[1] == 0

    def test_nothing_is_submitted_to_a_closed_log(self, tmp_path: Path) -> None:
        engine = self.open_engine(tmp_path / "closed")
        engine.add_stream(STREAM)
        engine.close()
        told: list[object] = []
        with pytest.raises(PondClosed):
            submit(engine, arrow_part(0, range(1)), told=lambda *each: told.append(each))
        assert told == []

    def test_streams_that_are_not_there_are_named(self, engine: LogEngine) -> None:
        with pytest.raises(StreamNotFound):
            engine.append(99, [arrow_part(0, range(1))], ingest_micros=INGEST, durability="disk")
        with pytest.raises(StreamNotFound):
            engine.heads(99)

    # Letting go.

    def test_what_is_released_is_gone_and_the_rest_stays(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(100)), arrow_part(1, range(10)))
        engine.release(STREAM.id, {0: 60})
        starts = engine.starts(STREAM.id)
        assert 0 <= starts[0] <= 60
        assert starts[1] == 0
        assert ids_of(engine, 0, 60) == list(range(60, 100))
        assert ids_of(engine, 1) == list(range(10))
        engine.release(STREAM.id, {0: 30})
        assert engine.starts(STREAM.id) == starts, "a release went back"
        engine.release(STREAM.id, {0: 100, 1: 10})
        assert engine.starts(STREAM.id) == engine.heads(STREAM.id) == {0: 100, 1: 10, 2: 0}
        with pytest.raises(OffsetGone):
            ids_of(engine, 0, 0, 10)
        with pytest.raises(OffsetGone):
            ids_of(engine, 0, 99, 100)
        assert engine.bytes_live(STREAM.id) == 0
        assert append(engine, arrow_part(0, range(100, 101))).ranges == {0: OffsetRange(100, 101)}
        assert ids_of(engine, 0, 100) == [100]

    def test_no_offset_under_a_boundary_is_given_out(self, engine: LogEngine) -> None:
        """I3: a stream that has settled before goes on where its archive ends."""
        settled = replace(STREAM, id=9, name="contract/settled")
        engine.add_stream(settled, {1: 40})
        assert engine.heads(settled.id) == engine.starts(settled.id) == {0: 0, 1: 40, 2: 0}
        assert append(engine, arrow_part(1, range(2)), stream=settled).ranges == {1: OffsetRange(40, 42)}
        assert ids_of(engine, 1, 40, stream=settled.id) == [0, 1]
        with pytest.raises(OffsetGone):
            ids_of(engine, 1, 39, stream=settled.id)

    def test_a_dropped_stream_is_forgotten_and_no_other(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(5)))
        append(engine, arrow_part(0, range(5)), stream=OTHER)
        engine.drop_stream(STREAM.id)
        for call in (
            lambda: engine.heads(STREAM.id),
            lambda: append(engine, arrow_part(0, range(1))),
            lambda: list(engine.read(STREAM.id, 0, OffsetRange(0, 1))),
        ):
            with pytest.raises(StreamNotFound):
                call()
        assert ids_of(engine, 0, stream=OTHER.id) == list(range(5))

    # Change of schema.

    def test_records_before_an_alteration_have_nulls_in_the_new_column(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(2)), encoded_part(1, range(2)))
        wider = pa.schema([*SCHEMA, pa.field("note", pa.string())])
        engine.alter_stream(replace(STREAM, schemas=(SCHEMA, wider)))
        codec = codec_of(wider)
        encoded = codec.encode(codec.validate([{**row_of(3), "note": "encoded"}]))
        batch = pa.RecordBatch.from_pylist([{**row_of(2), "note": "arrow"}], schema=wider)
        append(engine, Part(0, 1, batch=batch), Part(1, 1, encoded=encoded))
        append(engine, arrow_part(0, range(4, 5), wider))
        assert [row["note"] for row in rows_of(engine, 0)] == [None, None, "arrow", None]
        assert [row["note"] for row in rows_of(engine, 1)] == [None, None, "encoded"]
        assert [row["id"] for row in rows_of(engine, 0)] == [0, 1, 2, 4]
        assert ids_of(engine, 0, predicate=IsNull("note")) == [0, 1, 4]
        for batch in engine.read(STREAM.id, 0, OffsetRange(0, 1)):
            assert batch.schema.equals(stored_schema(wider))

    # Waiting, and the end.

    def test_waiting_ends_with_an_append_or_with_time(self, engine: LogEngine) -> None:
        assert not engine.wait(STREAM.id, engine.heads(STREAM.id), 0.01)
        append(engine, arrow_part(1, range(1)))
        assert engine.wait(STREAM.id, {0: 0, 1: 0, 2: 0}, DEADLINE_SECONDS)
        heads = engine.heads(STREAM.id)
        append(engine, arrow_part(0, range(1)), stream=OTHER)
        assert not engine.wait(STREAM.id, heads, 0.01), "another stream's append woke it"

        def work(number: int) -> None:
            if number == 0:
                assert engine.wait(STREAM.id, heads, DEADLINE_SECONDS)
                assert engine.heads(STREAM.id)[2] == 1
            else:
                append(engine, encoded_part(2, range(1)))

        in_threads(2, work)

    def test_waiting_ends_with_a_close(self, tmp_path: Path) -> None:
        engine = self.open_engine(tmp_path / "closing")
        engine.add_stream(STREAM)
        heads = engine.heads(STREAM.id)

        def work(number: int) -> None:
            if number == 0:
                try:
                    assert not engine.wait(STREAM.id, heads, DEADLINE_SECONDS)
                except PondClosed:
                    return
            else:
                engine.close()

        in_threads(2, work)

    def test_sync_and_status_answer(self, engine: LogEngine) -> None:
        append(engine, arrow_part(0, range(100)), durability="memory")
        engine.sync()
        status = engine.status()
        assert status.refused == ""
        assert status.appended_bytes > 0

    def test_after_close_every_call_is_refused(self, tmp_path: Path) -> None:
        engine = self.open_engine(tmp_path / "closed")
        engine.add_stream(STREAM)
        append(engine, arrow_part(0, range(3)), durability="memory")
        engine.close()
        engine.close()
        calls: list[Callable[[], object]] = [
            lambda: append(engine, arrow_part(0, range(1))),
            lambda: engine.heads(STREAM.id),
            lambda: engine.starts(STREAM.id),
            lambda: list(engine.read(STREAM.id, 0, OffsetRange(0, 1))),
            lambda: engine.segments(STREAM.id),
            lambda: engine.release(STREAM.id, {0: 1}),
            lambda: engine.wait(STREAM.id, {}, 0.01),
            lambda: engine.append_together(
                [StreamAppend(STREAM.id, [arrow_part(0, range(1))], INGEST)], durability="os"
            ),
            lambda: engine.known(STREAM.id, "p", 1),
            lambda: engine.truncate_stream(replace(STREAM, generation=2)),
            lambda: engine.standing(STREAM.id),
            lambda: engine.add_stream(OTHER),
            engine.sync,
            engine.status,
        ]
        for call in calls:
            with pytest.raises(PondClosed):
                call()
