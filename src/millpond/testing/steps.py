"""Steps: every call that reaches the byte layer, counted and named, so that a fault can be put at each one.

A step has a kind (what is done) and a place (what kind of file it is done to): `sync journal/#.journal`. Places leave
out what differs from run to run, so that two runs of one workload name the same steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Steps after which the disk, or what of it survives a power cut, is another.
DURABLE_KINDS = frozenset(
    {
        "create",
        "write",
        "sync",
        "truncate",
        "rewrite",
        "remove",
        "rename",
        "add_directory",
        "remove_directory",
        "sync_file",
        "sync_directory",
        "lock",
    }
)
SYNC_KINDS = frozenset({"sync", "sync_file", "sync_directory", "rewrite"})
# Steps that need room on the disk.
GROWING_KINDS = frozenset({"create", "write", "add_directory"})

_VARYING = re.compile(r"[0-9a-f]{8}[0-9a-f-]*|\d+")


@dataclass(frozen=True, slots=True)
class Step:
    """One call. `number` counts all calls from 1, `durable_number` the durable ones (0 if this is none)."""

    number: int
    durable_number: int
    kind: str
    place: str
    path: str

    def __str__(self) -> str:
        return f"{self.kind} {self.place}"

    @property
    def durable(self) -> bool:
        return self.durable_number > 0


def place_of(path: str, root: str) -> str:
    """`path` under `root` without numbers and random parts."""
    relative = path[len(root) :].lstrip("/") if path.startswith(root) else path
    return _VARYING.sub("#", relative)
