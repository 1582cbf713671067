"""The servers that Flight's figures are taken from, each in a process of its own: `python -m benchmarks.flight_servers
pond|bare DIR`. The location is printed; the process ends when its standard input does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

import millpond
from benchmarks import records
from millpond.flight import FlightDoor
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.serve.memory import save_memory
from millpond.wire.access import EVERYTHING

TOKEN = "bench"
SEALED_BATCHES = 160
SEALED_ROWS = 10_000


class Bare(flight.FlightServerBase):
    """Discards what is put, sends what it has in a list, gives back what is exchanged."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches
        super().__init__("grpc://127.0.0.1:0")

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        for _ in reader:
            pass

    def do_get(self, context: Any, ticket: Any) -> Any:
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(self._batches[0].schema, self._batches))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        begun = False
        for chunk in reader:
            if not begun:
                writer.begin(chunk.data.schema)
                begun = True
            writer.write_batch(chunk.data)


def _serve_bare() -> None:
    server = Bare([])
    _tell(bare=f"grpc://127.0.0.1:{server.port}")
    sys.stdin.read()
    server.shutdown()


def _serve_pond(directory: str) -> None:
    """A pond behind its door, with a stream of sealed live segments; and the very same batches in a list. Memory is
    taken as the server itself takes it."""
    save_memory()
    with millpond.open(os.path.join(directory, "pond"), background=False, memory_bytes=512_000_000) as pond:
        sealed = pond.create_stream("bench/sealed", records.SCHEMA, settle=None)
        for number in range(SEALED_BATCHES):
            sealed.append(records.batch(number, SEALED_ROWS), durability="os")
        log = sealed.halves.log
        log.seal(sealed.definition.id)  # type: ignore[attr-defined]
        log.tend()  # type: ignore[attr-defined]
        pond.create_stream("bench/put", records.SCHEMA, keys=["vid"], settle=None, memory="128MB")
        pond.create_stream("bench/push", records.SCHEMA, settle=None)
        kept = [batch.select(records.SCHEMA.names) for batch in sealed.read(columns=[*records.SCHEMA.names, "_offset"])]
        bare = Bare(kept)
        door = FlightDoor(PondDesk(pond, SecretGate(TOKEN, EVERYTHING)), token=TOKEN)
        _tell(bare=f"grpc://127.0.0.1:{bare.port}", pond=door.location)
        sys.stdin.read()
        bare.shutdown()
        door.close()


def _tell(**locations: str) -> None:
    print(json.dumps(locations), flush=True)


@contextmanager
def serving(*what: str) -> Iterator[dict[str, str]]:
    """A server's locations, for as long as it is needed."""
    command = [sys.executable, "-m", "benchmarks.flight_servers", *what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            late = threading.Timer(30, process.kill)
            late.start()
            process.wait()
            late.cancel()


if __name__ == "__main__":
    _serve_bare() if sys.argv[1] == "bare" else _serve_pond(sys.argv[2])
