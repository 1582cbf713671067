"""Processing with dead letters: a batch that fails is tried again, then taken apart to find the records that fail.

What is taken apart stays in order: pieces are processed and committed one after the other, so that everything before a
failing record is committed when the record is given up on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.consume.protocol import Failed, Outputs
from millpond.consume.transaction import roll_back
from millpond.errors import Fenced, InvalidValue
from millpond.model.schema import OFFSET
from millpond.model.units import Duration

if TYPE_CHECKING:
    from millpond.consume.consumer import Consumer

logger = logging.getLogger(__name__)


@dataclass
class Processed:
    """What `Consumer.process` did: records that were processed, batches among them that had failed at first, and
    records that went to the dead letters."""

    records: int = 0
    failures: int = 0
    dead: int = 0


class Step:
    """What a function appends to in place of a transaction: committed with the batch that it was called for."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    def append(self, stream: str, rows: Any) -> int:
        """Append to a stream when the batch is committed; how many records."""
        return self._outputs.append(stream, rows)


def process(
    consumer: Consumer,
    function: Callable[..., Any],
    attempts: int,
    max_records: int,
    timeout: Duration | None,
    transaction: bool,
) -> Processed:
    """See `Consumer.process`."""
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise InvalidValue(f"attempts={attempts!r}", hint="1 or more")
    done = Processed()
    try:
        consumer.rewind()
        while True:
            batch = consumer.next_piece(max_records, timeout)
            if batch is None:
                return done
            try:
                _Piece(consumer, function, attempts, transaction, done).run(batch)
            except Fenced as error:
                # Others have it now; nothing of it was committed here. What comes next is the next thing to do.
                logger.info("%s", error.message)
    except BaseException:
        # What is not committed must never be taken for processed by what the consumer does next.
        roll_back(consumer)
        raise


class _Piece:
    """One batch, whole or in pieces."""

    def __init__(
        self, consumer: Consumer, function: Callable[..., Any], attempts: int, transaction: bool, done: Processed
    ) -> None:
        self._consumer, self._function, self._attempts = consumer, function, attempts
        self._transaction, self._done = transaction, done
        self._end = 0

    def run(self, batch: pa.RecordBatch) -> None:
        """Process it, whatever it takes."""
        self._end = _stop(batch)
        error = self._tried(batch, self._attempts)
        if error is not None:
            self._done.failures += 1
            self._take_apart(batch, error)

    def _commit(self, batch: pa.RecordBatch, outputs: Outputs | None, dead: tuple[Failed, ...] = ()) -> None:
        stop = _stop(batch)
        self._consumer.commit_piece(None if stop == self._end else stop, outputs, dead)

    def _take_apart(self, batch: pa.RecordBatch, error: Exception) -> None:
        if batch.num_rows == 1:
            self._give_up(batch, error)
            return
        middle = batch.num_rows // 2
        for part in (batch.slice(0, middle), batch.slice(middle)):
            # Where it is the record's own turn, it has as many attempts as a batch.
            failure = self._tried(part, self._attempts if part.num_rows == 1 else 1)
            if failure is not None:
                self._take_apart(part, failure)

    def _tried(self, batch: pa.RecordBatch, attempts: int) -> Exception | None:
        """None once it is processed and committed; otherwise the last thing that went wrong."""
        failure: Exception | None = None
        for _ in range(attempts):
            outputs = self._consumer.outputs() if self._transaction else None
            try:
                if outputs is None:
                    self._function(batch)
                else:
                    self._function(batch, Step(outputs))
            except Exception as error:  # whatever it is: it is the function's, and the record's fate
                failure = error
                logger.debug("processing failed", exc_info=True)
                if outputs is not None:
                    outputs.discard()
                continue
            self._commit(batch, outputs)
            self._done.records += batch.num_rows
            return None
        return failure

    def _give_up(self, batch: pa.RecordBatch, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        offset = _stop(batch) - 1
        receipt = self._consumer.receipt
        assert receipt is not None
        logger.warning("%s: offset %d is given up on: %s", self._consumer.stream, offset, reason)
        self._commit(batch, None, (Failed(receipt.number, offset, self._attempts, reason),))
        self._done.dead += 1


def _stop(batch: pa.RecordBatch) -> int:
    stop: int = batch.column(OFFSET)[-1].as_py() + 1
    return stop
