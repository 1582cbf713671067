"""A consumer: one instance of a program that processes a stream as a member of a group.

It talks to a `GroupDesk`, which is the pond's own or a connection's, and remembers what it was given, what of it was
iterated, and which numbers it used. `commit()` and `transaction()` cover exactly what was iterated so far, whatever
else was fetched.

A consumer that was expelled (paused for longer than its lease, say) is told so once, by `Fenced`, if it had iterated
something that is not committed: others may have that now, and work that was done on it must be thrown away. Otherwise
it joins again by itself.

For one thread; `close` may come from another. A thread of its own says now and then that the consumer is alive.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from types import TracebackType
from typing import Any

import pyarrow as pa

from millpond.consume.checks import plain_place
from millpond.consume.heartbeat import Heartbeat
from millpond.consume.processing import Processed, process
from millpond.consume.protocol import (
    Commit,
    Delivery,
    Done,
    Failed,
    GroupChange,
    GroupDesk,
    Join,
    Member,
    Outcome,
    Outputs,
    Receipt,
    Wanted,
)
from millpond.consume.transaction import Transaction, roll_back
from millpond.errors import Backpressure, Fenced, InvalidInput, InvalidValue, MillpondError, TransactionOver
from millpond.model.schema import OFFSET
from millpond.model.sizes import about_bytes
from millpond.model.units import Duration, Size, parse_bytes, parse_seconds

# What one call of the desk gives at most: little enough to go over a wire at once.
FETCH_ROWS, FETCH_BYTES = 65_536, 8_000_000
# So long a commit that nobody waits for may be put off while there is something to do.
OWED_SECONDS = 0.1

Where = str | int | datetime | Mapping[int, int]


class _Held:
    """A delivery that was fetched and is not iterated to its end."""

    __slots__ = ("at", "batch", "receipt")

    def __init__(self, delivery: Delivery) -> None:
        self.receipt, self.batch = delivery
        self.at = 0

    def take(self, rows: int) -> tuple[pa.RecordBatch, int | None]:
        """So many rows or all that are left, and up to where that is; None: to the end."""
        at, self.at = self.at, self.at + rows
        if self.at >= self.batch.num_rows:
            return (self.batch if at == 0 else self.batch.slice(at)), None
        part = self.batch.slice(at, rows)
        return part, part.column(OFFSET)[-1].as_py() + 1


class Consumer:
    """Get one from `pond.consumer(...)`; a context manager that closes it."""

    def __init__(self, desk: GroupDesk, asked: Join, *, heartbeat: bool = True) -> None:
        """`heartbeat=False`: the caller polls often enough, as tests do that own the time."""
        self._desk, self._asked = desk, asked
        self._fetched: deque[_Held] = deque()
        self._iterated: dict[int, Done] = {}
        self._piece: Done | None = None  # what `process` works on
        self._owed: dict[int, Done] = {}  # committed without waiting, not sent yet
        self._owed_since = 0.0
        self._number = 0  # of the last commit or abort
        self._unresolved: tuple[Commit, Outputs | None] | None = None
        self._closed = threading.Event()
        self._missed = 0
        self._receipt: Receipt | None = None
        self._member: Member | None = desk.join(asked)
        self._beat = Heartbeat(weakref.ref(self), asked.lease_seconds) if heartbeat else None

    def __repr__(self) -> str:
        spec = self._asked.spec
        state = ", closed" if self._closed.is_set() else ""
        return f"<millpond consumer {self.instance!r} of {spec.stream!r}, group {spec.group!r}{state}>"

    @property
    def instance(self) -> str:
        """Its name in the group."""
        return self._asked.instance

    @property
    def stream(self) -> str:
        return self._asked.spec.stream

    @property
    def group(self) -> str:
        return self._asked.spec.group

    @property
    def missed(self) -> int:
        """How many records this consumer was too late for: they expired, or were truncated away."""
        return self._missed

    @property
    def receipt(self) -> Receipt | None:
        """What the batch that was iterated last is: streamlet, offsets, and how often it was handed out in vain."""
        return self._receipt

    # Reading.

    def poll(
        self, *, max_records: int | None = None, max_bytes: Size = "64MB", timeout: Duration | None = "1s"
    ) -> Iterator[pa.RecordBatch]:
        """Batches of what is there for this consumer, with system columns, at most so many records and bytes in all.

        Waits up to `timeout` for the first one (None: for ever), and ends once it has caught up. The bytes are about:
        at least one record is given.
        """
        return self._poll(_bound(max_records), _bytes(max_bytes), _seconds(timeout))

    def _poll(self, rows: int, size: int, wait: float) -> Iterator[pa.RecordBatch]:
        while rows > 0 and size > 0:
            held = self._next(rows, size, wait)
            if held is None:
                return
            batch, stop = held.take(rows)
            self._count(held, stop)
            rows -= batch.num_rows
            if rows:
                size -= about_bytes(batch)
            wait = 0.0
            yield batch

    def records(
        self, *, max_records: int | None = None, max_bytes: Size = "64MB", timeout: Duration | None = "1s"
    ) -> Iterator[dict[str, Any]]:
        """As `poll`, one record at a time, as a dict: a commit covers those that were iterated."""
        return self._each(_bound(max_records), _bytes(max_bytes), _seconds(timeout))

    def _each(self, rows: int, size: int, wait: float) -> Iterator[dict[str, Any]]:
        while rows > 0 and size > 0:
            held = self._next(rows, size, wait)
            if held is None:
                return
            wait = 0.0
            size -= about_bytes(held.batch)
            at = held.at
            for record in held.batch.slice(at).to_pylist():
                if rows == 0 or held.at != at or not self._fetched or self._fetched[0] is not held:
                    break  # it is enough, or the rest was given back meanwhile, or iterated by another poll
                at = held.at = at + 1
                rows -= 1
                self._count(held, None if held.at == held.batch.num_rows else record[OFFSET] + 1)
                yield record

    def _next(self, rows: int, size: int, wait: float) -> _Held | None:
        """What is to be iterated next."""
        fetched = self._fetched
        if fetched:
            return fetched[0]
        self._resolve()
        rows, size = min(rows, FETCH_ROWS), min(size, FETCH_BYTES)
        if self._owed:
            # Whoever has nothing to do has time for it.
            fetched.extend(map(_Held, self._ask(Wanted(rows, size))))
            if not fetched or time.monotonic() - self._owed_since > OWED_SECONDS:
                self._send_owed()
        while not fetched:
            seconds = min(wait, self._asked.lease_seconds / 3)
            fetched.extend(map(_Held, self._ask(Wanted(rows, size, seconds))))
            wait -= seconds
            if wait <= 0 or self._closed.is_set():
                break
        return fetched[0] if fetched else None

    def _ask(self, wanted: Wanted) -> Any:
        try:
            return self._desk.poll(self._joined(), wanted)
        except Fenced:
            unsure = bool(self._iterated or self._owed)
            self._forget()
            if unsure:
                raise
            return self._desk.poll(self._joined(), wanted)

    def _joined(self) -> Member:
        if self._closed.is_set():
            raise InvalidValue(f"{self!r} was closed", hint="pond.consumer(...) makes another")
        if self._member is None:
            self._member = self._desk.join(self._asked)
        return self._member

    def next_piece(self, max_records: int, timeout: Duration | None) -> pa.RecordBatch | None:
        """As the first batch of a poll, but nothing covers it except `commit_piece`: no `close` that comes from
        elsewhere while it is being worked on."""
        rows = _bound(max_records)
        held = self._next(rows, FETCH_BYTES, _seconds(timeout))
        if held is None:
            return None
        batch, stop = held.take(rows)
        self._piece = self._passed(held, stop)
        return batch

    def _count(self, held: _Held, stop: int | None) -> None:
        done = self._passed(held, stop)
        self._iterated[done.number] = done

    def _passed(self, held: _Held, stop: int | None) -> Done:
        receipt = held.receipt
        if self._receipt is not receipt:
            self._missed += receipt.missed
        self._receipt = receipt
        if stop is None:
            self._fetched.popleft()
        return Done(receipt.number, stop)

    # Committing.

    def commit(self, *, wait: bool = True) -> Outcome | None:
        """Everything iterated so far is processed: the group's position moves behind it, as safely as the consumer's
        durability says. None if there is nothing new. `Fenced`: this consumer was expelled, and nothing is
        committed.

        With `wait=False` this returns at once, and None; the position is written soon, for many commits at a time: by a
        poll that finds nothing or comes a tenth of a second later, by the next commit that waits, or by `close`. What
        goes wrong is told then. A consumer that dies before has not committed.
        """
        self._resolve()
        if not wait:
            if not self._owed:
                self._owed_since = time.monotonic()
            self._owed.update(self._iterated)
            self._iterated.clear()
            return None
        if not self._iterated and not self._owed:
            return None
        return self._send(self._next_commit(), None)

    def _next_commit(self, dead: tuple[Failed, ...] = ()) -> Commit:
        """Of everything that is processed."""
        self._iterated = self._owed | self._iterated
        self._owed = {}
        return Commit(self._number + 1, tuple(self._iterated.values()), dead)

    def _send_owed(self) -> None:
        """What was committed without waiting, and nothing else."""
        if self._owed:
            iterated, self._iterated = self._iterated, {}
            try:
                self._send(self._next_commit(), None)
            finally:
                self._iterated |= iterated if self._member is not None else {}

    def commit_with(self, outputs: Outputs | None, dead: tuple[Failed, ...] = ()) -> Outcome:
        """As `commit`, with what a transaction appends and the records that are given up on."""
        self._resolve()
        return self._send(self._next_commit(dead), outputs)

    def commit_piece(self, stop: int | None, outputs: Outputs | None, dead: tuple[Failed, ...] = ()) -> Outcome:
        """Commit what `next_piece` gave, up to an offset; None: all of it."""
        piece = self._piece
        if piece is None:
            raise Fenced(f"{self!r} has given back what it was working on", hint="throw away what was done; poll again")
        done = piece if stop is None else Done(piece.number, stop)
        outcome = self._send(Commit(self._number + 1, (done,), dead), outputs)
        if stop is None:
            self._piece = None
        return outcome

    def outputs(self) -> Outputs:
        """Where outputs are collected that `commit_piece` and `commit_with` take."""
        return self._desk.outputs()

    @property
    def in_doubt(self) -> bool:
        """Whether it is not known what became of the last commit. It is asked again before anything new."""
        return self._unresolved is not None

    def doubts(self, outputs: Outputs) -> bool:
        """Whether it is the commit of these outputs that is in doubt."""
        return self._unresolved is not None and self._unresolved[1] is outputs

    def _send(self, commit: Commit, outputs: Outputs | None) -> Outcome:
        doubted = self._unresolved is not None
        self._unresolved = (commit, outputs)
        try:
            outcome = self._desk.commit(self._joined(), commit, outputs)
        except Fenced:
            self._forget()
            raise
        except (InvalidInput, Backpressure) as error:
            # Refused: nothing of it happened. But what may have arrived once is only over if that is what is said, and
            # a number that was sent is never used for anything else.
            if not doubted or isinstance(error, TransactionOver):
                self._unresolved = None
                self._number = commit.number
            raise
        # Anything else leaves open what happened: it is asked again, word for word, before anything new.
        self._unresolved = None
        self._number = commit.number
        for done in commit.done:
            if self._iterated.get(done.number) == done:
                del self._iterated[done.number]
        return outcome

    def _resolve(self) -> None:
        """Find out what became of a commit that is in doubt."""
        if self._unresolved is None:
            return
        try:
            self._send(*self._unresolved)
        except MillpondError:
            if not self.in_doubt and self._member is not None:
                roll_back(self)  # it never happened: what it was made of comes again
            raise

    def transaction(self) -> Transaction:
        """Outputs to any number of streams and the position behind everything iterated so far, together or not at all:

            with consumer.transaction() as tx:
                tx.append("grid/bills", rows)

        It commits at the end of the block. If the block raises, nothing happens, and what is not committed is delivered
        again.
        """
        self._resolve()
        return Transaction(self, self._desk.outputs())

    def abort(self) -> None:
        """Forget what was iterated and not committed: it is delivered again."""
        self._drop()
        try:
            if self._unresolved is None:
                self._send_owed()
                number = self._number + 1
            else:
                # It may have happened; if not, it never will.
                number = self._unresolved[0].number
            self._desk.abort(self._joined(), number)
            self._number = number
            self._unresolved = None
        except BaseException:
            self._forget()  # to join anew gives everything back, whatever went wrong
            raise

    def rewind(self) -> None:
        """Be where the group's position is, with nothing in doubt and nothing owed."""
        self._resolve()
        if self._iterated or self._piece is not None:
            self.abort()
        else:
            self._send_owed()

    def process(
        self,
        function: Callable[..., Any],
        *,
        attempts: int = 3,
        max_records: int = 1_000,
        timeout: Duration | None = "1s",
        transaction: bool = False,
    ) -> Processed:
        """Call `function(batch)` for all there is, batch by batch, and commit each; with `transaction`,
        `function(batch, tx)`, whose outputs are committed with it. Ends when nothing came for `timeout` (None: never).

        A batch that raises is tried `attempts` times, then taken apart to find the records that do; such a record goes
        to the stream `<stream>/dead`, with the reason, and the group goes on. What was iterated before and is not
        committed is this function's too. If this raises (the disk is full, say), whatever is not committed comes again.
        """
        return process(self, function, attempts, max_records, timeout, transaction)

    # Places.

    def seek(self, to: Where) -> GroupChange:
        """Move the group to "earliest", "latest", an offset, {streamlet: offset} or a time of ingestion. Other members
        of the group are expelled and go on from there too."""
        self._resolve()
        change = self._desk.seek(self._joined(), plain_place(to))
        self._drop()
        self._owed.clear()
        return change

    def position(self) -> dict[int, int]:
        """Per streamlet the offset under which the group has processed everything."""
        self._send_owed()
        return self._desk.group(self.stream, self.group).positions

    def lag(self) -> dict[int, int]:
        """Per streamlet how many records the group has not processed."""
        self._send_owed()
        return self._desk.group(self.stream, self.group).lag

    # Its life.

    def alive(self) -> None:
        """Renew the lease. A consumer that was expelled finds out with what it does next."""
        member = self._member
        if member is not None and not self._closed.is_set():
            self._desk.renew(member)

    def _forget(self) -> None:
        """It is no member any more."""
        self._member = None
        self._number = 0
        self._unresolved = None
        self._drop()
        self._owed.clear()

    def _drop(self) -> None:
        """Forget what it was given and is not committed."""
        self._fetched.clear()
        self._iterated.clear()
        self._piece = None

    def close(self, *, commit: bool = True) -> None:
        """Leave the group. Commits what was iterated first, unless told not to; the rest is given back at once. May be
        called twice."""
        if self._closed.is_set():
            return
        try:
            if self._member is not None:
                if commit:
                    self.commit()
                elif self._unresolved is None:
                    self._send_owed()
        finally:
            self._closed.set()
            if self._beat is not None:
                self._beat.stop()
            if self._member is not None:
                self._desk.leave(self._member)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(commit=error is None)


def _bound(max_records: int | None) -> int:
    if max_records is None:
        return 2**62
    if isinstance(max_records, bool) or not isinstance(max_records, int) or max_records < 1:
        raise InvalidValue(f"at most {max_records!r} records", hint="max_records is 1 or more; leave it out for all")
    return max_records


# A poll's bounds are the same each time, and a poll is short.
@lru_cache(maxsize=256)
def _bytes(size: Size) -> int:
    return parse_bytes(size)


@lru_cache(maxsize=256)
def _seconds(timeout: Duration | None) -> float:
    return float("inf") if timeout is None else parse_seconds(timeout)
