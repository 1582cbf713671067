"""Reading a stream from a place on: settled records first, then live ones, then, if asked, whatever arrives.

Every streamlet is given in the order of its offsets, without a gap and without a record twice, whatever settles
meanwhile. Between streamlets there is no order. The first round takes a snapshot and reads up to its heads, so that a
read without `follow` ends although writers go on; each further one takes the heads alone, which is quick, and never
favours a busy streamlet for long. Each round leaves out what has expired when it begins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import TracebackType

import pyarrow as pa

from millpond.errors import InvalidValue, PondClosed, Truncated
from millpond.log.keeper import release_unused
from millpond.model.offsets import Position, ranges_between
from millpond.model.predicate import Predicate
from millpond.model.schema import INGEST_TIME, OFFSET
from millpond.query.halves import Halves
from millpond.query.meter import ReadMeter
from millpond.query.ordered import Pace, read_in_order
from millpond.query.positions import Start, resolve
from millpond.query.projection import BATCH_BYTES_MAX, BATCH_ROWS_MAX, Projection, pieces
from millpond.query.snapshot import Snapshot
from millpond.query.terms import Where, both, is_never, ready

# How long a follower sleeps before it looks whether it was closed. New records wake it at once.
_LOOK_SECONDS = 0.2


def read(
    halves: Halves,
    start: Start = "earliest",
    *,
    follow: bool = False,
    columns: Sequence[str] | None = None,
    where: Where = None,
    batch_rows: int = BATCH_ROWS_MAX,
    limit: int | None = None,
    meter: ReadMeter | None = None,
    make: Callable[..., StreamReader] | None = None,
) -> StreamReader:
    """Batches from `start` on, with system columns unless `columns` says otherwise; at most `batch_rows` rows and
    about 8 MB each, `limit` rows in all. See `positions` for what `start` may be. `meter` measures what is read.
    `make`: another kind of reader."""
    check_bounds(batch_rows, limit)
    definition = halves.definition
    projection = Projection.of(definition, columns, system=True)
    predicate = ready(where, definition.schema)
    snapshot, position = _begin(halves, start)
    return (make or StreamReader)(
        halves,
        snapshot,
        position,
        projection,
        predicate,
        follow=follow,
        batch_rows=batch_rows,
        limit=limit,
        meter=meter,
    )


def _begin(halves: Halves, start: Start) -> tuple[Snapshot, dict[int, int]]:
    """A snapshot, and where in it to start. One that a truncation overtook is taken again."""
    while True:
        snapshot = halves.snapshot()
        try:
            position = resolve(halves, snapshot, start)
            halves.check_generation(snapshot.generation)
        except Truncated:
            if halves.generation == snapshot.generation:
                raise
        else:
            return snapshot, position


def check_bounds(batch_rows: int, limit: int | None) -> None:
    """`InvalidValue` unless batches and a read may be so large."""
    if limit is not None and limit < 0:
        raise InvalidValue(f"a limit of {limit}", hint="0 or more rows; leave it out for all")
    if not 1 <= batch_rows <= BATCH_ROWS_MAX:
        raise InvalidValue(f"batches of {batch_rows} rows", hint=f"batch_rows is 1 to {BATCH_ROWS_MAX}")


class StreamReader(Iterator[pa.RecordBatch]):
    """Made by `read`. One thread iterates; any thread may close. `position` may be stored and given as `start`."""

    def __init__(
        self,
        halves: Halves,
        snapshot: Snapshot,
        position: dict[int, int],
        projection: Projection,
        predicate: Predicate | None,
        *,
        follow: bool,
        batch_rows: int,
        limit: int | None = None,
        meter: ReadMeter | None = None,
    ) -> None:
        self._halves = halves
        self._generation = snapshot.generation
        self._position = position
        self._projection = projection
        self._predicate = predicate
        self._follow = follow
        self._batch_rows = batch_rows
        self._left = limit
        self._meter = meter
        self._reading = projection.reading(INGEST_TIME) if meter is not None and follow else projection.schema.names
        # About how large a batch may be; whoever serves it may want smaller ones.
        self.batch_bytes = BATCH_BYTES_MAX
        self._closed = threading.Event()
        self._pace = Pace()
        self._polling = threading.Lock()
        self._resting = False
        self._rounds = self._read_rounds(snapshot)
        if meter is not None and follow:
            meter.follow(self)

    @property
    def position(self) -> Position:
        """The next offset per streamlet: behind everything that was handed out, and behind what did not match."""
        return Position(self._position, self._generation)

    @property
    def schema(self) -> pa.Schema:
        return self._projection.schema

    def __next__(self) -> pa.RecordBatch:
        while not self._closed.is_set():
            with self._polling:
                batch = next(self._rounds)
            if batch is not None:
                return batch
        raise StopIteration

    def poll(self) -> pa.RecordBatch | None:
        """The next batch; None at the end, or, with `follow`, if nothing arrived for a moment. For callers who have
        something else to look at now and then; `closed` tells the two apart."""
        if self._closed.is_set():
            return None
        with self._polling:
            return next(self._rounds, None)

    def rest(self) -> None:
        """Let go of what is decoded and not handed out: it is read again, in narrow windows, by the next poll. From any
        thread; nothing while another one polls."""
        if not self._polling.acquire(blocking=False):
            return
        try:
            if not self._closed.is_set():
                self._resting = True
                self._rounds.close()
                self._pace = Pace()
                self._rounds = self._read_rounds(None)
                release_unused()
        finally:
            self._resting = False
            self._polling.release()

    @property
    def closed(self) -> bool:
        """Whether nothing will come any more."""
        return self._closed.is_set()

    def close(self) -> None:
        """End the iteration. A follower that waits in another thread ends within a moment."""
        self._closed.set()

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_rounds(self, snapshot: Snapshot | None) -> Generator[pa.RecordBatch | None]:
        """Batches; None when there was nothing new for a moment. No snapshot: it has rested, and is asked to go on."""
        try:
            if snapshot is None:
                if self._meter is not None:
                    self._meter.came_back()
                snapshot = self._take_snapshot()
            while True:
                try:
                    yield from self._read_generation(snapshot)
                    return
                except Truncated:
                    if not self._follow:
                        raise
                    snapshot = self._go_over()
        except PondClosed:
            if not self._follow:
                raise
        finally:
            if not self._resting:
                self._closed.set()

    def _read_generation(self, snapshot: Snapshot) -> Generator[pa.RecordBatch | None]:
        """Rounds until the end, or until there is another generation."""
        if snapshot.generation != self._generation:
            self._halves.check_generation(self._generation)
        yield from self._read_settled(snapshot)
        heads, cutoff = snapshot.heads, snapshot.cutoff_micros
        while not self._closed.is_set() and self._left != 0:
            yield from self._read_live(heads, cutoff)
            if not self._follow or self._left == 0:
                return
            while not self._closed.is_set():
                if self._halves.wait(self._read_to(), _LOOK_SECONDS):
                    break
                self._halves.check_generation(self._generation)
                yield None
                if self._holds_back:
                    break
            heads, cutoff = self._take_heads(), self._halves.cutoff_micros()

    def _go_over(self) -> Snapshot:
        """The stream was truncated: a follower goes on with the new generation, from its beginning."""
        snapshot = self._take_snapshot()
        while snapshot.generation != self._halves.generation:
            snapshot = self._take_snapshot()
        self._position = resolve(self._halves, snapshot, "earliest")
        self._generation = snapshot.generation
        return snapshot

    def _take_snapshot(self) -> Snapshot:
        return self._halves.snapshot()

    def _take_heads(self) -> Mapping[int, int]:
        return self._halves.heads(self._generation)

    def _read_to(self) -> Mapping[int, int]:
        """Up to where everything was read, handed out or not."""
        return self._position

    @property
    def _holds_back(self) -> bool:
        """Whether something that was read may become due although nothing arrives."""
        return False

    def _read_settled(self, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        names = self._reading
        settled = {} if is_never(self._predicate) else ranges_between(self._position, snapshot.boundary)
        wanted = both(self._predicate, snapshot.unexpired)
        for streamlet, batch in read_in_order(snapshot.settled, settled, names, wanted, self._pace):
            yield from self._hand_out(streamlet, batch)
            if self._left == 0:
                return
        for streamlet, offset in snapshot.boundary.items():
            self._position[streamlet] = max(self._position.get(streamlet, 0), offset)

    def _read_live(self, heads: Mapping[int, int], cutoff_micros: int | None) -> Iterator[pa.RecordBatch]:
        """What was live when the heads were taken, also if it has settled since."""
        names = self._reading if OFFSET in self._reading else [*self._reading, OFFSET]
        for streamlet, offsets in ranges_between(self._position, heads).items():
            for batch in self._halves.read_range(
                self._generation, streamlet, offsets, names, self._predicate, self._pace, cutoff_micros=cutoff_micros
            ):
                yield from self._hand_out(streamlet, batch)
                if self._left == 0:
                    return
            self._position[streamlet] = offsets.stop

    def _hand_out(self, streamlet: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for piece in pieces(batch, self._batch_rows, self.batch_bytes):
            if self._left is not None:
                piece = piece.slice(0, self._left)
                if not piece.num_rows:
                    return
                self._left -= piece.num_rows
            self._position[streamlet] = piece.column(OFFSET)[-1].as_py() + 1
            yield from self._give(piece)

    def _give(self, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._meter is None:
            yield self._projection.apply(piece)
        else:
            self._meter.handed_out(piece)
            try:
                yield self._projection.apply(piece)
            finally:
                self._meter.count(piece)
            self._meter.came_back()
