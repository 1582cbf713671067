"""Checking a whole pond: every checksum and every count, while it goes on working."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from millpond.log.embedded.engine import EmbeddedLog
from millpond.model.findings import Finding
from millpond.pond.stream import Stream
from millpond.wire.status import VerifyReport

# What is being looked at, how far, of how much.
Progress = Callable[[str, int, int], None]


def verify_pond(log: EmbeddedLog, streams: Sequence[Stream], progress: Progress | None = None) -> VerifyReport:
    """Check the journal, the live half and the archive of every stream."""
    tell = progress or _silent
    findings = log.verify(lambda done, total: tell("journal", done, total))
    records = objects = archived = 0
    for stream in streams:
        status = stream.status()
        records += status.rows_live + status.rows_settled
        objects += status.objects
        archived += status.bytes_settled
        directory = os.path.join("archive", stream.definition.directory)

        def show(done: int, total: int, name: str = stream.name) -> None:
            tell(name, done, total)

        findings += [
            Finding(found.severity, os.path.join(directory, found.path), found.message, found.hint)
            for found in stream.archive.verify(show)
        ]
        findings += _meeting(stream)
    return VerifyReport(len(streams), records, objects, log.status().journal_bytes, archived, tuple(findings))


def _meeting(stream: Stream) -> list[Finding]:
    """The two halves must meet: nothing may lie between the boundary and what is live (I3). One that is never archived
    begins where its journal says, which was checked when the pond was opened."""
    if stream.definition.settle is None:
        return []
    snapshot = stream.snapshot()
    starts = stream.halves.log.starts(stream.definition.id)
    found = []
    for streamlet, start in starts.items():
        boundary = stream.snapshot().boundary.get(streamlet, 0)
        if start > max(boundary, snapshot.boundary.get(streamlet, 0)):
            found.append(
                Finding(
                    "error",
                    f"{stream.name}, streamlet {streamlet}",
                    f"offsets [{boundary}, {start}) are neither settled nor live",
                    "restore the journal or the archive from a copy",
                )
            )
    return found


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
