"""Notes of queries on their way to the node: in a thread of their own, a few at most, and dropped if they find no room.

A query that is planned here only leaves its note; whether the node takes it is no concern of the query's.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from millpond.errors import MillpondError
from millpond.model import predicate as predicates
from millpond.model.query_note import QueryNote
from millpond.wire.requests import NoteQuery

if TYPE_CHECKING:
    from millpond.client.connection import Connection

logger = logging.getLogger(__name__)

# Notes that wait; a node that answers at all takes thousands in a second.
WAITING_MAX = 256


class QueryNotes:
    """Thread-safe. The thread begins with the first note, and ends with the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: queue.Queue[tuple[str, int, QueryNote] | None] = queue.Queue(WAITING_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = False
        self.dropped = 0

    def add(self, stream: str, stream_id: int, note: QueryNote) -> None:
        """Send it soon. Neither waits nor raises."""
        if note.too_long:
            self.dropped += 1
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="millpond-notes", daemon=True)
                self._thread.start()
                self._connection.ends(self)
            if self._ended or self._waiting.full():
                self.dropped += 1
            else:
                self._waiting.put_nowait((stream, stream_id, note))

    def flush(self) -> None:
        """Blocks until what was added has been sent or given up."""
        self._waiting.join()

    def close(self) -> None:
        """The connection ends: what has not been sent is dropped."""
        with self._lock:
            # Where there is no room, the thread finds the connection closed.
            if self._thread is not None and not self._ended and not self._waiting.full():
                self._waiting.put_nowait(None)

    def _send_all(self) -> None:
        try:
            while self._send_next():
                pass
        finally:
            self._end()

    def _send_next(self) -> bool:
        """Whether there may be more."""
        each = self._waiting.get()
        try:
            if each is None:
                return False
            self._send(*each)
        except Exception as error:  # the next note may go
            self.dropped += 1
            expected = isinstance(error, MillpondError)
            logger.log(logging.DEBUG if expected else logging.ERROR, "a query was not put on record: %s", error)
        finally:
            self._waiting.task_done()
        return not self._connection.closed

    def _end(self) -> None:
        """Nobody sends any more: what waits is given up, so that nobody waits for it."""
        with self._lock:
            self._ended = True
            while not self._waiting.empty():
                self.dropped += self._waiting.get_nowait() is not None
                self._waiting.task_done()

    def _send(self, stream: str, stream_id: int, note: QueryNote) -> None:
        text = predicates.encode(note.predicate).decode()
        read, total = (note.objects_read, note.bytes_read), (note.objects_total, note.bytes_total)
        request = NoteQuery(
            stream,
            id=stream_id,
            predicate=text,
            objects_read=read[0],
            objects_total=total[0],
            bytes_read=read[1],
            bytes_total=total[1],
        )
        self._connection.ask(request, None, once=True)
