"""The history of queries, in the stream `_pond/queries`: what was asked of each stream, and what that had to read.

A query only leaves a note in a queue that has an end; a thread of the background's puts what waits there on record. So
a query is never slower for it and never fails by it: a note that finds no room, or cannot be written, is dropped and
counted. Without a background notes wait until somebody asks for the history, or the pond is closed. Records are not
synced: a power cut may take the last ones.

Bounded: `query_history_max` records, none of them older than `query_history_seconds`, and a quarter more before the
oldest are let go of. The room is the streams' in equal shares, and what one does not need is the others': a stream that
is asked all day leaves the others their history. So some older records may have to outlast newer ones, and are then
written once more behind them; after a crash in between they are there twice, and count once.
`query_history_max=0` turns it off. Records hold predicates with their literals, which may tell
what somebody looked for: only who may administrate a stream is shown them.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.clock import Clock
from millpond.errors import MillpondError
from millpond.ingest import Ingest
from millpond.log.embedded.engine import EmbeddedLog
from millpond.model import predicate as predicates
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import ranges_between
from millpond.model.query_note import PREDICATE_BYTES_MAX, QueryNote
from millpond.model.schema import TIMESTAMP
from millpond.settings import Settings

QUERIES = StreamDefinition(
    id=4,
    name="_pond/queries",
    schemas=(
        pa.schema(
            [
                ("time", TIMESTAMP),
                ("stream", pa.string()),
                ("stream_id", pa.int64()),
                ("predicate", pa.string()),
                ("objects_read", pa.int64()),
                ("objects_total", pa.int64()),
                ("bytes_read", pa.int64()),
                ("bytes_total", pa.int64()),
            ]
        ),
    ),
    settle=None,
)
# Notes that wait to be written: those of a few seconds of a busy node.
WAITING_MAX = 4_096
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

logger = logging.getLogger(__name__)


class QueryHistory:
    """Thread-safe. `dropped`: notes that were not put on record, since this process has the pond open."""

    def __init__(self, log: EmbeddedLog, clock: Clock, settings: Settings) -> None:
        self._log, self._clock = log, clock
        self._kept_max, self._kept_seconds = settings.query_history_max, settings.query_history_seconds
        self._reserve_bytes = settings.disk_reserve_bytes
        self._waiting: deque[tuple[int, StreamDefinition, QueryNote]] = deque()
        self._lock = threading.Lock()
        self._ingest = Ingest(QUERIES)
        self.dropped = 0

    def note(self, definition: StreamDefinition, note: QueryNote) -> None:
        """A query was planned. Neither waits nor raises."""
        if not self._kept_max:
            return
        if len(self._waiting) >= WAITING_MAX or note.too_long:
            self.dropped += 1
        else:
            self._waiting.append((self._clock.now_micros(), definition, note))

    def write(self) -> None:
        """Put on record what waits. Does not raise."""
        with self._lock:  # also if nothing waits: another thread may have taken it, and not written it yet
            if not self._waiting:
                return
            taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                rows = [row for each in taken for row in _row(*each)]
                rows = rows if self._log.free_bytes() > self._reserve_bytes else []
                if rows:
                    now = self._clock.now_micros()
                    parts = self._ingest.prepare(rows, now)
                    self._log.append(QUERIES.id, parts, ingest_micros=now, durability="memory")
                    self._trim()
            except Exception as error:  # neither a query nor the end of the pond fails by its record
                _not_kept(error)
                rows = []
            self.dropped += len(taken) - len(rows)

    def read(self, stream_id: int | None = None) -> pa.Table:
        """The records, oldest first; those of one stream, if it is named."""
        self.write()
        found = self._kept(self._records())
        return found if stream_id is None else found.filter(pc.equal(found["stream_id"], stream_id))

    def _kept(self, records: pa.Table) -> pa.Table:
        """Those that are neither too old nor more than their stream's share, oldest first, each once."""
        fresh = records.filter(pc.greater_equal(records["time"], self._oldest()))
        fresh = fresh.group_by(fresh.schema.names, use_threads=False).aggregate([]).sort_by("time")
        return fresh.filter(fair_share(np.asarray(fresh["stream_id"]), self._kept_max)).cast(QUERIES.schema)

    def _records(self) -> pa.Table:
        batches = [
            batch.select(QUERIES.schema.names)
            for streamlet, offsets in self._ranges().items()
            for batch in self._log.read(QUERIES.id, streamlet, offsets)
        ]
        return pa.Table.from_batches(batches, QUERIES.schema)

    def _ranges(self) -> dict[int, Any]:
        return ranges_between(self._log.starts(QUERIES.id), self._log.heads(QUERIES.id))

    def _oldest(self) -> pa.Scalar:
        oldest = self._clock.now_micros() - int(self._kept_seconds * 1_000_000)
        return pa.scalar(max(0, oldest), TIMESTAMP)

    def _trim(self) -> None:
        """Let go of what is too old or too much; looked for once there is a quarter more than may be kept."""
        for offsets in self._ranges().values():
            if len(offsets) > self._kept_max + self._kept_max // 4:
                records = self._records()
                kept = self._kept(records)
                if kept.equals(records.slice(records.num_rows - kept.num_rows)):
                    self._log.release(QUERIES.id, {0: offsets.stop - kept.num_rows})
                    continue
                now = self._clock.now_micros()
                parts = self._ingest.prepare(kept, now)
                self._log.append(QUERIES.id, parts, ingest_micros=now, durability="memory")
                self._log.release(QUERIES.id, {0: offsets.stop})


def fair_share(owners: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.bool_]:
    """Which of these to keep, oldest first, if there is room for so many: the newest of each owner, up to one and the
    same number, which is the largest for which there is room."""
    _, owner, counts = np.unique(owners, return_inverse=True, return_counts=True)
    each, room = most, most
    for done, count in enumerate(np.sort(counts).tolist()):
        each = room // (len(counts) - done)
        if count > each:
            break
        each, room = max(each, count), room - count
    order = np.argsort(owner, kind="stable")
    after = np.empty(len(owners), np.int64)  # how many newer ones its owner has
    after[order] = np.repeat(np.cumsum(counts), counts) - 1 - np.arange(len(owners))
    keep: npt.NDArray[np.bool_] = after < max(each, 1)
    keep[np.flatnonzero(keep)[: max(0, int(np.count_nonzero(keep)) - most)]] = False  # more owners than room
    return keep


def _row(at_micros: int, definition: StreamDefinition, note: QueryNote) -> list[dict[str, Any]]:
    """The record of a note, if it is one to keep."""
    try:
        text = predicates.encode(note.predicate)
    except Exception as error:  # the others are kept
        _not_kept(error)
        return []
    if len(text) > PREDICATE_BYTES_MAX:
        return []
    return [
        {
            "time": _EPOCH + timedelta(microseconds=at_micros),
            "stream": definition.name,
            "stream_id": definition.id,
            "predicate": text.decode(),
            "objects_read": note.objects_read,
            "objects_total": note.objects_total,
            "bytes_read": note.bytes_read,
            "bytes_total": note.bytes_total,
        }
    ]


def _not_kept(error: Exception) -> None:
    expected = isinstance(error, MillpondError | OSError)
    logger.log(logging.DEBUG if expected else logging.ERROR, "queries were not put on record: %s", error)
