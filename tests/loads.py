"""A task of a load, as Spark's executors do it: by nothing but the ticket that the driver was given."""

from __future__ import annotations

import pyarrow as pa

from millpond.archive.load import ROW_BITS, LoadWriter
from millpond.model.stored_definition import decode_definition
from millpond.storage import LocalStorage
from millpond.wire.bulk import LoadTicket


def write(ticket: LoadTicket, task: int, batch: pa.RecordBatch) -> pa.Table:
    """What the task reports of a batch that it wrote."""
    definition = decode_definition(ticket.definition)
    with LoadWriter(
        LocalStorage(), ticket.root, definition, ticket.load, task, ROW_BITS, object_bytes=ticket.object_bytes
    ) as writer:
        writer.add(batch)
        report = writer.finish()
    assert report is not None
    return report
