"""Transactions as users hold them: a block at whose end everything in it happens, or nothing."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from millpond.consume.protocol import GroupDesk, Outcome, Outputs
from millpond.errors import InvalidValue, MillpondError
from millpond.log.engine import Ack

if TYPE_CHECKING:
    from millpond.consume.consumer import Consumer

logger = logging.getLogger(__name__)


class Transaction:
    """Made by `Consumer.transaction`; for one thread, once."""

    def __init__(self, consumer: Consumer, outputs: Outputs) -> None:
        self._consumer, self._outputs = consumer, outputs
        self._over = False
        self.outcome: Outcome | None = None  # once it is committed

    def append(self, stream: str, rows: Any) -> int:
        """Append to a stream when the transaction commits; how many records. What does not fit is refused here."""
        _check_open(self._over)
        return self._outputs.append(stream, rows)

    def __enter__(self) -> Transaction:
        _check_open(self._over)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if error is not None:
            self._roll_back()
            return
        try:
            self.outcome = self._consumer.commit_with(self._outputs)
        except MillpondError:
            if not self._consumer.doubts(self._outputs):
                self._roll_back()
            raise
        self._outputs.discard()

    def _roll_back(self) -> None:
        self._outputs.discard()
        roll_back(self._consumer)


class OutputTransaction:
    """Appends to several streams, all or none, without a consumer: `pond.transaction()`. For one thread, once."""

    def __init__(self, desk: GroupDesk) -> None:
        self._desk, self._outputs = desk, desk.outputs()
        self._producer = f"transaction-{uuid4().hex}"
        self._over = False
        self.acks: tuple[Ack, ...] = ()  # once it is committed, in the order of the appends

    def append(self, stream: str, rows: Any) -> int:
        """Append to a stream when the transaction commits; how many records. What does not fit is refused here."""
        _check_open(self._over)
        return self._outputs.append(stream, rows)

    def __enter__(self) -> OutputTransaction:
        _check_open(self._over)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        try:
            if error is None:
                self.acks = self._desk.append_all(self._outputs, self._producer, 1)
        finally:
            self._outputs.discard()


def roll_back(consumer: Consumer) -> None:
    """As `abort`, where something else went wrong first: that is what the caller hears of."""
    try:
        consumer.abort()
    except MillpondError as failure:
        # It joins anew, which gives everything back.
        logger.info("a transaction was given up, and so was its consumer's membership: %s", failure.message)


def _check_open(over: bool) -> None:
    if over:
        raise InvalidValue("the transaction is over", hint="begin another for what comes after it")
