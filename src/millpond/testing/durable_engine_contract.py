"""The contract of log engines that outlive their process: what must be there when one is opened again.

An engine is reopened as a pond does it: opened, then told of every stream and of what has settled of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest

from millpond.errors import OffsetGone
from millpond.log.engine import Ack, LogEngine, Part, StreamAppend
from millpond.model.definition import DURABILITIES, Durability, StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.testing.engine_contract import LogEngineContract
from millpond.testing.engine_records import (
    INGEST,
    OTHER,
    SCHEMA,
    STREAM,
    append,
    arrow_part,
    encoded_part,
    ids_of,
    in_threads,
    row_of,
    rows_of,
)


class Reopening:
    """An engine in a directory that can be closed and opened again."""

    def __init__(self, contract: LogEngineContract, directory: Path) -> None:
        self._contract = contract
        self._directory = directory
        self.engine: LogEngine | None = None

    def open(self, *streams: StreamDefinition, settled: Mapping[int, int] = MappingProxyType({})) -> LogEngine:
        """The engine, closed before if it was open, with these streams (or the usual two); `settled` is the boundary
        of the first."""
        self.close()
        self.engine = self._contract.open_engine(self._directory)
        for index, stream in enumerate(streams or (STREAM, OTHER)):
            self.engine.add_stream(stream, {} if index else settled)
        return self.engine

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
            self.engine = None


class DurableLogEngineContract(LogEngineContract):
    """What an engine owes that keeps its records on disk: the contract of all engines, and this after a reopen."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Reopening]:
        reopening = Reopening(self, tmp_path / "durable")
        yield reopening
        reopening.close()

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_everything_is_there_after_a_reopen(self, log: Reopening, durability: Durability) -> None:
        """I1: a clean close loses nothing, at any durability."""
        engine = log.open()
        for n in range(0, 40, 4):
            make = encoded_part if n % 8 else arrow_part
            append(engine, make(0, range(n, n + 4)), make(1, range(n, n + 1)), durability=durability)
        before = [rows_of(engine, s) for s in range(2)], engine.heads(STREAM.id), engine.starts(STREAM.id)
        for _ in range(2):
            engine = log.open()
            after = [rows_of(engine, s) for s in range(2)], engine.heads(STREAM.id), engine.starts(STREAM.id)
            assert after == before
        assert append(engine, arrow_part(0, range(40, 42))).ranges == {0: OffsetRange(40, 42)}
        engine = log.open()
        assert ids_of(engine, 0) == list(range(42))

    def test_retries_are_recognised_after_a_reopen(self, log: Reopening) -> None:
        """I2"""
        engine = log.open()
        first = append(engine, arrow_part(0, range(3)), encoded_part(1, range(2)), producer="p", sequence=4)
        append(engine, arrow_part(0, range(3, 5)), producer="p", sequence=5)
        for _ in range(3):
            engine = log.open()
            again = append(engine, arrow_part(0, range(3)), encoded_part(1, range(2)), producer="p", sequence=4)
            assert again.duplicate
            assert again.ranges == first.ranges
            assert engine.heads(STREAM.id) == {0: 5, 1: 2, 2: 0}

    def test_the_newest_of_many_appends_are_recognised_after_a_reopen(self, log: Reopening) -> None:
        """I2: whichever streamlets they went to, and however many came before them."""
        engine = log.open()
        sent = []
        for n in range(100):
            streamlets = [n % 3] if n % 4 else [0, 2]
            parts = [encoded_part(s, range(n * 10 + s, n * 10 + s + 1)) for s in streamlets]
            sent.append((n, parts, append(engine, *parts, producer="p", sequence=n, durability="os").ranges))
        heads = engine.heads(STREAM.id)
        engine = log.open()
        for n, parts, ranges in sent[-8:]:
            again = append(engine, *parts, producer="p", sequence=n)
            assert again.duplicate, n
            assert again.ranges == ranges, n
        assert engine.heads(STREAM.id) == heads

    def test_retries_are_recognised_after_release_and_reopen(self, log: Reopening) -> None:
        engine = log.open()
        first = append(engine, arrow_part(0, range(3)), producer="p", sequence=4)
        engine.release(STREAM.id, {0: 3})
        engine = log.open(settled={0: 3})
        again = append(engine, arrow_part(0, range(3)), producer="p", sequence=4)
        assert again.duplicate
        assert again.ranges == first.ranges
        assert engine.heads(STREAM.id)[0] == 3

    def test_appends_together_and_their_producer_are_there_after_a_reopen(self, log: Reopening) -> None:
        """Also once the first stream's records have been let go of."""
        engine = log.open()
        both = [
            StreamAppend(OTHER.id, [arrow_part(0, range(2))], INGEST),
            StreamAppend(STREAM.id, [encoded_part(0, range(3)), arrow_part(2, range(1))], INGEST),
        ]
        first = engine.append_together(both, durability="memory", producer="p", sequence=9)
        for _ in range(2):
            engine = log.open()
            assert engine.heads(STREAM.id) == {0: 3, 1: 0, 2: 1}
            assert ids_of(engine, 0, stream=OTHER.id) == [0, 1]
            known = engine.known(OTHER.id, "p", 9)
            assert known is not None
            assert known.ranges == first[0].ranges
            assert engine.known(STREAM.id, "p", 9) is None
            assert all(
                each.duplicate for each in engine.append_together(both, durability="disk", producer="p", sequence=9)
            )
        engine.release(STREAM.id, {0: 3, 2: 1})
        engine = log.open(settled={0: 3, 2: 1})
        assert all(each.duplicate for each in engine.append_together(both, durability="disk", producer="p", sequence=9))
        assert engine.heads(OTHER.id) == {0: 2}

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_a_truncated_generation_does_not_come_back(self, log: Reopening, durability: Durability) -> None:
        """Nor do its offsets; what its producers sent is still known."""
        engine = log.open()
        append(engine, arrow_part(0, range(40)), encoded_part(1, range(3)), durability=durability)
        append(engine, arrow_part(0, range(2)), producer="p", sequence=7, durability=durability)
        truncated = replace(STREAM, generation=2)
        engine.truncate_stream(truncated)
        append(engine, arrow_part(0, range(100, 103)), durability=durability)
        append(engine, arrow_part(1, range(200, 201)), producer="p", sequence=8, durability=durability)
        for _ in range(2):
            engine = log.open(truncated, OTHER)
            assert engine.heads(STREAM.id) == {0: 3, 1: 1, 2: 0}
            assert ids_of(engine, 0) == [100, 101, 102]
            assert append(engine, arrow_part(0, range(2)), producer="p", sequence=7).ranges == {}
            assert append(engine, arrow_part(0, range(2)), producer="p", sequence=8).ranges == {1: OffsetRange(0, 1)}
        # One that the log had not heard of: only the catalog had it.
        engine = log.open(replace(STREAM, generation=3), OTHER)
        assert engine.heads(STREAM.id) == {0: 0, 1: 0, 2: 0}
        assert append(engine, arrow_part(1, range(1)), producer="p", sequence=8) == Ack({}, "disk", duplicate=True)

    def test_what_was_released_may_come_back_but_never_under_another_offset(self, log: Reopening) -> None:
        """I3"""
        engine = log.open()
        append(engine, arrow_part(0, range(100)))
        engine.release(STREAM.id, {0: 60})
        engine = log.open(settled={0: 60})
        engine.release(STREAM.id, {0: 60})
        assert engine.heads(STREAM.id)[0] == 100
        assert ids_of(engine, 0, 60) == list(range(60, 100))
        engine.release(STREAM.id, {0: 100})
        engine = log.open(settled={0: 100})
        assert engine.heads(STREAM.id)[0] == 100
        assert append(engine, arrow_part(0, range(100, 101))).ranges == {0: OffsetRange(100, 101)}

    def test_a_boundary_ahead_of_the_log_decides_where_offsets_go_on(self, log: Reopening) -> None:
        """I3: a weaker durability lost a tail that had settled; its offsets are taken all the same."""
        engine = log.open()
        append(engine, arrow_part(0, range(10)))
        engine = log.open(settled={0: 25, 1: 5})
        engine.release(STREAM.id, {0: 25, 1: 5})
        assert engine.heads(STREAM.id) == {0: 25, 1: 5, 2: 0}
        assert append(engine, arrow_part(0, range(25, 26))).ranges == {0: OffsetRange(25, 26)}
        with pytest.raises(OffsetGone):
            ids_of(engine, 0, 9, 26)
        engine = log.open(settled={0: 25, 1: 5})
        assert ids_of(engine, 0, 25) == [25]
        assert engine.heads(STREAM.id) == {0: 26, 1: 5, 2: 0}

    def test_what_a_stream_without_an_archive_let_go_of_stays_gone(self, log: Reopening) -> None:
        """I6: nobody else knows where it begins. Its records do not come back, and its offsets go on."""
        kept = replace(STREAM, settle=None)
        engine = log.open(kept, OTHER)
        append(engine, arrow_part(0, range(100)), encoded_part(1, range(5)))
        engine.release(kept.id, {0: 60})
        for _ in range(2):
            engine = log.open(kept, OTHER)
            assert engine.starts(kept.id) == {0: 60, 1: 0, 2: 0}
            assert ids_of(engine, 0, 60) == list(range(60, 100))
        engine.release(kept.id, {0: 100, 1: 5})
        engine = log.open(kept, OTHER)
        assert engine.starts(kept.id) == {0: 100, 1: 5, 2: 0}
        assert append(engine, arrow_part(0, range(100, 101))).ranges == {0: OffsetRange(100, 101)}

    def test_schema_versions_are_kept_apart_after_a_reopen(self, log: Reopening) -> None:
        engine = log.open()
        append(engine, arrow_part(0, range(2)), encoded_part(1, range(2)))
        wider = pa.schema([*SCHEMA, pa.field("note", pa.string())])
        altered = replace(STREAM, schemas=(SCHEMA, wider))
        engine.alter_stream(altered)
        batch = pa.RecordBatch.from_pylist([{**row_of(2), "note": "new"}], schema=wider)
        append(engine, Part(0, 1, batch=batch))
        engine = log.open(altered, OTHER)
        assert [row["note"] for row in rows_of(engine, 0)] == [None, None, "new"]
        assert [row["note"] for row in rows_of(engine, 1)] == [None, None]

    def test_a_dropped_stream_does_not_hold_up_the_others(self, log: Reopening) -> None:
        engine = log.open()
        append(engine, arrow_part(0, range(5)))
        append(engine, arrow_part(0, range(5)), stream=OTHER)
        engine.drop_stream(STREAM.id)
        engine = log.open(OTHER)
        assert ids_of(engine, 0, stream=OTHER.id) == list(range(5))

    def test_concurrent_appends_are_there_after_a_reopen(self, log: Reopening) -> None:
        engine = log.open()
        acked: dict[int, int] = {}

        def produce(producer: int) -> None:
            for n in range(20):
                number = producer * 100 + n
                got = append(engine, encoded_part(0, range(number, number + 1)))
                acked[got.ranges[0].start] = number

        in_threads(8, produce)
        engine = log.open()
        assert {row["_offset"]: row["id"] for row in rows_of(engine, 0)} == acked
        assert sorted(acked) == list(range(160))
