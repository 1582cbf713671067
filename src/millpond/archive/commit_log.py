"""The commits of a table, a version each, and how one more becomes the next.

A commit becomes exactly the next version or fails; a failure of any kind is resolved by reading what that version is:
ours (the answer was lost), somebody else's (`Refused`), or none. It is durable before the caller hears of it, and so is
every one before it. It states the checksum of the one before.

Not thread-safe: the archive serialises its use.
"""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from millpond.archive.checksums import checksum
from millpond.archive.commit_file import (
    COMMIT,
    LOG_DIRECTORY,
    PREVIOUS,
    CommitFile,
    Mangled,
    Torn,
    commit_name,
    parse_commit,
)
from millpond.archive.durable import DurableLog
from millpond.archive.table import DeltaLog
from millpond.errors import Damaged, SettleFailed
from millpond.storage.protocol import Storage


class Refused(Exception):
    """Another writer's commit took the version that ours was meant to be. Ours left nothing visible."""


class CommitLog:
    """The `_delta_log` of one table, as commits. What is in it is written by `delta`."""

    def __init__(self, storage: Storage, root: str, delta: DeltaLog) -> None:
        self._storage, self._root, self._delta = storage, root, delta
        self.durable = DurableLog(storage, root)

    def step(self, version: int, metadata: dict[str, Any], write: Callable[[Mapping[str, Any]], None]) -> None:
        """One commit, durable afterwards. `SettleFailed` if it is not there, or not known to be."""
        if self._delta.version != version - 1:
            raise Refused(f"the table is at version {self._delta.version}, the change was meant for {version}")
        self.durable.ensure(version - 1)
        commit_id = secrets.token_hex(8)
        previous = checksum(self._storage.read(self._path(version - 1))) if version else 0
        try:
            write(metadata | {COMMIT: commit_id, PREVIOUS: previous})
        except Exception as error:
            self._resolve(version, commit_id, error)
        self.durable.ensure(version)

    def _resolve(self, version: int, commit_id: str, error: Exception) -> None:
        """The commit raised: did it happen? Returns if it did."""
        try:
            there = self._storage.exists(self._path(version))
            landed = there and self.read(version).id == commit_id
        except (OSError, Damaged) as unreadable:
            raise SettleFailed(
                f"whether version {version} of {self._root} was committed is not known: {error}; {unreadable}",
                hint="nothing is lost: the next settle looks at the log first",
            ) from error
        if landed:
            return
        if there:
            raise Refused(f"version {version} is another writer's") from error
        raise SettleFailed(
            f"the commit of version {version} to {self._root} failed: {error}",
            hint="the records stay live and nothing is lost; settle again when the cause is gone",
        ) from error

    def read(self, version: int) -> CommitFile:
        """What a commit says. `Damaged` if it cannot be read."""
        path = self._path(version)
        try:
            return parse_commit(self._storage.read(path))
        except (Torn, Mangled) as error:
            raise Damaged(f"{path}: {error}", hint="open the pond again: a torn newest commit is set aside") from error

    def _path(self, version: int) -> str:
        return posixpath.join(self._root, LOG_DIRECTORY, commit_name(version))
