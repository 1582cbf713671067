"""The bytes of one file, in the process that has the pond open: where they are, and who appends which.

A position is given under the file's lock, together with the check of who may write and the append itself: so appends
of several writers never mix, positions have no gaps, and a writer that lost the file cannot slip in behind the check.
The end is remembered, and found again in the headers of the last event whenever the head is not where it was left.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.errors import Damaged, InvalidValue, NotAFile
from millpond.files.holding import Holding
from millpond.files.places import BODY, Places, end_of, headers_of
from millpond.files.protocol import FileLock, FilePlace
from millpond.ingest import Ingest
from millpond.ingest.bounds import check_numbered
from millpond.log.engine import Ack
from millpond.model.definition import Durability
from millpond.query import Halves

# Leases are neither so short that a busy machine loses them nor so long that a dead writer's file is out of reach.
LEASE_SECONDS_MIN, LEASE_SECONDS_MAX = 0.1, 3_600.0


@dataclass(frozen=True)
class _Tail:
    """Up to where the end is known: behind the event before `head`."""

    generation: int
    head: int
    position: int


class ByteFile:
    """One per stream, whether it is a file or not. Thread-safe."""

    def __init__(self, halves: Halves, clock: Clock, bytes_max: int) -> None:
        definition = halves.definition
        self._halves, self._clock, self._places = halves, clock, Places(halves)
        self._ingest = Ingest(replace(definition, file=False), bytes_max)
        self._lock = threading.Lock()
        self._holding = Holding(definition.name, clock)
        self._tail: _Tail | None = None

    def place(self, position: int | None) -> FilePlace:
        """Where a byte is; None: the end."""
        self._check_file()
        return self._places.place(position)

    def end(self, offset: int | None) -> int:
        """The position behind the event at an offset; None: behind the last one."""
        self._check_file()
        if offset is None:
            with self._lock:
                return self._found_tail().position
        definition = self._halves.definition
        if not 0 <= offset < self._halves.snapshot().heads[0]:
            raise InvalidValue(f"{definition.name} has no event {offset}", hint="one that was appended")
        found = end_of(self._halves, definition.generation, offset)
        if found is None:
            raise InvalidValue(f"event {offset} of {definition.name} is no longer kept", hint="ask for the end")
        return found

    def append(
        self,
        rows: Any,
        *,
        producer: str = "",
        sequence: int | None = None,
        durability: Durability | None = None,
        epoch: int | None = None,
    ) -> Ack:
        """Append bytes, all or nothing: pieces, or anything that raw events are given as, whose bodies they are."""
        self._check_file()
        check_numbered(producer, sequence)
        bodies = _bodies(self._ingest, rows)
        definition = self._halves.definition
        chosen = definition.durability if durability is None else durability
        with self._lock:
            self._holding.check(epoch)
            tail = self._found_tail()
            if not bodies:
                return Ack({}, chosen)
            now = self._clock.now_micros()
            events, at = [], tail.position
            for body in bodies:
                events.append({"headers": headers_of(at, len(body)), "body": body})
                at += len(body)
            ack = self._halves.log.append(
                definition.id,
                self._ingest.prepare(events, now),
                ingest_micros=now,
                durability=chosen,
                producer=producer,
                sequence=sequence or 0,
                schema_version=definition.schema_version,
            )
            if not ack.duplicate:
                self._tail = _Tail(tail.generation, ack.ranges[0].stop, at)
            return ack

    def lock(self, lease_seconds: float | None = None, epoch: int | None = None) -> FileLock:
        """Hold the file alone, for a lease or (None) until it is given back; or, with the epoch, go on holding it."""
        self._check_file()
        if lease_seconds is not None and not LEASE_SECONDS_MIN <= lease_seconds <= LEASE_SECONDS_MAX:
            raise InvalidValue(
                f"a lease of {lease_seconds:g} s", hint=f"{LEASE_SECONDS_MIN:g} to {LEASE_SECONDS_MAX:g} s"
            )
        with self._lock:
            return self._holding.take(lease_seconds) if epoch is None else self._holding.renew(epoch)

    def unlock(self, epoch: int) -> None:
        """Give the file back. Nothing if it was lost since."""
        with self._lock:
            self._holding.give_back(epoch)

    def _found_tail(self) -> _Tail:
        generation, log, id = self._halves.definition.generation, self._halves.log, self._halves.definition.id
        head = max(log.heads(id).get(0, 0), self._halves.archive.snapshot().boundary.get(0, 0))
        tail = self._tail
        if tail is None or (tail.generation, tail.head) != (generation, head):
            position = self._places.place(None).size if head else 0
            tail = self._tail = _Tail(generation, head, position)
        return tail

    def _check_file(self) -> None:
        definition = self._halves.definition
        if not definition.file:
            raise NotAFile(f"{definition.name} is a stream of records, no file", hint="pond.stream(name) opens it")


def _bodies(ingest: Ingest, rows: Any) -> list[bytes]:
    """The bytes to append, without what is empty."""
    if isinstance(rows, Sequence) and not isinstance(rows, bytes | str) and all(type(row) is bytes for row in rows):
        return [row for row in rows if row]
    if isinstance(rows, Mapping | bytes | bytearray | memoryview | str):
        rows = [rows]
    batch: pa.RecordBatch = ingest.to_batch(rows)
    return [body for body in batch.column(BODY).to_pylist() if body]


def contiguous(name: str, wanted: int, start: int, end: int) -> None:
    """`Damaged` unless an event that holds `start` to `end` holds the byte that is wanted."""
    if not start <= wanted < end:
        raise Damaged(
            f"{name} has no byte {wanted}: the event where it should be holds {start} to {end}",
            hint="bytes that expired while they were read are gone: seek to what is kept",
        )
