"""Commit files, `_delta_log/<version>.json`, read by ourselves: whole, torn or damaged, and what they say.

A commit file is one JSON action per line, the commit's own information first, without a newline at the end. deltalake
accepts any prefix of it that ends between two lines, even an empty file, as a smaller commit; a prefix with the added
objects but without the boundary would make rows appear twice. So every commit of ours states how many actions it has
(`millpond.actions`), what the table holds after it (`millpond.state`, see `state.py`), and the checksum of the commit
file before it (`millpond.previous_crc32`), so that all but the newest are covered byte by byte.

Invariant: a file that was cut off or never reached the disk (empty, a prefix, zeros, somebody else's bytes) is told
apart from one of which a part changed. The first can be an unsynced newest commit after a power cut; the second never
is. Where a flipped bit looks like the first, the commit is set aside too, and the log tells: what a settle made
durable and the journal has let go of is missing under the boundary then, and the pond does not open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from millpond.archive.checksums import checksum

COMMIT = "millpond.commit"
ACTIONS = "millpond.actions"
STATE = "millpond.state"
PREVIOUS = "millpond.previous_crc32"
INDEX = "millpond.index"
INDEX_CHECKSUM = "millpond.index_crc32"
KIND = "millpond.kind"
EXPIRED = "millpond.expired"
# What app transactions are called that are no boundary: writers' own numbers.
MARK = "mark/"
# Which load a commit is of, so that a driver whose answer was lost can be told.
LOAD = "millpond.load"

LOG_DIRECTORY = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"

# Every commit of ours has all of these.
_OWN = (COMMIT, ACTIONS, STATE, KIND, PREVIOUS)
# The actions of the Delta protocol that may stand in a commit file.
_KNOWN_ACTIONS = frozenset({"commitInfo", "add", "remove", "txn", "metaData", "protocol", "cdc", "domainMetadata"})

_COMMIT_NAME = re.compile(r"(\d{20})\.json\Z")
_CHECKPOINT_NAME = re.compile(r"(\d{20})\.checkpoint\..*\bparquet\Z")


class Torn(ValueError):
    """Cut off, or never written: what an unsynced file looks like after a power cut."""


class Mangled(ValueError):
    """As long as it should be, but not what was written."""


@dataclass(frozen=True)
class CommitFile:
    """What one commit says. `info` is empty for a commit without commit information; `transactions` are the boundary's;
    `crc32` is of the file."""

    info: Mapping[str, Any]
    added: tuple[tuple[str, int, int | None], ...] = ()  # path, bytes, rows
    removed: tuple[str, ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    crc32: int = 0

    @property
    def id(self) -> str | None:
        """Ours, or None if another engine wrote it."""
        return self._text(COMMIT)

    @property
    def state(self) -> str | None:
        return self._text(STATE)

    @property
    def load(self) -> str | None:
        """The load that this commit made visible."""
        return self._text(LOAD)

    @property
    def expired(self) -> int:
        """How many records this commit dropped, live and settled, because they had expired; without loaded ones."""
        rows = self.info.get(EXPIRED)
        return rows if isinstance(rows, int) else 0

    def follows(self, previous: CommitFile) -> bool:
        """Whether this one vouches for the bytes of the one before it; another engine's vouches for nothing."""
        return self.id is None or self.info[PREVIOUS] == previous.crc32

    @property
    def index(self) -> tuple[str, int] | None:
        """The name and checksum of the index file with the entries of what this commit added."""
        name, crc32 = self._text(INDEX), self.info.get(INDEX_CHECKSUM)
        return (name, crc32) if name is not None and isinstance(crc32, int) else None

    def _text(self, key: str) -> str | None:
        value = self.info.get(key)
        return value if isinstance(value, str) else None


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def commit_version(name: str) -> int | None:
    match = _COMMIT_NAME.match(name)
    return int(match[1]) if match else None


def checkpoint_version(name: str) -> int | None:
    match = _CHECKPOINT_NAME.match(name)
    return int(match[1]) if match else None


def parse_commit(data: bytes) -> CommitFile:
    """The commit in a file. Raises `Torn` or `Mangled`."""
    if b"\0" in data:
        raise Torn("it holds zeros where text should be")
    lines = [line for line in data.split(b"\n") if line.strip()]
    if not lines:
        raise Torn("it is empty")
    actions = [_parse_line(line, at + 1, len(lines)) for at, line in enumerate(lines)]
    info: Mapping[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    _check_own(info, len(actions) - 1)
    try:
        return CommitFile(
            info,
            tuple(_added(a["add"]) for a in actions if "add" in a),
            tuple(a["remove"]["path"] for a in actions if "remove" in a),
            {a["txn"]["appId"]: int(a["txn"]["version"]) for a in actions if "txn" in a and not _is_mark(a["txn"])},
            checksum(data),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Mangled(f"an action lacks a part: {error}") from error


def _check_own(info: Mapping[str, Any], actions: int) -> None:
    """A commit of ours has all marks, and as many actions as it says; another engine's has none of them."""
    marks = [mark for mark in _OWN if mark in info]
    if not marks:
        return
    declared = info.get(ACTIONS)
    if len(marks) < len(_OWN) or not isinstance(declared, int):
        raise Mangled(f"it lacks {', '.join(mark for mark in _OWN if mark not in marks) or ACTIONS}")
    if actions != declared:
        kind = Torn if actions < declared else Mangled
        raise kind(f"it has {actions} actions, {declared} were written")


def _is_mark(transaction: Mapping[str, Any]) -> bool:
    return bool(transaction["appId"].startswith(MARK))


def _added(action: Mapping[str, Any]) -> tuple[str, int, int | None]:
    stats = msgspec.json.decode(action.get("stats") or "{}")
    return action["path"], int(action["size"]), stats.get("numRecords")


def _parse_line(line: bytes, number: int, last: int) -> dict[str, Any]:
    try:
        action = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        kind = Torn if number in (1, last) else Mangled
        raise kind(f"line {number} is not JSON ({error})") from error
    if not isinstance(action, dict) or len(action) != 1 or not _KNOWN_ACTIONS.issuperset(action):
        raise Mangled(f"line {number} is not an action")
    return action
