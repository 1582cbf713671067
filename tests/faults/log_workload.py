"""A fixed workload on the embedded log, and what must be there after whatever interrupted it.

It appends at every durability, as Arrow and as encoded rows, to one streamlet and to several at once, with producers;
it rolls journal files, syncs, settles (syncs, then releases under a boundary that survives, as an archive would),
truncates and drops streams, closes, reopens and goes on. `Recorder` knows each append's outcome; `check` compares.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.errors import Backpressure, MillpondError
from millpond.log.embedded.engine import EmbeddedLog
from millpond.log.engine import Ack, Part, StreamAppend
from millpond.model.definition import Durability, StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.model.rows import codec_of
from millpond.settings import Settings
from millpond.storage import Storage
from millpond.testing import ManualClock
from millpond.testing.pond_model import Fate

SCHEMA = pa.schema([("id", pa.int64()), ("filling", pa.string())])
METERS = StreamDefinition(20, "grid/meters", (SCHEMA,), keys=("id",), streamlets=3)
ALARMS = StreamDefinition(21, "grid/alarms", (SCHEMA,), streamlets=1)
GONE = StreamDefinition(22, "grid/gone", (SCHEMA,), streamlets=2)
STREAMS = (METERS, ALARMS, GONE)
# Small enough that the workload rolls journal files; only `sync` and appends at `disk` make anything durable.
SETTINGS = Settings(segment_bytes=64_000, journal_file_bytes=64_000, flush_seconds=3_600, disk_reserve_bytes=0)


@dataclass
class Attempt:
    stream: int
    parts: dict[int, list[int]]
    durability: Durability
    fate: Fate = Fate.UNKNOWN
    ranges: dict[int, OffsetRange] = field(default_factory=dict)
    safe: bool = False
    producer: str = ""
    sequence: int = 0
    encoded: bool = False
    filling: int = 1
    group: int = 0  # those of one group, over 0, are there together or not at all
    truncated: bool = False


@dataclass
class Recorder:
    """What was sent and what came of it. `boundary` is what an archive would hold; `dropped` None: under way."""

    attempts: list[Attempt] = field(default_factory=list)
    boundary: dict[int, dict[int, int]] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)
    dropped: bool | None = False
    next_id: int = 0
    errors: list[BaseException] = field(default_factory=list)

    def killed(self) -> None:
        self._unsure(("disk", "os"))

    def power_cut(self) -> None:
        self._unsure(("disk",))

    def _unsure(self, surviving: tuple[Durability, ...]) -> None:
        for each in self.attempts:
            if each.fate is Fate.PROMISED and not each.safe and each.durability not in surviving:
                each.fate, each.ranges = Fate.UNKNOWN, {}

    def truncating(self, stream: StreamDefinition) -> StreamDefinition:
        """The catalog has a higher generation on record: nothing that was sent so far is ever seen again."""
        generation = self.generations[stream.id] = self.generations.get(stream.id, 1) + 1
        self.boundary.pop(stream.id, None)
        for each in self.attempts:
            if each.stream == stream.id:
                each.fate, each.ranges, each.truncated = Fate.LOST, {}, True
        return replace(stream, generation=generation)

    def all_safe(self) -> None:
        for each in self.attempts:
            each.safe = each.safe or each.fate is Fate.PROMISED


class LogWorkload:
    """Runs on `storage` in `directory`. `tolerant`: errors of the disk are met and the work goes on."""

    def __init__(self, directory: Path, storage: Storage, recorder: Recorder, *, tolerant: bool = False) -> None:
        self._directory, self._storage, self.recorder = directory, storage, recorder
        self._tolerant = tolerant
        self.log: EmbeddedLog | None = None

    def run(self) -> None:
        """All of it."""
        try:
            for phase in (self._first, self._second):
                with self._meeting_errors():
                    self.log = open_log(self._directory, self._storage, self.recorder)
                    phase()
                if self.log is not None:
                    with self._meeting_errors():
                        self.log.close()
                        self.recorder.all_safe()
                    self.log = None
        finally:
            if self.log is not None:  # a crash: threads must end, whatever the disk says
                with contextlib.suppress(BaseException):
                    self.log.close()

    @contextlib.contextmanager
    def _meeting_errors(self) -> Iterator[None]:
        try:
            yield
        except (MillpondError, OSError) as error:
            if not self._tolerant:
                raise
            self.recorder.errors.append(error)

    def _first(self) -> None:
        self.append(METERS, {0: 2})
        self.append(METERS, {0: 1, 1: 1, 2: 1}, encoded=True)
        self.append(ALARMS, {0: 1}, durability="os", encoded=True)
        self.append(METERS, {1: 3}, durability="memory")
        self.append(GONE, {0: 1, 1: 2})
        self.append(METERS, {2: 1}, producer="p", sequence=1)
        self.together([(ALARMS, {0: 2}), (METERS, {1: 1, 2: 2})], producer="t", sequence=1)
        self.together([(METERS, {0: 3}), (ALARMS, {0: 1})], durability="memory", encoded=True)
        self.append(ALARMS, {0: 2}, durability="memory", encoded=True)
        self.append(METERS, {0: 40}, filling=1_000)
        self.append(METERS, {0: 40, 1: 1}, filling=1_000, durability="os")
        self.append(ALARMS, {0: 1}, producer="q", sequence=7, encoded=True)
        self.settle(METERS)
        self.append(METERS, {0: 40}, filling=1_000, durability="memory")
        self.append(METERS, {1: 40}, filling=1_000)
        self.append(ALARMS, {0: 3}, durability="os")
        self.together([(ALARMS, {0: 1}), (GONE, {1: 1}), (METERS, {0: 30})], durability="os", filling=1_000)
        self.sync()
        self.retry()
        self.append(METERS, {0: 2, 2: 5}, producer="p", sequence=2)

    def _second(self) -> None:
        self.append(METERS, {0: 1}, encoded=True)
        self.append(METERS, {0: 60, 1: 30}, filling=1_000)
        self.together([(ALARMS, {0: 1}), (METERS, {0: 30, 2: 30})], filling=1_000, producer="t", sequence=2)
        self.drop()
        self.append(METERS, {0: 60}, filling=1_000, durability="os")
        self.settle(METERS)
        self.append(ALARMS, {0: 1}, durability="memory")
        self.append(ALARMS, {0: 1})
        self.retry()
        self.settle(ALARMS)
        self.append(METERS, {0: 1, 1: 1})
        self.append(METERS, {0: 30, 2: 1}, filling=1_000, durability="memory", producer="p", sequence=3)
        self.truncate(METERS)
        self.append(METERS, {0: 2}, durability="os")
        self.together([(ALARMS, {0: 1}), (METERS, {1: 2})], producer="t", sequence=3)
        self.append(METERS, {0: 60}, filling=1_000)
        self.truncate(ALARMS)
        self.append(ALARMS, {0: 2}, encoded=True)
        self.append(METERS, {2: 40}, filling=1_000, producer="p", sequence=4)
        self.settle(METERS)
        self.append(METERS, {1: 1})

    # The operations.

    def append(self, stream: StreamDefinition, sizes: dict[int, int], **how: Any) -> None:
        """So many records to each streamlet."""
        self.send(self._attempt(stream, sizes, **how))

    def together(
        self,
        appends: list[tuple[StreamDefinition, dict[int, int]]],
        *,
        producer: str = "",
        sequence: int = 0,
        **how: Any,
    ) -> None:
        """Appends to several streams as one."""
        group = len(self.recorder.attempts) + 1
        attempts = [self._attempt(stream, sizes, group=group, **how) for stream, sizes in appends]
        attempts[0].producer, attempts[0].sequence = producer, sequence
        self.send(*attempts)

    def _attempt(
        self, stream: StreamDefinition, sizes: dict[int, int], *, durability: Durability = "disk", **how: Any
    ) -> Attempt:
        ids = {}
        for streamlet, size in sizes.items():
            ids[streamlet] = list(range(self.recorder.next_id, self.recorder.next_id + size))
            self.recorder.next_id += size
        attempt = Attempt(stream.id, ids, durability, **how)
        self.recorder.attempts.append(attempt)
        return attempt

    def send(self, *attempts: Attempt) -> None:
        """Of one group, or only one."""
        with self._meeting_errors():
            try:
                answers = self._send(attempts)
            except Backpressure:
                for attempt in attempts:
                    attempt.fate = Fate.LOST
                raise
            for attempt, got in zip(attempts, answers, strict=True):
                if attempt.truncated and not got.ranges:
                    continue  # a retry of what was discarded, or, if its first stream was, of the whole group
                attempt.truncated = False
                if got.ranges or not got.duplicate:  # else a retry, of which only the first is told its offsets
                    assert not attempt.ranges or got.ranges == attempt.ranges, (attempt, got)
                    assert {s: len(r) for s, r in got.ranges.items()} == {s: len(i) for s, i in attempt.parts.items()}
                    attempt.ranges = got.ranges
                attempt.fate = Fate.PROMISED

    def _send(self, attempts: Sequence[Attempt]) -> list[Ack]:
        assert self.log is not None
        first = attempts[0]
        who: dict[str, Any] = {"producer": first.producer, "sequence": first.sequence, "durability": first.durability}
        appends = [
            StreamAppend(
                each.stream,
                [_part(streamlet, ids, each) for streamlet, ids in each.parts.items()],
                1_767_225_600_000_000 + each.parts[min(each.parts)][0],
            )
            for each in attempts
        ]
        if first.group:
            return self.log.append_together(appends, **who)
        ((stream, parts, ingest_micros, _),) = appends
        return [self.log.append(stream, parts, ingest_micros=ingest_micros, **who)]

    def retry(self) -> None:
        """Send the newest append of every producer again, those made together as they were."""
        newest = {each.producer: each for each in self.recorder.attempts if each.producer}
        for each in newest.values():
            whole = [other for other in self.recorder.attempts if other.group == each.group] if each.group else [each]
            if all(other.stream != GONE.id or not self.recorder.dropped for other in whole):
                self.send(*whole)

    def sync(self) -> None:
        assert self.log is not None
        with self._meeting_errors():
            self.log.sync()
            self.recorder.all_safe()

    def settle(self, stream: StreamDefinition) -> None:
        """Sync, let an archive take all there is, release."""
        assert self.log is not None
        with self._meeting_errors():
            heads = self.log.heads(stream.id)
            self.log.sync()
            self.recorder.all_safe()
            self.recorder.boundary[stream.id] = heads
            self.log.release(stream.id, heads)

    def truncate(self, stream: StreamDefinition) -> None:
        """As a pond does it: first on record, which is durable, then in the log."""
        assert self.log is not None
        with self._meeting_errors():
            self.log.truncate_stream(self.recorder.truncating(stream))

    def drop(self) -> None:
        assert self.log is not None
        with self._meeting_errors():
            self.recorder.dropped = True
            self.log.drop_stream(GONE.id)


def _part(streamlet: int, ids: list[int], attempt: Attempt) -> Part:
    rows = [{"id": n, "filling": "x" * attempt.filling} for n in ids]
    if attempt.encoded:
        codec = codec_of(SCHEMA)
        return Part(streamlet, len(ids), encoded=codec.encode(codec.validate(rows)))
    return Part(streamlet, len(ids), batch=pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


def open_log(directory: Path, storage: Storage, recorder: Recorder) -> EmbeddedLog:
    """Open as a pond does: streams with their boundaries, then an end of recovery."""
    log = EmbeddedLog.open(str(directory), storage=storage, clock=ManualClock(), settings=SETTINGS)
    try:
        for stream in STREAMS:
            if stream is not GONE or not recorder.dropped:
                now = replace(stream, generation=recorder.generations.get(stream.id, 1))
                log.add_stream(now, recorder.boundary.get(stream.id, {}))
        log.forget_unclaimed()
    except BaseException:
        with contextlib.suppress(BaseException):
            log.close()
        raise
    return log


def check(log: EmbeddedLog, recorder: Recorder) -> None:
    """What was promised is there once, at its offsets; the rest is there whole or not at all; nothing else is."""
    for stream in STREAMS:
        if stream is GONE and recorder.dropped:
            continue
        boundary = recorder.boundary.get(stream.id, {})
        found: dict[int, tuple[int, int]] = {}
        for streamlet, head in log.heads(stream.id).items():
            start = boundary.get(streamlet, 0)
            assert head >= start, f"{stream.name}/{streamlet}: head {head} under the boundary {start}"
            at = start
            for batch in log.read(stream.id, streamlet, OffsetRange(start, head)):
                for row in batch.to_pylist():
                    assert row["_offset"] == at, f"{stream.name}/{streamlet}: {row['_offset']} where {at} should be"
                    assert row["id"] not in found, f"{row['id']} is there twice"
                    assert set(row["filling"]) == {"x"}
                    found[row["id"]] = (streamlet, at)
                    at += 1
            assert at == head
        for attempt in [each for each in recorder.attempts if each.stream == stream.id]:
            _check_attempt(attempt, boundary, found)
        assert not found, f"{stream.name}: records that nobody sent: {found}"
    for group in {each.group for each in recorder.attempts if each.group}:
        whole = [each for each in recorder.attempts if each.group == group]
        left = [each for each in whole if (each.stream != GONE.id or not recorder.dropped) and not each.truncated]
        assert len({each.fate for each in left}) <= 1, f"there in part: {left}"


def _check_attempt(attempt: Attempt, boundary: dict[int, int], found: dict[int, tuple[int, int]]) -> None:
    if attempt.fate is Fate.PROMISED:
        for streamlet, ids in attempt.parts.items():
            for number, offset in zip(
                ids, range(attempt.ranges[streamlet].start, attempt.ranges[streamlet].stop), strict=True
            ):
                if offset >= boundary.get(streamlet, 0):
                    assert found.pop(number, None) == (streamlet, offset), f"{number} of {attempt} is missing"
        return
    there = [number for ids in attempt.parts.values() for number in ids if number in found]
    if attempt.fate is Fate.LOST:
        assert not there, f"{there} of {attempt} are there"
        return
    if not there:
        attempt.fate = Fate.LOST
        return
    for streamlet, ids in attempt.parts.items():
        places = [found.pop(number, None) for number in ids]
        assert None not in places, f"{attempt} is there in part"
        first = places[0][1]  # type: ignore[index]
        assert places == [(streamlet, first + at) for at in range(len(ids))], attempt
        attempt.ranges[streamlet] = OffsetRange(first, first + len(ids))
    attempt.fate = Fate.PROMISED
