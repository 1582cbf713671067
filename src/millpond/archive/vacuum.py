"""Vacuum: the files of objects that nobody can see any more are removed.

There are two kinds: objects that no commit ever named (of loads and settles that came to nothing), and objects that a
commit removed (merged, truncated, expired). Both are invisible to whoever takes a snapshot now; those who took one
before may still be reading the second kind, and a writer may be about to name the first. So age decides: only what was
written, and removed, before the time given goes. What is not an object of ours by its name is never touched. Blobs of
indexes go when no entry names them any more: who reads an older snapshot reads their objects instead.

The newest state says what is there; commits since that time say what was there then; a listing only says what may go.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from millpond.archive.commit_file import LOG_DIRECTORY, commit_name
from millpond.archive.index import blobs
from millpond.archive.index.entries import DIRECTORY
from millpond.archive.ledger import Ledger
from millpond.archive.objects import parse_name
from millpond.errors import InvalidValue, Unavailable
from millpond.model.units import Duration, parse_seconds
from millpond.storage.protocol import Storage

# A query that takes longer than this is rare, and a mistake in typing an age is not.
LEAST_SECONDS = 3_600

# What a change of the archive takes place in; it may refuse.
Step = Callable[[], AbstractContextManager[None]]

_GENERATION = re.compile(r"g\d{5}\Z")


@dataclass(frozen=True)
class VacuumReport:
    """What was removed or, in a preview, would be. `objects` are files."""

    objects: int
    bytes: int
    preview: bool
    stream: str = ""


def check_age(older_than: Duration) -> float:
    """An age in seconds, if it is one that may be asked for."""
    seconds = parse_seconds(older_than)
    if seconds < LEAST_SECONDS:
        raise InvalidValue(
            f"objects younger than an hour would go ({older_than!r})",
            hint='at least "1h": queries under way read them; "7d" is usual',
        )
    return seconds


def named_since(storage: Storage, ledger: Ledger, older_micros: int) -> set[str]:
    """The objects that are there, and those that commits since `older_micros` added or removed."""
    state = ledger.state
    if state is None:
        return set()
    named = set(ledger.delta.objects().column("path").to_pylist())
    named.update(posixpath.join(DIRECTORY, name) for name in state.objects.blob_files)
    for version in range(state.version, -1, -1):
        path = posixpath.join(ledger.root, LOG_DIRECTORY, commit_name(version))
        if not storage.exists(path):
            raise Unavailable(
                f"{path} is gone: what was removed since then is not known",
                hint="something else cleaned the Delta log; vacuum a shorter time",
            )
        if storage.modified_micros(path) < older_micros:
            break
        commit = ledger.commit_at(version)
        named.update(one[0] for one in commit.added)
        named.update(commit.removed)
    return named


def vacuum(
    storage: Storage, root: str, kept: set[str], older_micros: int, *, preview: bool, step: Step = nullcontext
) -> VacuumReport:
    """Remove every object that is not in `kept` and was written before `older_micros`, each in a `step`."""
    objects = size = 0
    for path in _candidates(storage, root):
        whole = posixpath.join(root, path)
        if path in kept or storage.modified_micros(whole) >= older_micros:
            continue
        objects, size = objects + 1, size + storage.size(whole)
        if not preview:
            with step():
                storage.remove(whole)
    return VacuumReport(objects, size, preview)


def _candidates(storage: Storage, root: str) -> Iterator[str]:
    """Everything that is an object of ours by its name, or the blobs of indexes."""
    for generation in filter(_GENERATION.match, storage.list(root)):
        for partition in storage.list(posixpath.join(root, generation)):
            for name in storage.list(posixpath.join(root, generation, partition)):
                path = posixpath.join(generation, partition, name)
                if parse_name(path) is not None:
                    yield path
    yield from (posixpath.join(DIRECTORY, name) for name in filter(blobs.NAME.match, storage.list(_index(root))))


def _index(root: str) -> str:
    return posixpath.join(root, DIRECTORY)
