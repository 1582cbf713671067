"""The engines that Millpond ships pass the contract suites that it ships."""

from __future__ import annotations

from pathlib import Path

from millpond.log.embedded.engine import EmbeddedLog
from millpond.log.engine import LogEngine
from millpond.settings import Settings
from millpond.testing.durable_engine_contract import DurableLogEngineContract
from millpond.testing.engine_contract import LogEngineContract
from millpond.testing.simple_log import SimpleLog

# As small as they may be: segments are sealed and journal files rolled within a test.
SMALL = Settings(segment_bytes=64_000, journal_file_bytes=64_000)


class TestSimpleLog(LogEngineContract):
    """The reference in lists."""

    def open_engine(self, directory: Path) -> LogEngine:
        return SimpleLog(batch_rows=7)


class TestEmbeddedLog(DurableLogEngineContract):
    """The engine of one machine."""

    def open_engine(self, directory: Path) -> LogEngine:
        return EmbeddedLog.open(str(directory))


class TestEmbeddedLogInSmallPieces(DurableLogEngineContract):
    """The same with small segments and journal files."""

    def open_engine(self, directory: Path) -> LogEngine:
        return EmbeddedLog.open(str(directory), settings=SMALL)
