"""Truncating a stream: all its records go at one moment, and its next generation begins, empty, at offset 0.

Steps, each safe to be the last one before a crash:

1. the catalog's record with the higher generation, and with it the audit's: from here on it is truncated
2. the log swaps in empty streamlets: for readers and writers this is the moment
3. the archive shows nothing of the old generation
4. one Delta commit takes the old objects out of the table and fences off whoever slept through this

After a crash behind step 1 the log and the archive are opened with the new generation: they ignore what the old one
left, and opening makes the commit of step 4. The same happens at the next settle if the archive's disk fails here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.log.engine import LogEngine
from millpond.model.definition import StreamDefinition
from millpond.wire.answers import TruncatePlan

if TYPE_CHECKING:
    from millpond.pond.stream import Stream


def plan(stream: Stream, *, done: bool) -> TruncatePlan:
    """What a truncation takes away, or has taken."""
    status = stream.status()
    return TruncatePlan(
        status.name,
        status.generation + 1,
        status.rows_live,
        status.rows_settled,
        status.bytes_live,
        status.bytes_settled,
        status.objects,
        done=done,
    )


def truncate(stream: Stream, log: LogEngine, record: Callable[[StreamDefinition, str], None]) -> TruncatePlan:
    """Do it. `record` puts the new definition on record, durably, with what is discarded. The pond's lock is held."""
    with stream.settling.alone:  # what settles or expires at this moment is finished first
        definition = replace(stream.definition, generation=stream.definition.generation + 1)
        gone = plan(stream, done=True)
        record(
            definition,
            f"rows_live={gone.rows_live} rows_settled={gone.rows_settled} objects={gone.objects} "
            f"bytes_settled={gone.bytes_settled} generation={gone.generation - 1} id={definition.id}",
        )
        log.truncate_stream(definition)
        stream.archive.begin_generation(definition.generation)
        stream.redefine(definition)
        stream.settling.truncated()
        stream.archive.finish_truncation()
        return gone
