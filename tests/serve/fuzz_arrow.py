"""Throws mutated Arrow at everything that takes it, in a process of its own: its exit code tells of a crash.

`python -m tests.serve.fuzz_arrow SEED COUNT` says how many were taken and how many refused.
"""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.errors import MillpondError
from millpond.ingest import Ingest
from millpond.pond import desk
from millpond.pond.definition_calls import schema_of
from millpond.serve.forms import ARROW
from millpond.serve.records_in import decode_records
from millpond.serve.settings import ServeSettings
from tests.serve.payloads import RAW, TYPED, arrow_stream, mutated, table


def appended(body: bytes, definition: Any) -> None:
    rows = decode_records(definition, {"content-type": ARROW}, body, ServeSettings())
    for part in Ingest(definition).prepare(rows, 0):
        if part.batch is not None:
            part.batch.validate(full=True)
            part.batch.to_pylist()


def _one_key() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("key", pa.string())])) as writer:
        writer.write_table(pa.table({"key": ["m-17"]}))
    return bytes(sink.getvalue())


TARGETS: list[tuple[bytes, Callable[[bytes], Any]]] = [
    (arrow_stream(), lambda body: appended(body, TYPED)),
    (arrow_stream("zstd"), lambda body: appended(body, TYPED)),
    (arrow_stream("lz4"), lambda body: appended(body, TYPED)),
    (arrow_stream(), lambda body: appended(body, RAW)),
    (_one_key(), lambda body: desk._exact(base64.b64encode(body).decode())),
    (bytes(table().schema.serialize()), lambda body: schema_of(None, base64.b64encode(body).decode())),
]


def main(seed: int, count: int) -> None:
    chance = random.Random(seed)
    taken = refused = 0
    for number in range(count):
        data, target = TARGETS[number % len(TARGETS)]
        body = mutated(data, chance) if number >= len(TARGETS) else data
        try:
            target(body)
            taken += 1
        except MillpondError:
            refused += 1
        except BaseException:
            print(f"number {number}: {body!r}", file=sys.stderr)
            raise
    print(taken, refused)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
