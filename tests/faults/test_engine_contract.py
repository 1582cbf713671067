"""The engines that Millpond ships pass the contract suites that it ships."""

from __future__ import annotations

from pathlib import Path

from millpond.log.engine import LogEngine
from millpond.testing.engine_contract import LogEngineContract
from millpond.testing.simple_log import SimpleLog


class TestSimpleLog(LogEngineContract):
    """The reference in lists."""

    def open_engine(self, directory: Path) -> LogEngine:
        return SimpleLog(batch_rows=7)
