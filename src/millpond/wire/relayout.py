"""What those who rewrite settled objects agree on with the pond: see `archive.relayout`.

A relayout begins, plans units, has their parts rewritten (by tasks of Spark, or in its own process), and commits one
unit after the other. One of a stream at a time. For what was overtaken it begins anew, so that its tasks know the
stream as it is by then. Nothing of it is kept across a restart: what was committed lies as it should, and the next
relayout plans the rest.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa

from millpond.archive.relayout import RelayoutReport, Unit
from millpond.errors import Fenced, MillpondError, SettleConflict
from millpond.model.stored_definition import decode_definition

logger = logging.getLogger(__name__)

# A unit that others change while it is rewritten is planned again so often.
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class RelayoutTicket:
    """A relayout that has begun, and what its tasks need: the stream (as JSON, see `stored_definition`), the directory
    of its objects, the model (as JSON), and how large objects should be at least. `lease_seconds`: renew it more often
    than that; 0: it ends only when it is told to."""

    id: str
    definition: str
    root: str
    model: str
    object_bytes_min: int
    lease_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CurrentModel:
    """The model that counts for a stream's layout, as JSON; "" if there is none yet."""

    model: str


@dataclass(frozen=True, slots=True)
class UnitAnswer:
    """What became of a part of a unit: whether that was the last one, and then what its commit did; None if it was
    overtaken."""

    whole: bool
    report: RelayoutReport | None = None


class Relayouts(Protocol):
    """Where a relayout of one stream is begun and committed. Thread-safe. The same embedded and connected."""

    def begin(self, owner: str, object_bytes_min: int | None) -> RelayoutTicket:
        """`Backpressure` while another one is under way. `owner`: who does it; what the same one left is given up."""
        ...

    def plan(self, relayout: str) -> list[Unit]:
        """What does not lie as the model says."""
        ...

    def renew(self, relayout: str) -> None:
        """It is still wanted. `Fenced` if it was given up meanwhile."""
        ...

    def commit(self, relayout: str, unit: Unit, reports: Sequence[pa.Table]) -> RelayoutReport | None:
        """Make a unit visible. None if it was overtaken; `Fenced` if the relayout was given up."""
        ...

    def end(self, relayout: str) -> None:
        """Nothing more will come of it."""
        ...


def encode_table(table: pa.Table) -> bytes:
    """As an Arrow stream, with what its schema says of it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_table(data: bytes) -> pa.Table:
    """What `encode_table` gave, from one whom we trust."""
    return pa.ipc.open_stream(data).read_all()


class _Said(msgspec.Struct, frozen=True):
    start: int
    seconds: int
    loaded: bool
    generation: int
    version: int
    schema_version: int
    parts: int


_UNIT = b"millpond.unit"


def encode_unit(unit: Unit) -> bytes:
    """A unit for who rewrites it elsewhere."""
    known = unit.generation, unit.version, unit.schema_version
    said = _Said(unit.start, unit.seconds, unit.loaded, *known, unit.parts)
    return encode_table(unit.entries.replace_schema_metadata({_UNIT: msgspec.json.encode(said)}))


def decode_unit(data: bytes) -> Unit:
    """What `encode_unit` gave."""
    entries = decode_table(data)
    said = msgspec.json.decode(entries.schema.metadata[_UNIT], type=_Said)
    plain = entries.replace_schema_metadata(None)
    known = said.generation, said.version, said.schema_version
    return Unit(said.start, said.seconds, said.loaded, *known, said.parts, plain)


# Units and the ticket: the reports of all parts of each unit, in any order of units.
Rewrite = Callable[[RelayoutTicket, Sequence[Unit]], Iterator[tuple[Unit, list[pa.Table]]]]
# Start and kind of a unit.
_Place = tuple[int, bool]
# Bytes done, of how many.
Progress = Callable[[int, int], None]


def run(
    relayouts: Relayouts,
    stream: str,
    owner: str,
    object_bytes_min: int | None,
    rewrite: Rewrite,
    progress: Progress | None = None,
) -> RelayoutReport:
    """Begin, plan, rewrite and commit until everything lies as the model says. The relayout is ended whatever
    happens."""
    total = RelayoutReport(stream, -1)
    overtaken: set[_Place] | None = None
    ticket: RelayoutTicket | None = None
    try:
        for _ in range(_ROUNDS):
            ticket = relayouts.begin(owner, object_bytes_min)
            with _renewed(relayouts, ticket):
                total, overtaken = _round(relayouts, ticket, overtaken, total, rewrite, progress)
            if not overtaken:
                return total
    finally:
        if ticket is not None:
            with contextlib.suppress(MillpondError):  # its lease ends by itself
                relayouts.end(ticket.id)
    raise SettleConflict(
        f"{len(overtaken or ())} time partitions of {stream} changed each of the {_ROUNDS} times they were rewritten",
        hint="what was rewritten stays; run it again when fewer others write",
    )


def _round(
    relayouts: Relayouts,
    ticket: RelayoutTicket,
    wanted: set[_Place] | None,
    total: RelayoutReport,
    rewrite: Rewrite,
    progress: Progress | None,
) -> tuple[RelayoutReport, set[_Place]]:
    """Do what is planned now (of `wanted`); what is done by then, and what was overtaken."""
    units = relayouts.plan(ticket.id)
    if wanted is not None:
        units = [unit for unit in units if (unit.start, unit.loaded) in wanted]
    definition = decode_definition(ticket.definition)
    ready = [unit for unit in units if unit.is_known_to(definition)]
    overtaken = {(unit.start, unit.loaded) for unit in units if not unit.is_known_to(definition)}
    done, size = total.bytes_before, sum(unit.bytes for unit in units)
    for unit, reports in rewrite(ticket, ready) if ready else ():
        report = relayouts.commit(ticket.id, unit, reports)
        if report is None:
            overtaken.add((unit.start, unit.loaded))
        else:
            total += report
        if progress is not None:
            progress(total.bytes_before, done + size)
    return total, overtaken


@contextlib.contextmanager
def _renewed(relayouts: Relayouts, ticket: RelayoutTicket) -> Iterator[None]:
    """While inside, the relayout's lease is kept alive, if it has one."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(ticket.lease_seconds / 4):
            try:
                relayouts.renew(ticket.id)
            except Fenced as error:
                logger.warning("%s", error.message)  # the next commit will be told
                return
            except MillpondError as error:
                logger.warning("a relayout's lease was not renewed: %s", error.message)

    if not ticket.lease_seconds:
        yield
        return
    thread = threading.Thread(target=renew, name="millpond-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
