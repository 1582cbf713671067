"""Verification of the Delta log: every commit file by itself, by the checksum in the next one, and all together.

The commits are played again from the first one; after each, what is live and the boundary must give the number that
the commit stated (see `state.py`), and no boundary may go back: offsets would have been given out twice. This covers
versions that only time travel sees, too.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping

from millpond.archive.commit_file import (
    LOG_DIRECTORY,
    CommitFile,
    Mangled,
    Torn,
    commit_name,
    commit_version,
    parse_commit,
)
from millpond.archive.repair import TORN_DIRECTORY
from millpond.archive.state import objects_digest, of_boundaries, state_text
from millpond.model.findings import Finding
from millpond.storage.protocol import Storage

_RESTORE = "restore it from a backup"


def verify_log(storage: Storage, root: str) -> Iterator[Finding]:
    """Findings about `_delta_log`. Reads, and changes nothing."""
    for name in storage.list(posixpath.join(root, TORN_DIRECTORY)):
        hint = "left by a power cut, and its records settled again; remove it when you no longer want to look at it"
        yield Finding("warning", f"{TORN_DIRECTORY}/{name}", "was set aside when the pond was opened", hint)
    directory = posixpath.join(root, LOG_DIRECTORY)
    versions = sorted(v for v in map(commit_version, storage.list(directory)) if v is not None)
    commits: dict[int, CommitFile] = {}
    for version in versions:
        try:
            commits[version] = parse_commit(storage.read(posixpath.join(directory, commit_name(version))))
        except (Torn, Mangled, OSError) as error:
            yield Finding("error", f"{LOG_DIRECTORY}/{commit_name(version)}", f"is damaged: {error}", _RESTORE)
    for version, commit in commits.items():
        before = commits.get(version - 1)
        if before is not None and not commit.follows(before):
            message = "its checksum is not the one that the next commit states"
            yield Finding("error", f"{LOG_DIRECTORY}/{commit_name(version - 1)}", message, _RESTORE)
    if versions and sorted(commits) == list(range(versions[-1] + 1)):
        yield from _replay(commits)


def expired_rows(storage: Storage, root: str, generation: int, version: int) -> int:
    """How many records of a generation the commits up to a version have dropped because they had expired."""
    directory, mark = posixpath.join(root, LOG_DIRECTORY), f"/g{generation}/"
    rows = 0
    for name in storage.list(directory):
        number = commit_version(name)
        if number is not None and number <= version:
            with contextlib.suppress(Torn, Mangled, OSError):  # `verify_log` tells
                commit = parse_commit(storage.read(posixpath.join(directory, name)))
                rows += commit.expired if any(mark in each for each in commit.transactions) else 0
    return rows


def _replay(commits: Mapping[int, CommitFile]) -> Iterator[Finding]:
    live: dict[str, tuple[str, int, int | None]] = {}
    digest = 0
    reached: dict[str, int] = {}
    for version, commit in sorted(commits.items()):
        gone = [live.pop(path) for path in commit.removed if path in live]
        live |= {one[0]: one for one in commit.added}
        digest += objects_digest(commit.added) - objects_digest(gone)
        if commit.state is not None and state_text(digest, of_boundaries(commit.transactions)) != commit.state:
            yield Finding(
                "error",
                f"{LOG_DIRECTORY}/{commit_name(version)}",
                "this commit, or one before it, is not what was written: the table would hold something else",
                _RESTORE,
            )
            return  # all later ones would say the same
        stated = of_boundaries(commit.transactions)
        for name in sorted(name for name, to in stated.items() if to < reached.get(name, 0)):
            yield Finding(
                "error",
                f"{LOG_DIRECTORY}/{commit_name(version)}",
                f"sets the boundary {name} back from {reached[name]} to {stated[name]}",
                "offsets may have been given to two records: compare them, and report it",
            )
        reached |= stated
