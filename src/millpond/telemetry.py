"""What is measured: plain counts and histograms, kept by whoever does the work and read when somebody asks.

No registry, no labels, no global state: an instrument is a value that its owner holds, and `Telemetry` says where a
pond's are. Names, help texts and Prometheus are the business of `millpond.serve`.

Threads: a `Counter` or a `Histogram` is changed by one thread at a time, its owner's or one that holds its owner's
lock, so changing it takes no lock of its own. The shared ones have a lock. Any thread may read any of them at any time:
a reading may miss what happens meanwhile, but every number in it was true, and no counter goes back.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, repeat
from typing import NamedTuple, Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from millpond.errors import (
    DiskFull,
    Forbidden,
    InvalidRecord,
    JournalClosed,
    MemoryFull,
    MillpondError,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
)

# Upper bounds of buckets. Syncs take from 20 µs (memory of a drive) to seconds (a drive in trouble).
SYNC_SECONDS = (2e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
# From a follower on the same machine to one that has fallen far behind.
LATENCY_SECONDS = (1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# Settles and merges: from a handful of rows to a block on a slow disk.
SETTLE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
REQUEST_SECONDS = (2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
GROUP_APPENDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096)
GROUP_ROWS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
GROUP_BYTES = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864)

# Below this, looking for the buckets one by one is quicker than asking numpy.
_FEW = 16
# Kinds of requests that are told apart; what is beyond is counted under OTHER. Doors report routes, not paths, so this
# is reached only by a door that does not.
KINDS_MAX = 1_000
OTHER = "_other"

Seconds = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Counter:
    """Only goes up."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount


class Reading(NamedTuple):
    """A histogram at one moment: how many were at most each bound (the last one is infinite), and their sum."""

    bounds: tuple[float, ...]
    cumulative: tuple[int, ...]
    sum: float

    @property
    def total(self) -> int:
        """How many there were."""
        return self.cumulative[-1]


class Histogram:
    """Counts values by buckets whose upper bounds are fixed, included in them, and in order."""

    __slots__ = ("_edges", "bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(float(bound) for bound in bounds)
        self._edges = np.array(self.bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """`value`, so many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def observe_many(self, values: Seconds, counts: Counts | None = None) -> None:
        """Each of the values, once or as many times as `counts` says."""
        if len(values) <= _FEW:
            for value, count in zip(values.tolist(), repeat(1) if counts is None else counts.tolist(), strict=False):
                self.observe(value, count)
            return
        places = np.searchsorted(self._edges, values, side="left")
        found = np.bincount(places, counts, minlength=len(self.counts))
        for bucket in np.flatnonzero(found).tolist():
            self.counts[bucket] += int(found[bucket])
        self.sum += float(values.sum() if counts is None else values @ counts)

    def read(self) -> Reading:
        """Any thread."""
        return Reading(self.bounds, tuple(accumulate(list(self.counts))), self.sum)


class SharedHistogram:
    """A histogram that several threads observe."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._histogram, self._lock = Histogram(bounds), threading.Lock()

    def observe(self, value: float) -> None:
        with self._lock:
            self._histogram.observe(value)

    def read(self) -> Reading:
        with self._lock:
            return self._histogram.read()


class Tally:
    """Counts by a word, at most `KINDS_MAX` of them. Thread-safe. Words that are known before are there with zero: of a
    number that appears, nobody can tell by how much it has grown."""

    def __init__(self, *words: str) -> None:
        self._counts = dict.fromkeys(words, 0)
        self._lock = threading.Lock()

    def add(self, word: str, amount: int = 1) -> None:
        with self._lock:
            if word not in self._counts and len(self._counts) >= KINDS_MAX:
                word = OTHER
            self._counts[word] = self._counts.get(word, 0) + amount

    def error(self, error: BaseException) -> None:
        """Count an error by its code."""
        self.add(error.code if isinstance(error, MillpondError) else "internal")

    def read(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


class LogTelemetry:
    """The log's. The committer's thread owns what is about groups, writes and syncs; the keeper's what is about
    spilling."""

    def __init__(self) -> None:
        self.group_appends = Histogram(GROUP_APPENDS)
        self.group_rows = Histogram(GROUP_ROWS)
        self.group_bytes = Histogram(GROUP_BYTES)
        self.write_seconds = Histogram(SYNC_SECONDS)
        self.sync_seconds = Histogram(SYNC_SECONDS)  # of writes that sync in the same call, both
        self.write_failures = Counter()
        self.sync_failures = Counter()
        self.duplicates = Counter()
        self.spills = Counter()
        self.refused = Tally(*(kind.code for kind in (InvalidRecord, TooLarge, MemoryFull, DiskFull, JournalClosed)))
        self.recovery_seconds = 0.0
        self.recovered_bytes = 0


class Follower(Protocol):
    """A read that goes on as records arrive."""

    @property
    def closed(self) -> bool: ...


class ReadTelemetry:
    """What is read of one stream, by however many readers. Thread-safe: a lock is taken per batch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.batches, self.rows, self.bytes = Counter(), Counter(), Counter()
        self.buffered, self.processed = Histogram(LATENCY_SECONDS), Histogram(LATENCY_SECONDS)
        self._followers: WeakSet[Follower] = WeakSet()

    def follow(self, follower: Follower) -> None:
        """A follower is there, until it is closed or forgotten."""
        with self._lock:
            self._followers.add(follower)

    def read(self, rows: int, size: int) -> None:
        """A batch was handed out."""
        with self._lock:
            self.batches.add()
            self.rows.add(rows)
            self.bytes.add(size)

    def latency(self, stage: Histogram, seconds: Seconds, records: Counts) -> None:
        """So many records each reached a stage, `buffered` or `processed`, so long after they were ingested."""
        with self._lock:
            stage.observe_many(seconds, records)

    def latency_of(self, stage: Histogram, seconds: float, records: int) -> None:
        """As `latency`, for records that took equally long."""
        with self._lock:
            stage.observe(seconds, records)

    @property
    def followers(self) -> int:
        with self._lock:
            return sum(not each.closed for each in self._followers)


class GroupTelemetry(ReadTelemetry):
    """What a consumer group is handed, and what its members do. The group's lock is held while the counters change."""

    def __init__(self) -> None:
        super().__init__()
        self.commits, self.aborts = Counter(), Counter()
        self.expelled = Counter()  # members that were not heard of for their lease
        self.fenced = Counter()  # requests of those that were no members any more


class StreamTelemetry:
    """One stream's: what is read of it, and what of settling its status does not say. Settling holds its own lock."""

    def __init__(self) -> None:
        self.reading = ReadTelemetry()
        self.filtered = Counter()  # records that the stream's own filter left out
        self.settle_failures = Counter()
        self.merges = Counter()
        self.merge_failures = Counter()


class Telemetry:
    """A pond's instruments but for its streams', which the streams have."""

    def __init__(self, log: LogTelemetry | None = None) -> None:
        self.log = log or LogTelemetry()
        self.settle_seconds = SharedHistogram(SETTLE_SECONDS)
        self.merge_seconds = SharedHistogram(SETTLE_SECONDS)
        self.open_seconds = 0.0


class Requests:
    """Requests of one kind that ended the same way."""

    __slots__ = ("bytes_in", "bytes_out", "count", "seconds")

    def __init__(self, seconds: Histogram) -> None:
        self.count = self.bytes_in = self.bytes_out = 0
        self.seconds = seconds  # shared by all statuses and methods of a route


class RequestKind(NamedTuple):
    """`route` is the route's pattern or the name of a Flight call, never a path: each gets counters of its own."""

    door: str
    route: str
    method: str
    status: str | int


class RequestReading(NamedTuple):
    """Requests of one kind, at one moment."""

    kind: RequestKind
    answered: int
    bytes_in: int
    bytes_out: int


class DoorCounters:
    """What all doors report to. Thread-safe by one lock: its holder does a few additions, which takes less than a
    microsecond, so that even a door with an event loop may report from there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str, str, str | int], Requests] = {}
        self._seconds: dict[tuple[str, str], Histogram] = {}
        self._connections: dict[str, Callable[[], int]] = {}
        self._rejected = Tally(*(kind.code for kind in (Unauthenticated, Forbidden, TooManyRequests, TooLarge)))

    def request(
        self,
        door: str,
        route: str,
        method: str,
        status: str | int,
        seconds: float,
        bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> None:
        """A request was answered."""
        kind = (door, route, method, status)
        with self._lock:
            found = self._requests.get(kind)
            if found is None:
                found = self._new(kind)
            found.count += 1
            found.bytes_in += bytes_in
            found.bytes_out += bytes_out
            found.seconds.observe(seconds)

    def _new(self, kind: tuple[str, str, str, str | int]) -> Requests:
        if len(self._requests) >= KINDS_MAX:
            kind = (kind[0], OTHER, OTHER, OTHER)
        place = kind[:2]
        if place not in self._seconds:
            self._seconds[place] = Histogram(REQUEST_SECONDS)
        return self._requests.setdefault(kind, Requests(self._seconds[place]))

    def rejected(self, reason: str) -> None:
        """A request was turned away: `reason` is an error's code, or what else has a fixed set of words."""
        self._rejected.add(reason)

    def watch(self, door: str, connections: Callable[[], int]) -> None:
        """A door that knows how many connections it has. Asked from any thread; must be quick."""
        with self._lock:
            self._connections[door] = connections

    # For who asks.

    def requests(self) -> list[RequestReading]:
        with self._lock:
            return [
                RequestReading(RequestKind(*kind), each.count, each.bytes_in, each.bytes_out)
                for kind, each in self._requests.items()
            ]

    def seconds(self) -> dict[tuple[str, str], Reading]:
        """How long requests took, by door and route."""
        with self._lock:
            return {place: histogram.read() for place, histogram in self._seconds.items()}

    def rejections(self) -> dict[str, int]:
        return self._rejected.read()

    def connections(self) -> dict[str, int]:
        """Open ones, by door."""
        with self._lock:
            watched = dict(self._connections)
        return {door: connections() for door, connections in watched.items()}
