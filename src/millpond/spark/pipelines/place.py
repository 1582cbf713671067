"""Where a pipeline's streams are, and where Spark keeps what it knows of it: in the pond's own directory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millpond.errors import InvalidValue
from millpond.pond.pond import Pond

if TYPE_CHECKING:
    from millpond.client.pond import RemotePond

DIRECTORY = "pipelines"
# A file of Spark's before it gets its name, and its checksum.
_UNFINISHED = re.compile(r"\.{1,2}0\.[0-9a-f-]+\.tmp(\.crc)?")


@dataclass(frozen=True)
class PondAccess:
    """A pond, and how `format("millpond")` is told of it. Its text shows no secret."""

    pond: Pond | RemotePond
    options: Mapping[str, str] = field(repr=False)


class Checkpoints:
    """Each pipeline has a directory: its progress, and the state of its aggregates."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @classmethod
    def of(cls, pond: Pond | RemotePond, given: Path | None = None) -> Checkpoints:
        """Under the pond's directory, if that is on this machine, or where it is said."""
        if given is not None:
            return cls(given.resolve())
        path = Path(pond.status().path)
        if not isinstance(pond, Pond) and not _is_here(path, pond.id):
            raise InvalidValue(
                f"the pond's directory, {path}, is not on this machine, or not to be written to by us",
                hint="name a directory for checkpoints that stays: --checkpoints DIR",
            )
        return cls(path.resolve() / DIRECTORY)

    def of_pipeline(self, name: str) -> str:
        """The checkpoint of one pipeline."""
        where = self._root / name / "checkpoint"
        where.mkdir(parents=True, exist_ok=True)
        _sweep(where)
        return str(where)


def _sweep(checkpoint: Path) -> None:
    """Remove what a driver left that was killed while it wrote the first entry of a log. Spark takes it for another
    query's data, and would not start again."""
    for log in (checkpoint / "offsets", checkpoint / "commits"):
        there = [path.name for path in log.iterdir()] if log.is_dir() else []
        if not any(name.isdecimal() for name in there):
            for name in filter(_UNFINISHED.fullmatch, there):
                (log / name).unlink()


def _is_here(path: Path, pond_id: str) -> bool:
    try:
        described = msgspec.json.decode((path / "pond.json").read_bytes())
    except (OSError, msgspec.MsgspecError):
        return False
    return isinstance(described, dict) and described.get("id") == pond_id and os.access(path, os.W_OK)
