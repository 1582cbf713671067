"""A ticket's records, read from one stream's two halves (K13: columns and predicate go to where the data is)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millpond.errors import InvalidInput
from millpond.model.predicate import FALSE
from millpond.query.halves import Halves
from millpond.query.projection import Projection, pieces
from millpond.query.terms import ready
from millpond.wire.ticket import LiveTicket


def live_batches(halves: Halves, ticket: LiveTicket) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Exactly the kept records in the ticket's ranges (live, or settled meanwhile), with its columns in its order,
    those that cannot match its predicate left out. What is wrong with the ticket is raised here, not while iterating,
    unless it happens later (`OffsetGone` if the stream is truncated on the way). `halves` are those of the ticket's
    stream."""
    definition = halves.definition
    halves.check_generation(ticket.generation)
    if ticket.stream != definition.id:
        raise InvalidInput(
            f"a ticket of stream {ticket.stream} came to stream {definition.id}", hint="look it up by id"
        )
    if any(streamlet >= definition.streamlets for streamlet in ticket.ranges):
        raise InvalidInput(
            f"a ticket names streamlet {max(ticket.ranges)} of {definition.name}",
            hint=f"its streamlets are 0 to {definition.streamlets - 1}",
        )
    projection = Projection.of(definition, ticket.columns)
    predicate = ready(ticket.predicate, definition.schema, loose=True)

    def read() -> Iterator[pa.RecordBatch]:
        if predicate == FALSE:
            return
        for streamlet, offsets in sorted(ticket.ranges.items()):
            names = projection.schema.names
            for batch in halves.read_range(
                ticket.generation, streamlet, offsets, names, predicate, cutoff_micros=ticket.cutoff_micros
            ):
                yield from map(projection.apply, pieces(batch))

    return projection.schema, read()
