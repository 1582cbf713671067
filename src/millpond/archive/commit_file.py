"""Commit files, `_delta_log/<version>.json`, read by ourselves: whole, torn or damaged, and what they say.

A commit file is one JSON action per line, the commit's own information first, without a newline at the end. deltalake
accepts any prefix of it that ends between two lines, even an empty file, as a smaller commit; a prefix with the added
objects but without the boundary would make rows appear twice. So every commit of ours states how many actions it has
(`millpond.actions`), and what the table holds after it (`millpond.state`, see `state.py`).

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

COMMIT = "millpond.commit"
ACTIONS = "millpond.actions"
STATE = "millpond.state"
INDEX = "millpond.index"
INDEX_CHECKSUM = "millpond.index_crc32"
KIND = "millpond.kind"

LOG_DIRECTORY = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"

_COMMIT_NAME = re.compile(r"(\d{20})\.json\Z")
_CHECKPOINT_NAME = re.compile(r"(\d{20})\.checkpoint\..*\bparquet\Z")


class Torn(ValueError):
    """Cut off, or never written: what an unsynced file looks like after a power cut."""


class Mangled(ValueError):
    """As long as it should be, but not what was written."""


@dataclass(frozen=True)
class CommitFile:
    """What one commit says. `info` is empty for a commit without commit information."""

    info: Mapping[str, Any]
    added: tuple[tuple[str, int, int | None], ...] = ()  # path, bytes, rows
    removed: tuple[str, ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str | None:
        """Ours, or None if another engine wrote it."""
        return self._text(COMMIT)

    @property
    def state(self) -> str | None:
        return self._text(STATE)

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
    declared = info.get(ACTIONS)
    if isinstance(declared, int) and len(actions) - 1 != declared:
        kind = Torn if len(actions) - 1 < declared else Mangled
        raise kind(f"it has {len(actions) - 1} actions, {declared} were written")
    try:
        return CommitFile(
            info,
            tuple(_added(a["add"]) for a in actions if "add" in a),
            tuple(a["remove"]["path"] for a in actions if "remove" in a),
            {a["txn"]["appId"]: int(a["txn"]["version"]) for a in actions if "txn" in a},
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Mangled(f"an action lacks a part: {error}") from error


def _added(action: Mapping[str, Any]) -> tuple[str, int, int | None]:
    stats = msgspec.json.decode(action.get("stats") or "{}")
    return action["path"], int(action["size"]), stats.get("numRecords")


def _parse_line(line: bytes, number: int, last: int) -> dict[str, Any]:
    try:
        action = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        kind = Torn if number in (1, last) else Mangled
        raise kind(f"line {number} is not JSON ({error})") from error
    if not isinstance(action, dict):
        raise Mangled(f"line {number} is not an action")
    return action
