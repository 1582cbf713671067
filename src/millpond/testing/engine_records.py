"""The records that the contract suites of log engines append, and small ways to append and read them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.log.engine import Ack, LogEngine, Part, Told
from millpond.model.definition import Durability, StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.model.rows import codec_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
STREAMLETS = 3
STREAM = StreamDefinition(7, "contract/stream", (SCHEMA,), keys=("id", "name"), streamlets=STREAMLETS)
OTHER = StreamDefinition(8, "contract/other", (SCHEMA,), streamlets=1)
# Some moment; its microseconds are not zero, so that a coarser clock would show.
INGEST = 1_767_225_600_123_456
# Long enough for two busy cores, short enough to fail a test rather than hang it.
DEADLINE_SECONDS = 30.0


def row_of(number: int) -> dict[str, Any]:
    """A record whose every column says which one it is; every fifth name and seventh value is null."""
    return {
        "id": number,
        "name": None if number % 5 == 4 else f"name-{number % 10}",
        "value": None if number % 7 == 6 else number / 4,
    }


def arrow_part(streamlet: int, numbers: range, schema: pa.Schema = SCHEMA) -> Part:
    """A part as a batch."""
    batch = pa.RecordBatch.from_pylist([row_of(n) for n in numbers], schema=schema)
    return Part(streamlet, len(numbers), batch=batch)


def encoded_part(streamlet: int, numbers: range, schema: pa.Schema = SCHEMA) -> Part:
    """A part as encoded rows."""
    codec = codec_of(schema)
    return Part(streamlet, len(numbers), encoded=codec.encode(codec.validate([row_of(n) for n in numbers])))


def append(
    engine: LogEngine,
    *parts: Part,
    stream: StreamDefinition = STREAM,
    durability: Durability = "disk",
    producer: str = "",
    sequence: int = 0,
) -> Ack:
    """An append at a fixed time."""
    return engine.append(
        stream.id, parts, ingest_micros=INGEST, durability=durability, producer=producer, sequence=sequence
    )


def submit(
    engine: LogEngine,
    *parts: Part,
    told: Told,
    durability: Durability = "disk",
    producer: str = "",
    sequence: int = 0,
    after: object = None,
) -> object:
    """An append at a fixed time that nobody waits for."""
    return engine.submit(
        STREAM.id,
        parts,
        told,
        ingest_micros=INGEST,
        durability=durability,
        producer=producer,
        sequence=sequence,
        after=after,
    )


def rows_of(
    engine: LogEngine, streamlet: int, start: int = 0, stop: int | None = None, *, stream: int = STREAM.id, **how: Any
) -> list[dict[str, Any]]:
    """The records of a range, as dicts."""
    stop = engine.heads(stream)[streamlet] if stop is None else stop
    batches = engine.read(stream, streamlet, OffsetRange(start, stop), **how)
    return [row for batch in batches for row in batch.to_pylist()]


def ids_of(engine: LogEngine, streamlet: int, start: int = 0, stop: int | None = None, **how: Any) -> list[int]:
    """The `id` column of a range."""
    return [row["id"] for row in rows_of(engine, streamlet, start, stop, **how)]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)` to `work(count - 1)` at once; the first error of any of them is raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(DEADLINE_SECONDS)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive(), "an engine call did not return"
    if errors:
        raise errors[0]
