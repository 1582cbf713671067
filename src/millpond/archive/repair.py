"""Before a table is loaded: what a power cut may have left in `_delta_log` is set aside, the rest is refused.

Commits are synced one by one before anything builds on them, so after a power cut only the newest commit file can be
torn, and the journal still holds what it settled: it is moved to `_torn/` and the table is one version younger. A
checkpoint only repeats what commit files say; one that `_index/_last_checkpoint` does not vouch for, or that differs
from what it vouches for, is moved there too as long as commit files can take its place. Everything else (a gap, an
older commit that does not parse) is damage: the error names the file and nothing is touched.

What is left is synced: a process that was killed may have left a commit that only the system's cache has, and the log
will let go of records because of it. The newest is written again for that: if a sync of it failed, the cache has it
marked as written, and another sync would prove nothing.
"""

from __future__ import annotations

import json
import posixpath
import secrets
from dataclasses import dataclass, field

from millpond.archive.checksums import checksum
from millpond.archive.commit_file import (
    LAST_CHECKPOINT,
    LOG_DIRECTORY,
    CommitFile,
    Mangled,
    Torn,
    checkpoint_version,
    commit_name,
    commit_version,
    parse_commit,
)
from millpond.archive.index.entries import LastCheckpoint
from millpond.errors import Damaged
from millpond.storage.protocol import Storage

TORN_DIRECTORY = "_torn"


@dataclass
class LogFiles:
    """The log as it was found fit to load. `version` is -1 if there is no table."""

    version: int = -1
    commits: dict[int, CommitFile] = field(default_factory=dict)
    set_aside: list[str] = field(default_factory=list)


def repair_log(storage: Storage, root: str, vouched: LastCheckpoint | None) -> LogFiles:
    """Set aside what is torn, refuse what is damaged, sync the rest; the commits since the last checkpoint, parsed."""
    return _Repair(storage, root).run(vouched)


class _Repair:
    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._root = root
        self._directory = posixpath.join(root, LOG_DIRECTORY)
        self._found = LogFiles()

    def run(self, vouched: LastCheckpoint | None) -> LogFiles:
        names = self._storage.list(self._directory)
        versions = sorted(v for v in map(commit_version, names) if v is not None)
        checkpoints = {name: v for name in names if (v := checkpoint_version(name)) is not None}
        if not versions and not checkpoints:
            return self._found
        base = self._trusted_base(versions, checkpoints, vouched)
        self._check_hint(names, set(checkpoints.values()))
        newest = max([base, *versions])
        self._check_contiguous(versions, base, newest)
        for version in range(max(base, 0), newest + 1):
            if version in versions:
                self._parse(version, base, newest)
        self._check_chain()
        self._found.version = newest if newest in self._found.commits or newest == base else newest - 1
        self._sync([v for v in versions if base < v <= self._found.version])
        return self._found

    def _trusted_base(self, versions: list[int], checkpoints: dict[str, int], vouched: LastCheckpoint | None) -> int:
        """The version of the checkpoint to start from, -1 for none. Untrusted ones are moved out of the way."""
        trusted = -1
        if vouched is not None and checkpoints.get(vouched.delta_file) == vouched.version:
            data = self._storage.read(posixpath.join(self._directory, vouched.delta_file))
            if checksum(data) == vouched.delta_crc32:
                trusted = vouched.version
        replaceable = versions[-1:] and _covers(versions, trusted + 1, versions[-1])
        for name, version in sorted(checkpoints.items()):
            if version > trusted or (version == trusted and vouched is not None and name != vouched.delta_file):
                if not replaceable:
                    return max(checkpoints.values())  # another engine cleaned the log: this is all there is
                self._set_aside(name)
                del checkpoints[name]
        return trusted

    def _check_hint(self, names: list[str], checkpoints: set[int]) -> None:
        """deltalake fails on a hint that points nowhere, and does well without one."""
        if LAST_CHECKPOINT not in names:
            return
        try:
            hint = json.loads(self._storage.read(posixpath.join(self._directory, LAST_CHECKPOINT)))
            good = isinstance(hint, dict) and hint.get("version") in checkpoints
        except ValueError:
            good = False
        if not good:
            self._set_aside(LAST_CHECKPOINT)

    def _check_contiguous(self, versions: list[int], base: int, newest: int) -> None:
        there = set(versions)
        for version in range(base + 1, newest):
            if version not in there:
                raise self._damaged(version, "is missing, and later ones are there")

    def _parse(self, version: int, base: int, newest: int) -> None:
        data = self._storage.read(posixpath.join(self._directory, commit_name(version)))
        try:
            self._found.commits[version] = parse_commit(data)
        except Torn as torn:
            if version == newest and version > base:
                self._set_aside(commit_name(version))
            elif version > base:
                raise self._damaged(version, str(torn)) from torn
        except Mangled as mangled:
            if version > base:
                raise self._damaged(version, str(mangled)) from mangled

    def _check_chain(self) -> None:
        commits = self._found.commits
        for version in sorted(commits):
            if version - 1 in commits and not commits[version].follows(commits[version - 1]):
                raise self._damaged(version - 1, "its checksum is not the one that the next commit states")

    def _set_aside(self, name: str) -> None:
        target = posixpath.join(self._root, TORN_DIRECTORY, f"{name}-{secrets.token_hex(4)}")
        self._storage.make_directory(posixpath.dirname(target))
        self._storage.rename(posixpath.join(self._directory, name), target)
        self._storage.sync_directory(posixpath.dirname(target))
        self._storage.sync_directory(self._directory)
        self._found.set_aside.append(posixpath.relpath(target, self._root))

    def _sync(self, versions: list[int]) -> None:
        for version in versions[:-1]:
            self._storage.sync_file(posixpath.join(self._directory, commit_name(version)))
        for version in versions[-1:]:
            self._storage.rewrite(posixpath.join(self._directory, commit_name(version)), 0)
        self._storage.sync_directory(self._directory)
        self._storage.sync_directory(self._root)

    def _damaged(self, version: int, what: str) -> Damaged:
        return Damaged(
            f"{posixpath.join(self._directory, commit_name(version))}: {what}",
            hint="this commit was durable once: restore the file from a backup; nothing was changed",
        )


def _covers(versions: list[int], start: int, stop: int) -> bool:
    return set(range(start, stop + 1)) <= set(versions)
