from __future__ import annotations

from pathlib import Path

import pytest

from millpond.errors import OffsetGone
from millpond.log.engine import LogEngine
from millpond.model.offsets import OffsetRange
from millpond.testing.engine_contract import STREAM, LogEngineContract, append, arrow_part
from millpond.testing.simple_log import SimpleLog


class TestSimpleLog(LogEngineContract):
    """The reference keeps the contract that it is the reference of."""

    def open_engine(self, directory: Path) -> LogEngine:
        return SimpleLog()


def test_a_release_in_the_middle_of_a_read_is_noticed_by_it() -> None:
    log = SimpleLog(batch_rows=3)
    log.add_stream(STREAM)
    append(log, arrow_part(0, range(10)))
    reading = log.read(STREAM.id, 0, OffsetRange(0, 10))
    assert next(reading).num_rows == 3
    log.release(STREAM.id, {0: 5})
    with pytest.raises(OffsetGone):
        next(reading)
