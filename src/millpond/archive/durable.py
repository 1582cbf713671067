"""Making what deltalake wrote durable: on local disk it syncs nothing.

A commit file counts as durable when it and its directory were synced. If a sync fails, the system may have dropped the
bytes and marked them clean: a second sync of the same file would succeed and prove nothing. So the same bytes are
written once more, in place, and those are synced (`Storage.rewrite`).
"""

from __future__ import annotations

import posixpath

from millpond.archive.commit_file import LOG_DIRECTORY, commit_name
from millpond.errors import SettleFailed
from millpond.storage.protocol import Storage


class DurableLog:
    """Which commits of one `_delta_log` are known to be durable. Not thread-safe."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._directory = posixpath.join(root, LOG_DIRECTORY)
        self._through = -1
        self._doubtful: set[int] = set()

    def reset(self, through: int) -> None:
        """Commits up to `through` are durable; nothing is known of later ones."""
        self._through = through

    def ensure(self, through: int) -> None:
        """Every commit up to `through` is durable afterwards; `SettleFailed` if that cannot be had."""
        pending = range(self._through + 1, through + 1)
        if not pending:
            return
        try:
            doubted = [version for version in pending if version in self._doubtful]
            for version in pending:
                if version not in self._doubtful:
                    self._sync(version, doubted)
            for version in doubted:
                self._storage.rewrite(self._path(version), 0)
            self._storage.sync_directory(self._directory)
        except OSError as error:
            raise SettleFailed(
                f"the commit to {self._directory} is there, but may not survive a power cut: {error}",
                hint="look at the disk; the records stay live, and the next settle makes sure of the commit first",
            ) from error
        self._through = through
        self._doubtful.clear()

    def _sync(self, version: int, doubted: list[int]) -> None:
        try:
            self._storage.sync_file(self._path(version))
        except OSError:
            self._doubtful.add(version)
            doubted.append(version)

    def _path(self, version: int) -> str:
        return posixpath.join(self._directory, commit_name(version))
