"""Puts whose committer is slow to say what it did."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millpond.flight.putting import Putting
from millpond.wire.requests import Append
from tests.flight.conftest import STREAM, Node, readings


@pytest.mark.timeout(60)
def test_no_batch_is_held_back_for_ever(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that wait for a commit are submitted when it is done, whoever notices that first."""
    told = Putting.told

    def late(putting: Putting, slot: Any) -> None:
        threading.Event().wait(0.002)
        told(putting, slot)

    monkeypatch.setattr(Putting, "told", late)
    put = node.link().put(Append(STREAM))
    for _ in range(40):
        for n in range(5):
            put.write(readings(n))
        for _ in range(5):
            assert put.next_ack(15).ranges
    assert node.stream.count() == 200
