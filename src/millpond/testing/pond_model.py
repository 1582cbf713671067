"""A pond as a list and a dict: what was sent, what was acknowledged how, and so what a pond must, may or must not hold.

Every record has an `id` of its own, so that a lost, a doubled and a changed one can be told apart. The model is told of
each append before it is sent and of its outcome; of settles, clean closes, kills and power cuts. `check` then compares
everything that a pond shows with it:

    what was promised is there, exactly once, at the offsets of its ack, with the values that were sent;
    an append whose outcome is not known, or whose durability did not cover the fault, is there whole or not at all;
    nothing else is there; offsets are dense from 0 in every streamlet, unless records may have expired;
    what was ingested before the stream's ttl is not there;
    `scan`, `read` and `get` agree.

After a check every unknown outcome is known: what was seen counts as acknowledged, what was not as lost for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from millpond.model.definition import Durability
from millpond.model.offsets import OffsetRange

Row = dict[str, Any]
SYSTEM = ("_streamlet", "_offset", "_ingest_time")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Ack(Protocol):
    """What `append` returns."""

    @property
    def durability(self) -> Durability: ...

    @property
    def duplicate(self) -> bool: ...

    @property
    def ranges(self) -> Mapping[int, OffsetRange]: ...


class Readable(Protocol):
    """The part of a stream that the model looks at."""

    @property
    def schema(self) -> pa.Schema: ...

    def status(self) -> Any: ...

    def scan(self, *, columns: Sequence[str]) -> pa.Table: ...

    def read(self, start: str) -> Iterable[pa.RecordBatch]: ...

    def get(self, key: Any, /, *, limit: int) -> pa.Table: ...


class Fate(Enum):
    """What is known of an append."""

    UNKNOWN = "unknown"  # under way, interrupted, or at the mercy of a fault: whole or not at all
    PROMISED = "promised"
    LOST = "lost"  # refused, or seen not to be there
    TRUNCATED = "truncated"  # discarded with all others; a retry is recognised if its first try is known
    EXPIRED = "expired"  # whatever became of it, it is too old to be seen


@dataclass
class Attempt:
    """One append. `safe`: on disk for certain, whatever its durability promised. `tries`: how often it was sent."""

    rows: list[Row]
    durability: Durability
    producer: str = ""
    sequence: int = 0
    fate: Fate = Fate.UNKNOWN
    ranges: dict[int, OffsetRange] = field(default_factory=dict)
    safe: bool = False
    tries: int = 0
    sure: bool = False  # of one that was truncated: it had been there
    sent_micros: list[int] = field(default_factory=list)  # of each try that may be the one that was kept

    def acked(self, ack: Ack) -> None:
        """The append was acknowledged."""
        if self.fate is Fate.TRUNCATED:
            if not ack.ranges:
                return  # a retry of what was discarded
            assert not self.sure, f"a retry of what was truncated was appended anew, at {ack.ranges}"
        tries = self.sent_micros
        self.sent_micros = tries[:-1] if ack.duplicate and len(tries) > 1 else tries[-1:]
        if self.fate is Fate.EXPIRED and ack.duplicate:
            return
        assert sum(len(r) for r in ack.ranges.values()) == len(self.rows), (ack, len(self.rows))
        if self.ranges:
            assert dict(ack.ranges) == self.ranges, f"a retry got {ack.ranges}, the first one {self.ranges}"
        self.fate, self.ranges = Fate.PROMISED, dict(ack.ranges)

    def truncated(self) -> None:
        """All records of the stream were discarded."""
        self.sure = self.fate is Fate.PROMISED or (self.fate is Fate.TRUNCATED and self.sure)
        self.fate, self.ranges = Fate.TRUNCATED, {}

    def refused(self) -> None:
        """The append failed with an error that says: nothing was kept of this try."""
        if self.tries == 1:
            self.fate = Fate.LOST

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows]


@dataclass
class StreamModel:
    """What one stream must hold. `exists` is None while a create or a drop is under way or was interrupted; `altering`
    are the columns that it has if an interrupted alteration took place."""

    name: str
    durability: Durability
    columns: list[str]
    streamlets: int = 1
    archived: bool = True
    exists: bool | None = True
    altering: list[str] | None = None
    generation: int = 1
    truncating: bool = False  # a truncation is under way or was interrupted
    ttl_micros: int | None = None  # only ever shortened, so that what has expired has for good
    shortening: int | None = None  # a ttl that an interrupted alteration may have set
    attempts: list[Attempt] = field(default_factory=list)

    def sending(
        self, rows: Sequence[Row], durability: Durability | None = None, producer: str = "", sequence: int = 0
    ) -> Attempt:
        """An append is about to be made."""
        attempt = Attempt([dict(row) for row in rows], durability or self.durability, producer, sequence)
        self.attempts.append(attempt)
        return attempt

    @property
    def rows(self) -> list[Row]:
        """The records that must be there, as they were sent."""
        return [row for attempt in self.attempts if attempt.fate is Fate.PROMISED for row in attempt.rows]

    def truncated(self) -> None:
        """Everything so far was discarded, and the next generation has begun."""
        self.generation, self.truncating = self.generation + 1, False
        for attempt in self.attempts:
            attempt.truncated()

    def expire(self, now_micros: int) -> int | None:
        """Let time take effect; the cutoff before which nothing is seen."""
        if self.ttl_micros is None:
            return None
        cutoff = now_micros - self.ttl_micros
        for attempt in self.attempts:
            seen = attempt.fate in (Fate.PROMISED, Fate.UNKNOWN)
            if seen and attempt.sent_micros and max(attempt.sent_micros) < cutoff:
                attempt.fate, attempt.ranges = Fate.EXPIRED, {}
        return cutoff

    def in_doubt(self, attempt: Attempt, cutoff: int | None) -> bool:
        """Whether it depends on which of its tries was kept if it has expired."""
        seen = attempt.fate in (Fate.PROMISED, Fate.UNKNOWN)
        return seen and cutoff is not None and bool(attempt.sent_micros) and min(attempt.sent_micros) < cutoff

    def settled(self) -> None:
        """Everything acknowledged so far is in the archive."""
        for attempt in self.attempts:
            attempt.safe = attempt.safe or attempt.fate is Fate.PROMISED

    def unsure(self, surviving: Sequence[Durability]) -> None:
        """A fault that only appends of these durabilities survive by their promise."""
        for attempt in self.attempts:
            if attempt.fate is Fate.PROMISED and not attempt.safe and attempt.durability not in surviving:
                attempt.fate, attempt.ranges = Fate.UNKNOWN, {}
            attempt.sure = attempt.sure and (attempt.safe or attempt.durability in surviving)

    def check(self, stream: Readable, *, resolve: bool = True, now_micros: int = 0) -> None:
        """Compare with the real stream; `resolve`: learn from it what was unknown."""
        self._check_generation(stream.status().generation, resolve)
        self._check_ttl(stream, resolve)
        cutoff = self.expire(now_micros)
        table = stream.scan(columns=[*stream.schema.names, *SYSTEM])
        self._check_columns(table.schema.names, resolve)
        found = _rows(table)
        by_id: dict[int, Row] = {}
        for row in found:
            assert row["id"] not in by_id, f"{self.name}: record {row['id']} is there twice"
            by_id[row["id"]] = row
        self._check_offsets(found)
        known = set()
        for row in found if cutoff is not None else ():
            assert row["_ingest_time"] >= _EPOCH + timedelta(microseconds=cutoff or 0), (
                f"{self.name}: {row} has expired"
            )
        for attempt in self.attempts:
            if self.in_doubt(attempt, cutoff) and not any(number in by_id for number in attempt.ids):
                if resolve:
                    attempt.fate, attempt.ranges = Fate.EXPIRED, {}
                continue
            if self._check_attempt(attempt, by_id, resolve):
                known.update(attempt.ids)
        assert set(by_id) == known, f"{self.name}: records that nobody sent: {sorted(set(by_id) - known)}"
        self._check_reads(stream, found)

    def _check_generation(self, found: int, resolve: bool) -> None:
        if self.truncating and found == self.generation + 1:
            self.truncated()
        elif resolve:
            self.truncating = False
        assert found == self.generation, f"{self.name}: generation {found}, expected {self.generation}"

    def _check_ttl(self, stream: Readable, resolve: bool) -> None:
        seconds = stream.status().ttl_seconds
        found = None if seconds is None else round(seconds * 1e6)
        assert found in (self.ttl_micros, self.shortening), f"{self.name}: ttl {found}, expected {self.ttl_micros}"
        if resolve:
            self.ttl_micros, self.shortening = found, None

    def _check_columns(self, names: list[str], resolve: bool) -> None:
        assert tuple(names[-3:]) == SYSTEM, names
        if self.altering is not None and names[:-3] == self.altering and resolve:
            self.columns, self.altering = self.altering, None
        elif resolve:
            self.altering = None
        assert names[:-3] in (self.columns, self.altering), f"{self.name}: {names}, expected {self.columns}"

    def _check_offsets(self, found: list[Row]) -> None:
        offsets: dict[int, list[int]] = {}
        for row in found:
            offsets.setdefault(row["_streamlet"], []).append(row["_offset"])
        for streamlet, each in sorted(offsets.items()):
            assert 0 <= streamlet < self.streamlets, f"{self.name}: streamlet {streamlet}"
            dense = range(len(each)) if self.ttl_micros is None else sorted(set(each))
            assert sorted(each) == list(dense), f"{self.name}/{streamlet}: offsets {sorted(each)}"

    def _check_attempt(self, attempt: Attempt, by_id: Mapping[int, Row], resolve: bool) -> bool:
        """Whether the append's records are there, which is checked to be all right."""
        there = [number for number in attempt.ids if number in by_id]
        if attempt.fate in (Fate.LOST, Fate.TRUNCATED, Fate.EXPIRED):
            assert not there, f"{self.name}: {there} are there, but the append was {attempt.fate.value}"
            return False
        if not there and attempt.fate is Fate.UNKNOWN:
            attempt.fate = Fate.LOST if resolve else Fate.UNKNOWN
            return False
        missing = sorted(set(attempt.ids) - set(there))
        promise = f"acknowledged at {attempt.durability}" if attempt.fate is Fate.PROMISED else "there only in part"
        assert not missing, f"{self.name}: {promise}, but {missing} of {attempt.ids} are missing"
        for row in attempt.rows:
            actual = {name: value for name, value in by_id[row["id"]].items() if name not in SYSTEM}
            expected = {column: row.get(column) for column in actual}
            assert _comparable(actual) == _comparable(expected), f"{self.name}: sent {expected}, found {actual}"
        ranges = self._ranges_of(attempt, by_id)
        if attempt.fate is Fate.PROMISED:
            assert ranges == attempt.ranges, f"{self.name}: acknowledged at {attempt.ranges}, found at {ranges}"
        attempt.fate, attempt.ranges = Fate.PROMISED, ranges
        return True

    def _ranges_of(self, attempt: Attempt, by_id: Mapping[int, Row]) -> dict[int, OffsetRange]:
        places: dict[int, list[int]] = {}
        for number in attempt.ids:
            places.setdefault(by_id[number]["_streamlet"], []).append(by_id[number]["_offset"])
        for streamlet, offsets in places.items():
            dense = list(range(offsets[0], offsets[0] + len(offsets)))
            assert offsets == dense, f"{self.name}/{streamlet}: one append's rows at {offsets}, not in order"
        return {streamlet: OffsetRange(offsets[0], offsets[-1] + 1) for streamlet, offsets in places.items()}

    def _check_reads(self, stream: Readable, found: list[Row]) -> None:
        read = [row for batch in stream.read("earliest") for row in _rows(batch)]
        assert _by_place(read) == _by_place(found), f"{self.name}: read and scan differ"
        last: dict[int, int] = {}
        for row in read:
            assert row["_offset"] > last.get(row["_streamlet"], -1), f"{self.name}: read out of order"
            last[row["_streamlet"]] = row["_offset"]
        # A few keys from both ends: the settled and the live half.
        for row in found[:2] + found[-2:]:
            got = [_comparable(each) for each in _rows(stream.get(row["id"], limit=10))]
            wanted = {name: value for name, value in _comparable(row).items() if not got or name in got[0]}
            assert got == [wanted], f"{self.name}: get({row['id']}) gave {got}"


@dataclass
class PondModel:
    """Every stream that was ever asked for, by name; a name that was dropped and made anew starts afresh."""

    streams: dict[str, StreamModel] = field(default_factory=dict)
    next_id: int = 0

    def new_ids(self, count: int) -> range:
        """Ids for so many records."""
        self.next_id += count
        return range(self.next_id - count, self.next_id)

    def closed_cleanly(self) -> None:
        """Everything acknowledged is on disk."""
        for stream in self.streams.values():
            stream.settled()

    def killed(self) -> None:
        """The process died; the system did not."""
        for stream in self.streams.values():
            stream.unsure(("disk", "os"))

    def power_cut(self) -> None:
        """The system died."""
        for stream in self.streams.values():
            stream.unsure(("disk",))

    def check(self, pond: Any, *, resolve: bool = True, now_micros: int = 0) -> None:
        """Compare with a real pond, which must be open. `resolve`: it was opened after the last fault, so what it
        shows is what became of every append whose outcome was not known."""
        names = {stream.name for stream in pond.streams()}
        for name, stream in list(self.streams.items()):
            exists = name in names if stream.exists is None else stream.exists
            assert exists == (name in names), f"{name}: exists {exists}, but the pond has {sorted(names)}"
            if resolve:
                stream.exists = exists
            if exists:
                stream.check(pond.stream(name), resolve=resolve, now_micros=now_micros)
            elif resolve:
                del self.streams[name]
            else:
                names.add(name)
        assert names == set(self.streams), f"streams that nobody made: {sorted(names - set(self.streams))}"


def _rows(data: pa.Table | pa.RecordBatch) -> list[Row]:
    rows: list[Row] = data.to_pylist()
    return rows


def _comparable(row: Row) -> Row:
    """NaN equals itself."""
    return {name: "NaN" if isinstance(value, float) and value != value else value for name, value in row.items()}


def _by_place(rows: Iterable[Row]) -> dict[tuple[int, int], Row]:
    return {(row["_streamlet"], row["_offset"]): _comparable(row) for row in rows}
