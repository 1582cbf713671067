"""Arrow Flight against bare Flight servers: batches in, sealed segments out, and how soon a follower is sent a record.
Client and servers are processes of their own; ours and the baseline take turns."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

import msgspec
import numpy as np
from pyarrow import flight as arrow_flight

from benchmarks import records
from benchmarks.append import touch_memory
from benchmarks.figures import report, talk
from benchmarks.flight_servers import TOKEN, serving
from millpond.flight import FlightLink
from millpond.wire.requests import Append, Read
from millpond.wire.ticket import decode_ticket

PUT_BYTES = 200_000_000
ROUNDS = 7
PINGS = 2_000


def flight() -> bool:
    """All figures of the Flight door."""
    with (
        tempfile.TemporaryDirectory() as directory,
        serving("bare") as bare,
        serving("pond", directory) as ours,
        FlightLink(ours["pond"], TOKEN) as link,
        arrow_flight.connect(bare["bare"]) as plain,
        arrow_flight.connect(ours["bare"]) as listed,
    ):
        met = [_put(ours["pond"], plain, 10_000, ">= 0.4"), _put(ours["pond"], plain, 1_000, ">= 0.25")]
        met.append(_get(link, listed))
        met += _push(ours["pond"], plain)
    return all(met)


def _turns(ours: Callable[[], float], plain: Callable[[], float]) -> tuple[list[float], list[float]]:
    """What both measure, one right after the other, after one turn that warms up."""
    found: list[tuple[float, float]] = []
    for _ in range(ROUNDS + 1):
        touch_memory()
        mine = ours()
        touch_memory()
        found.append((mine, plain()))
    del found[0]
    return [each[0] for each in found], [each[1] for each in found]


def _middle(ours: list[float], plain: list[float]) -> tuple[float, float]:
    return sorted(zip(ours, plain, strict=True), key=lambda turn: turn[0] / turn[1])[len(ours) // 2]


def _options() -> arrow_flight.FlightCallOptions:
    return arrow_flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])


def _put(location: str, plain: arrow_flight.FlightClient, rows: int, target: str) -> bool:
    """Bytes per second at `os` until the last acknowledgement, against a server that discards. The same kind of client
    at both: what is compared are the servers."""
    made = [records.batch(number, rows) for number in range(32)]
    size = made[0].nbytes
    count = PUT_BYTES // size

    def ours() -> float:
        with arrow_flight.connect(location) as client:
            began = time.perf_counter()
            command = _command(Append("bench/put", durability="os"))
            writer, acks = client.do_put(command, records.SCHEMA, _options())
            for number in range(count):
                writer.write_batch(made[number % len(made)])
            writer.done_writing()
            notes = [acks.read() for _ in range(count)]
            taken = time.perf_counter() - began
            writer.close()
        if any(b'"ranges"' not in note.to_pybytes() for note in notes):
            raise AssertionError("not every batch was acknowledged")
        return count * size / taken

    def discard() -> float:
        began = time.perf_counter()
        writer, _ = plain.do_put(arrow_flight.FlightDescriptor.for_path("x"), records.SCHEMA)
        for number in range(count):
            writer.write_batch(made[number % len(made)])
        writer.close()
        return count * size / (time.perf_counter() - began)

    found = _turns(ours, discard)
    talk(f"put of {rows:,} rows, MB/s: {[[round(each / 1e6) for each in side] for side in found]}")
    name = f"Flight put at os, {rows:,}-row batches ÷ a server that discards"
    return report(name, *_middle(*found), target, "bytes/s")


def _get(link: FlightLink, listed: arrow_flight.FlightClient) -> bool:
    """Bytes per second of sealed live segments, against a server that sends the same batches from a list."""
    info = link.flight_info("bench/sealed")
    ticket = decode_ticket(info.endpoints[0].ticket.ticket)

    def taken(batches: object) -> float:
        began = time.perf_counter()
        size = sum(batch.nbytes for batch in batches)  # type: ignore[attr-defined]
        return float(size / (time.perf_counter() - began))

    found = _turns(
        lambda: taken(link.fetch(ticket).batches),
        lambda: taken(chunk.data for chunk in listed.do_get(arrow_flight.Ticket(b""))),
    )
    talk(f"get, MB/s: {[[round(each / 1e6) for each in side] for side in found]}")
    return report(
        "Flight get of sealed live segments ÷ a server that has them in a list", *_middle(*found), ">= 0.7", "bytes/s"
    )


def _command(request: Append | Read) -> arrow_flight.FlightDescriptor:
    return arrow_flight.FlightDescriptor.for_command(msgspec.json.encode(request))


def _push(location: str, plain: arrow_flight.FlightClient) -> list[bool]:
    """Seconds from an append to its push, at `os`, against a batch that comes straight back."""
    batch = records.batch(1, 1)
    writer, reader = plain.do_exchange(arrow_flight.FlightDescriptor.for_path("x"))
    writer.begin(records.SCHEMA)

    def round_trip() -> float:
        began = time.perf_counter()
        writer.write_batch(batch)
        reader.read_chunk()
        return time.perf_counter() - began

    # The same kind of client at both: what is compared are the servers.
    with arrow_flight.connect(location) as appending, arrow_flight.connect(location) as following:
        options = _options()
        put, acks = appending.do_put(_command(Append("bench/push", durability="os")), records.SCHEMA, options)
        read = Read("bench/push", start="latest", follow=True)
        granting, pushed = following.do_exchange(_command(read), options)
        granting.write_metadata(b'{"credit": 1000000000}')
        pushed.read_chunk()  # where it begins

        def push() -> float:
            began = time.perf_counter()
            put.write_batch(batch)
            while pushed.read_chunk().data is None:
                granting.write_metadata(b'{"credit": 0}')  # a heartbeat
            taken = time.perf_counter() - began
            acks.read()
            return taken

        for _ in range(100):
            push(), round_trip()
        ours, bare = [], []
        for _ in range(PINGS // 100):  # in turns, a hundred at a time
            ours += [push() for _ in range(100)]
            bare += [round_trip() for _ in range(100)]
            granting.write_metadata(b'{"credit": 0}')
        granting.done_writing()
        pushed.cancel()
        put.close()
    writer.close()
    met = []
    for part in (50, 99):
        ours_part, bare_part = (float(np.percentile(each, part)) * 1e6 for each in (ours, bare))
        name = f"append to push at os, p{part} ÷ a bare Flight round trip"
        met.append(report(name, ours_part, bare_part, "<= 4", "µs"))
    return met
