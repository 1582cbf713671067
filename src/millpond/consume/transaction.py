"""Transactions as users hold them: a block at whose end everything in it happens, or nothing."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from millpond.consume.protocol import GroupDesk, Outcome, Outputs
from millpond.errors import InvalidValue, MillpondError
from millpond.log.engine import Ack

if TYPE_CHECKING:
    from millpond.consume.consumer import Consumer

logger = logging.getLogger(__name__)


class _Block:
    """Collects what is to be appended, until its end. For one thread, once."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._over = False

    def append(self, stream: str, rows: Any) -> int:
        """Append to a stream when the transaction commits; how many records. What does not fit is refused here."""
        self._check_open()
        return self._outputs.append(stream, rows)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def _check_open(self) -> None:
        if self._over:
            raise InvalidValue("the transaction is over", hint="begin another for what comes after it")


class Transaction(_Block):
    """Made by `Consumer.transaction`."""

    def __init__(self, consumer: Consumer, outputs: Outputs) -> None:
        super().__init__(outputs)
        self._consumer = consumer
        self.outcome: Outcome | None = None  # once it is committed

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


class OutputTransaction(_Block):
    """Appends to several streams, all or none, without a consumer: `pond.transaction()`."""

    def __init__(self, desk: GroupDesk) -> None:
        super().__init__(desk.outputs())
        self._desk = desk
        self._producer = f"transaction-{uuid4().hex}"
        self.acks: tuple[Ack, ...] = ()  # once it is committed, in the order of the appends

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
