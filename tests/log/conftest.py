"""Logs for tests: small ones, opened again and again in one temporary directory and closed afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.log.embedded.engine import EmbeddedLog
from millpond.log.engine import Ack, Part
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.settings import Settings
from millpond.storage import LocalStorage
from millpond.storage.composed import ComposedAppendFile

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64()), ("pad", pa.string())])
SMALL = Settings(memory_bytes=16_000_000, segment_bytes=64_000, journal_file_bytes=200_000, disk_reserve_bytes=0)


def definition(stream_id: int = 20, **changes: Any) -> StreamDefinition:
    return StreamDefinition(
        **{"id": stream_id, "name": f"s{stream_id}", "schemas": (SCHEMA,), "keys": ("key",)} | changes
    )


def batch(start: int, rows: int = 500, pad: int = 60) -> pa.RecordBatch:
    numbers = range(start, start + rows)
    return pa.record_batch([[f"k{n % 97}" for n in numbers], list(numbers), ["x" * pad] * rows], schema=SCHEMA)


class Pool:
    """Opens logs in one directory and closes them."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.open_logs: list[EmbeddedLog] = []

    def __call__(self, *, settings: Settings = SMALL, streams: Any = None, storage: Any = None) -> EmbeddedLog:
        log = EmbeddedLog.open(self.directory, settings=settings, storage=storage)
        self.open_logs.append(log)
        for one, boundary in streams if streams is not None else [(definition(), {})]:
            log.add_stream(one, boundary)
        log.forget_unclaimed()
        return log


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    made = Pool(tmp_path / "pond")
    yield made
    for log in made.open_logs:
        log.close()


def append(log: EmbeddedLog, start: int, rows: int = 500, stream_id: int = 20, **options: Any) -> Ack:
    parts = [Part(0, rows, batch=batch(start, rows))]
    return log.append(stream_id, parts, **{"ingest_micros": 1_000 + start, "durability": "disk"} | options)


def numbers(log: EmbeddedLog, start: int, stop: int, stream_id: int = 20) -> list[int]:
    found = log.read(stream_id, 0, OffsetRange(start, stop), columns=["n"])
    return [n for each in found for n in each.column("n").to_pylist()]


def files(pool: Pool) -> list[str]:
    return sorted(os.listdir(os.path.join(pool.directory, "journal")))


class Failing(LocalStorage):
    """Storage whose journal file can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.write_error = self.sync_error = self.put_error = 0
        self.sync_errors_left = -1  # without end
        self.free = 10**12

    def create_append(self, path: str) -> Any:
        return self._wrap(super().create_append(path))

    def open_append(self, path: str) -> Any:
        return self._wrap(super().open_append(path))

    def put(self, path: str, data: Any, *, sync: bool = True) -> None:
        if self.put_error:
            raise OSError(self.put_error, os.strerror(self.put_error))
        super().put(path, data, sync=sync)

    def free_bytes(self, path: str) -> int:
        return self.free

    def _wrap(self, file: Any) -> Any:
        write, sync = file.write, file.sync

        def failing_write(buffers: Any) -> int:
            if error := self.write_error:  # read once: the test may change it meanwhile
                write([b"half a frame"])
                file._position -= len(b"half a frame")
                raise OSError(error, os.strerror(error))
            return int(write(buffers))

        def failing_sync() -> None:
            if (error := self.sync_error) and self.sync_errors_left:
                self.sync_errors_left -= 1
                raise OSError(error, os.strerror(error))
            sync()

        file.write, file.sync = failing_write, failing_sync
        file.write_synced = partial(ComposedAppendFile.write_synced, file)
        return file
