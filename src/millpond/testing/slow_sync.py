"""Storage whose syncs take longer: what group commit is for shows only where a sync costs something."""

from __future__ import annotations

import time
from collections.abc import Sequence

from millpond.storage import AppendFile, Buffer, LocalStorage


class SlowSyncFile:
    """An `AppendFile` that waits before each sync."""

    def __init__(self, inner: AppendFile, delay_seconds: float) -> None:
        self._inner, self._delay_seconds = inner, delay_seconds

    @property
    def position(self) -> int:
        return self._inner.position

    def write(self, buffers: Sequence[Buffer]) -> int:
        return self._inner.write(buffers)

    def sync(self) -> None:
        if self._delay_seconds:
            time.sleep(self._delay_seconds)
        self._inner.sync()

    def write_synced(self, buffers: Sequence[Buffer]) -> int:
        if self._delay_seconds:
            time.sleep(self._delay_seconds)
        return self._inner.write_synced(buffers)

    def truncate(self, position: int) -> None:
        self._inner.truncate(position)

    def close(self) -> None:
        self._inner.close()


class SlowSyncStorage(LocalStorage):
    """The local disk, with a delay added to every sync of an append file."""

    def __init__(self, inner: LocalStorage, delay_seconds: float) -> None:
        super().__init__()
        self._files, self._delay_seconds = inner, delay_seconds

    def create_append(self, path: str) -> AppendFile:
        return SlowSyncFile(self._files.create_append(path), self._delay_seconds)

    def open_append(self, path: str) -> AppendFile:
        return SlowSyncFile(self._files.open_append(path), self._delay_seconds)
