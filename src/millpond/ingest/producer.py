"""A producer: many small appends, batched by time and bytes, sent on without waiting, and never doubled.

Records go into a packet until it is full or old enough. Packets are numbered when they are first sent, go out in
order, several at a time, and are acknowledged in order. When the way to the stream breaks, everything that was not
acknowledged is sent again, in order, under the same numbers: the stream recognises what it has already.

Invariants: a number always means the same records. No more packets are under way than the stream remembers
(`log.producers.WINDOW`). What is held is bounded by `buffer`: `append` waits for room. A record that does not fit is
refused by `append` itself and harms no other. Every packet's future ends, with an acknowledgement or an error.

One with a name begins at the time, which is behind its last run's numbers if the clock was set back. So the first
packet goes alone: if it is refused for that, nothing is under way, and it gets a number behind those that were used.

What goes wrong with a way is told by who takes the acknowledgements, so it is always about the oldest packet.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any

from millpond.errors import (
    Backpressure,
    InvalidRecord,
    InvalidValue,
    MillpondError,
    PondClosed,
    StaleSequence,
    TooLarge,
    Unavailable,
)
from millpond.ingest.batching import Batching, OnError, ProducerFigures
from millpond.ingest.packet import Packet
from millpond.ingest.prepare import Ingest
from millpond.ingest.way import Session, Way, as_ours, pause_seconds
from millpond.log.engine import Ack
from millpond.log.producers import newest_named
from millpond.model.units import Duration, format_bytes, parse_seconds

logger = logging.getLogger(__name__)

# A way on which nothing was acknowledged for so long is given up and opened anew.
ANSWER_SECONDS_MAX = 60.0
# Writes that hang on ways that were given up. Each holds a thread and a connection until that is known to be dead.
_HANGING_MAX = 8
# Python's and our cost of holding one small record.
_RECORD_OVERHEAD_BYTES = 48


class Producer:
    """Made by `stream.producer(...)`. Thread-safe; a context manager that flushes and closes."""

    def __init__(
        self,
        name: str,
        first_sequence: int,
        ingest: Callable[[bool], Ingest],
        open_way: Callable[[str], Way],
        batching: Batching,
        *,
        retried: tuple[type[MillpondError], ...],
        on_error: OnError | None = None,
    ) -> None:
        """`ingest`: what checks records; True asks for one that knows of recent changes to the stream."""
        self.name = name
        self._sequence, self._ingest, self._open_way = first_sequence, ingest, open_way
        self._batching, self._retried, self._on_error = batching, retried, on_error
        self._changed = threading.Condition()
        self._open: Packet | None = None
        self._ready: deque[Packet] = deque()
        self._flying: deque[Packet] = deque()
        self._figures = ProducerFigures()
        self._held_bytes = 0
        self._first_error: MillpondError | None = None
        self._failing_since: float | None = None
        self._failures = 0
        self._feeling_its_way = first_sequence > 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"millpond-producer-{name}", daemon=True)
        self._thread.start()

    # For callers.

    def append(self, rows: Any) -> Future[Ack]:
        """Take a record, or several, in any form that `Stream.append` takes. Returns at once, unless the buffer is
        full: then it waits for room, and raises `Backpressure` if there is none in time.

        The future is that of the batch in which the records travel: its `Ack` names the offsets of the whole batch.
        Records that do not fit are refused here, by `InvalidRecord`, and nothing of this call is taken. Arrow data and
        frames are not copied: leave them as they are until the future is done.
        """
        ingest = self._ingest(False)
        try:
            records = ingest.compact(rows)
        except InvalidRecord:
            newer = self._ingest(True)
            if newer is ingest:
                raise
            ingest, records = newer, newer.compact(rows)
        count = len(records) if isinstance(records, list) else records.num_rows
        if not count:
            nothing: Future[Ack] = Future()
            nothing.set_result(Ack({}, ingest.definition.durability))
            return nothing
        if isinstance(records, list):
            size = sum(map(len, records)) + _RECORD_OVERHEAD_BYTES * count
        else:
            size = records.nbytes
        if size > self._batching.buffer_bytes:
            raise TooLarge(
                f"{format_bytes(size)} at once, into a buffer of {format_bytes(self._batching.buffer_bytes)}",
                hint="append it in parts, or give the producer a larger buffer",
            )
        with self._changed:
            self._wait_for_room(size)
            packet = self._packet_for(ingest, size)
            packet.add(records, count, size)
            self._held_bytes += size
            self._figures.records += count
            self._figures.records_pending += count
            if packet.bytes >= self._batching.batch_bytes:
                self._seal()
            return packet.future

    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until everything appended so far is acknowledged. Raises the first error since the last flush, and
        `Unavailable` if it takes longer than `timeout`; sending goes on then."""
        limit = None if timeout is None else time.monotonic() + parse_seconds(timeout)
        with self._changed:
            self._seal()
            waiting = [*self._flying, *self._ready]
            while any(not packet.done for packet in waiting):
                left = None if limit is None else limit - time.monotonic()
                if left is not None and left <= 0:
                    rows = sum(packet.rows for packet in waiting if not packet.done)
                    raise Unavailable(f"{rows:,} records are not acknowledged yet", hint="flush again, or wait longer")
                self._changed.wait(left)
            error, self._first_error = self._first_error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Flush, and let go of the connection. Takes no more records. May be called twice."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            self._thread.join()

    @property
    def figures(self) -> ProducerFigures:
        """What was done so far."""
        with self._changed:
            return replace(self._figures, bytes_pending=self._held_bytes, batches_in_flight=len(self._flying))

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<millpond producer {self.name!r}>"

    # Filling; with the lock held.

    def _wait_for_room(self, size: int) -> None:
        limit = time.monotonic() + self._batching.wait_seconds
        while self._held_bytes + size > self._batching.buffer_bytes and not self._closing:
            self._seal()
            left = limit - time.monotonic()
            if left <= 0:
                raise Backpressure(
                    f"{self._figures.records_pending:,} records wait to be acknowledged, and the buffer of "
                    f"{format_bytes(self._batching.buffer_bytes)} is full",
                    hint="append more slowly, or give the producer a larger buffer",
                )
            self._changed.wait(left)
        if self._closing:
            raise PondClosed("the producer is closed", hint="make another one: stream.producer()")

    def _packet_for(self, ingest: Ingest, size: int) -> Packet:
        packet = self._open
        if packet is not None and (packet.ingest is not ingest or packet.bytes + size > self._batching.batch_bytes):
            self._seal()
            packet = None
        if packet is None:
            packet = self._open = Packet(ingest, time.monotonic())
            self._changed.notify_all()
        return packet

    def _seal(self) -> None:
        if self._open is not None and self._open.rows:
            self._ready.append(self._open)
            self._open = None
            self._changed.notify_all()

    # Sending. The producer's own thread looks after one way at a time; while it is open, two threads work on it.

    def _run(self) -> None:
        writers: list[threading.Thread] = []
        while self._wait_for_work():
            writers = [writer for writer in writers if writer.is_alive()]
            error: MillpondError | None
            if len(writers) >= _HANGING_MAX:
                error = Unavailable(
                    f"{len(writers)} connections let nothing through", hint="is the way there all right?"
                )
            else:
                session = Session()
                writers.append(self._started(self._write_all, session))
                self._started(self._receive_all, session)
                error = self._wait_for(session)
            if error is not None:
                self._after(error)

    def _started(self, work: Callable[[Session], None], session: Session) -> threading.Thread:
        thread = threading.Thread(target=work, args=(session,), name=f"millpond-{self.name}", daemon=True)
        thread.start()
        return thread

    def _wait_for(self, session: Session) -> MillpondError | None:
        with self._changed:
            self._changed.wait_for(lambda: session.ended)
            return session.error

    def _wait_for_work(self) -> bool:
        """Until there is something to send; False when there never will be."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._open or self._closing)
            return bool(self._ready or self._open)

    def _write_all(self, session: Session) -> None:
        """Whatever there is to send, for as long as the way holds. A write that blocks for ever, because nobody at the
        other end reads, holds this thread and nothing else: the way is given up when no acknowledgement comes."""
        way: Way | None = None
        try:
            way = self._open_way(self.name)
            while (packet := self._next(session, way)) is not None:
                way.write(packet.batch, packet.sequence)
                with self._changed:
                    session.written += 1
                    self._changed.notify_all()
        except Exception as error:
            with self._changed:
                session.write_error = as_ours(error)
                self._changed.notify_all()
        finally:
            if way is not None:
                way.close()

    def _next(self, session: Session, way: Way) -> Packet | None:
        """The next packet, now under way; None when this way has ended or has nothing left to do."""
        with self._changed:
            session.way = way
            self._changed.notify_all()
            while not session.ended:
                timeout = None
                if len(self._flying) < (1 if self._feeling_its_way else self._batching.max_in_flight):
                    now = time.monotonic()
                    if self._open is not None and now >= self._open.opened_seconds + self._batching.linger_seconds:
                        self._seal()
                    if self._ready:
                        if session.fits(self._ready[0]):
                            return self._take_off(now)
                        if not self._flying:
                            session.end()  # one way, one schema
                            self._changed.notify_all()
                            continue
                    elif self._open is not None:
                        timeout = self._open.opened_seconds + self._batching.linger_seconds - now
                    elif self._closing and not self._flying:
                        session.end()
                        self._changed.notify_all()
                        continue
                self._changed.wait(timeout)
        return None

    def _take_off(self, now: float) -> Packet:
        packet = self._ready.popleft()
        if packet.sends == 0:
            packet.sequence = self._sequence
            self._sequence += 1
        else:
            self._figures.retries += 1
        packet.sends += 1
        packet.sent_seconds = now
        self._flying.append(packet)
        if len(self._flying) == 1:
            self._changed.notify_all()  # from now on an answer is waited for
        return packet

    def _receive_all(self, session: Session) -> None:
        """Acknowledgements, in the order of packets, until the way ends or fails. What a write has failed of is told
        here, too, once everything that was written before has been answered."""
        limit = min(ANSWER_SECONDS_MAX, self._batching.give_up_seconds)
        try:
            while (way := self._answering(session, limit)) is not None:
                self._acknowledged(way.next_ack(limit), session)
        except Exception as error:
            with self._changed:
                session.end(as_ours(error))
                self._changed.notify_all()

    def _answering(self, session: Session, limit_seconds: float) -> Way | None:
        """The way, once there is something to be answered. A write that lasts half as long as an answer may is one that
        hangs, on a connection that lets nothing through; there is time for another one then. In one process none hangs:
        a write there is slow."""
        limit_seconds /= 2
        with self._changed:
            while not (session.ended or session.write_error or session.written > session.answered):
                left = None
                if self._flying and Unavailable in self._retried:
                    left = self._flying[0].sent_seconds + limit_seconds - time.monotonic()
                    if left <= 0:
                        raise Unavailable(
                            f"a write has not ended within {limit_seconds:g} s", hint="is the node there?"
                        )
                self._changed.wait(left)
            if session.ended:
                return None
            if session.written == session.answered:
                assert session.write_error is not None
                raise session.write_error
            return session.way

    def _acknowledged(self, ack: Ack, session: Session) -> None:
        error: MillpondError | None = None
        with self._changed:
            if session.ended:
                return  # it came too late: the packet is sent again, and recognised
            session.answered += 1
            packet = self._flying.popleft()
            rows = sum(map(len, ack.ranges.values())) + ack.filtered
            discarded = ack.duplicate and not ack.ranges  # by a truncation, after it was taken and before it was said
            if (ack.duplicate and packet.sends == 1) or (rows != packet.rows and not discarded):
                error = InvalidValue(
                    f"number {packet.sequence} of producer {self.name!r} was taken by {rows} other records",
                    hint="each producer has a name of its own; leave name out to get one",
                )
            self._failing_since, self._failures = None, 0
            self._feeling_its_way = False
            if error is None:
                packet.done = True
                self._held_bytes -= packet.bytes
                self._figures.records_acknowledged += packet.rows
                self._figures.records_pending -= packet.rows
                self._figures.batches_acknowledged += 1
                self._figures.duplicates += ack.duplicate
            self._changed.notify_all()
        if error is not None:
            self._fail([packet], error)
        else:
            packet.future.set_result(ack)

    # Failing.

    def _after(self, error: MillpondError) -> None:
        """A way has failed: what is to be sent again, what has failed for good, and when to go on. What the other end
        refuses is the oldest packet without an answer: it takes them in order."""
        with self._changed:
            oldest = self._flying[0] if self._flying else None
            self._ready.extendleft(reversed(self._flying))
            self._flying.clear()
        if isinstance(error, StaleSequence) and oldest is not None and self._number_anew(oldest, error):
            return
        if not isinstance(error, self._retried):
            self._failing_since, self._failures = None, 0  # the other end is there: it has said no
            self._give_up([oldest] if oldest is not None else None, error)
            return
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now if oldest is None else oldest.sent_seconds
        self._failures += 1
        away = now - self._failing_since
        if away >= self._batching.give_up_seconds:
            self._failing_since, self._failures = None, 0
            self._give_up(None, error, away)
            return
        pause = pause_seconds(self._failures, error)
        logger.debug("%s: %s; trying again in %.2f s", self.name, error.message, pause)
        time.sleep(min(pause, self._batching.give_up_seconds - away))

    def _number_anew(self, packet: Packet, error: StaleSequence) -> bool:
        """Once, before anything was acknowledged, and only for what was sent once: that was refused and not kept."""
        newest = newest_named(error)
        with self._changed:
            if not self._feeling_its_way or packet.sends != 1 or newest is None:
                return False
            self._feeling_its_way = False
            self._sequence = max(self._sequence, newest + 1)
            packet.sends = 0
            return True

    def _give_up(self, packets: list[Packet] | None, error: MillpondError, away: float | None = None) -> None:
        """Fail these packets, or (None) everything there is."""
        with self._changed:
            if packets is None:
                self._seal()
                packets = list(self._ready)
            for packet in packets:
                self._ready.remove(packet)
        if away is not None:
            rows = sum(packet.rows for packet in packets)
            error = type(error)(
                f"{rows:,} records were not acknowledged within {away:.0f} s: {error.message}", hint=error.hint
            )
        self._fail(packets, error)

    def _fail(self, packets: list[Packet], error: MillpondError) -> None:
        with self._changed:
            for packet in packets:
                packet.done = True
                self._held_bytes -= packet.bytes
                self._figures.records_failed += packet.rows
                self._figures.records_pending -= packet.rows
            self._first_error = self._first_error or error
            self._changed.notify_all()
        for packet in packets:
            packet.future.set_exception(error)
        if self._on_error is not None:
            try:
                self._on_error(error, sum(packet.rows for packet in packets))
            except Exception:  # it is the user's; the others' futures must end all the same
                logger.exception("the error callback of producer %s failed", self.name)


def name_and_start(name: str | None, now_micros: int) -> tuple[str, int]:
    """What a producer is called, and its first number. One without a name gets one that nobody else has; one that had
    the name before, at an earlier time, has used lower numbers."""
    return (f"producer-{uuid.uuid4().hex}", 0) if name is None else (name, now_micros)
