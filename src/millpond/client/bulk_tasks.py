"""What the tasks of a job that writes in bulk run, in whatever process that is: rows in, a report out.

A task may run more than once, also at the same time. Each run writes under names that nobody else has, and nothing that
it wrote counts until the job's commit names what its report says. A run that fails removes what it can.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from importlib import metadata

import msgspec
import pyarrow as pa

from millpond.archive.analysis import sample_object
from millpond.archive.index.registry import INDEXES
from millpond.archive.layout.arranging import Arranging
from millpond.archive.layout.layout import Layout
from millpond.archive.layout.registry import decode_model, find_layout, make_layout, register_layout
from millpond.archive.load import LoadWriter
from millpond.archive.reader import ObjectToRead
from millpond.archive.relayout import rewrite
from millpond.errors import Unavailable
from millpond.flight.link import FlightLink
from millpond.ingest import Ingest
from millpond.model.definition import StreamDefinition
from millpond.model.schema import stored_schema
from millpond.model.stored_definition import decode_definition
from millpond.storage import LocalStorage
from millpond.wire.bulk import LoadTicket
from millpond.wire.relayout import RelayoutTicket, decode_unit, encode_table
from millpond.wire.requests import Append

# Batches that are on their way and not yet acknowledged.
_UNDER_WAY_MAX = 16
_ACK_SECONDS = 120.0


def check_version(wanted: str) -> None:
    """`Unavailable` unless this process has the driver's Millpond."""
    found = metadata.version("millpond")
    if found != wanted:
        raise Unavailable(
            f"an executor has Millpond {found}, the driver {wanted}",
            hint="install the same version on all machines",
        )


def know_kinds(packed: bytes) -> None:
    """Make layouts and index kinds of the user's known in this process, as they are in the driver. `packed`: classes,
    from the closure of a task, which only the driver makes; empty if there are none."""
    for kind in pickle.loads(packed) if packed else ():
        if issubclass(kind, Layout):
            register_layout(kind)
        else:
            INDEXES.register(kind)


def load_rows(ticket: bytes, task: int, row_bits: int, batches: Iterable[pa.RecordBatch]) -> tuple[int, bytes]:
    """Write the rows of one task of a load; how many there were, and what to report (an Arrow stream, empty if there
    were none). `ticket`: a `LoadTicket` as JSON."""
    given = msgspec.json.decode(ticket, type=LoadTicket)
    definition = decode_definition(given.definition)
    ingest, rows = Ingest(definition), 0
    with LoadWriter(
        LocalStorage(),
        given.root,
        definition,
        given.load,
        task,
        row_bits,
        object_bytes=given.object_bytes,
        arranging=_arranging(given, definition),
    ) as writer:
        try:
            for batch in batches:
                checked = ingest.checked(batch, given.load.ingest_micros)
                rows += checked.num_rows
                writer.add(checked)
            report = writer.finish()
        except BaseException:
            writer.discard()
            raise
    return rows, b"" if report is None else _as_stream(report)


def _arranging(given: LoadTicket, definition: StreamDefinition) -> Arranging | None:
    layout = find_layout(definition.layout)
    if layout is None:
        return None
    model = decode_model(given.model) if given.model else None
    return Arranging(layout, model, object_bytes_min=given.object_bytes_min, adapt=True)


def rewrite_part(ticket: bytes, unit: bytes, part: int) -> bytes:
    """Rewrite one part of a unit of a relayout; its report. `ticket`: a `RelayoutTicket` as JSON."""
    given = msgspec.json.decode(ticket, type=RelayoutTicket)
    definition, model = decode_definition(given.definition), decode_model(given.model)
    layout = make_layout(definition.layout) if definition.layout is not None else None
    assert layout is not None, "only a stream with a layout is laid out anew"
    report = rewrite(
        LocalStorage(),
        given.root,
        definition,
        layout,
        model,
        decode_unit(unit),
        part,
        object_bytes_min=given.object_bytes_min,
    )
    return encode_table(report)


def sample_rows(root: str, definition: str, wanted: Iterable[tuple[ObjectToRead, int]], columns: list[str]) -> bytes:
    """Rows drawn of some objects, so many of each, as an Arrow stream."""
    schema = stored_schema(decode_definition(definition).schema)
    drawn = [sample_object(LocalStorage(), root, schema, each, columns, rows) for each, rows in wanted]
    return encode_table(pa.concat_tables(drawn))


def stage_rows(
    location: str, token: str, tls: Mapping[str, bytes], request: bytes, batches: Iterable[pa.RecordBatch]
) -> int:
    """Put the rows of one task under a stage; how many there were. `request`: an `Append` with a stage, as JSON."""
    append = msgspec.json.decode(request, type=Append)
    roots, certificate, key = (tls.get(name) for name in ("tls_root_certs", "cert_chain", "private_key"))
    link = FlightLink(location, token or None, tls_roots=roots, certificate=certificate, key=key)
    rows = under_way = 0
    with link, link.put(append) as put:
        for batch in batches:
            if batch.num_rows:
                put.write(batch)
                rows, under_way = rows + batch.num_rows, under_way + 1
            if under_way >= _UNDER_WAY_MAX:
                put.next_ack(_ACK_SECONDS)
                under_way -= 1
        for _ in range(under_way):
            put.next_ack(_ACK_SECONDS)
    return rows


def _as_stream(report: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, report.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(report)
    data: bytes = sink.getvalue().to_pybytes()
    return data
