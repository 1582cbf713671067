"""Single records, appended by many threads at once: encoded by the committer, answered each for itself (C4, K4)."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidRecord, PondClosed, StreamNotFound, TooLarge
from millpond.testing.engine_records import in_threads
from tests.pond.conftest import Ponds

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("key", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(10, 2)),
        ("body", pa.binary()),
    ]
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def record(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "key": f"k{number % 13}",
        "at": NOON + timedelta(seconds=number),
        "price": Decimal(number % 100) / 4,
        "body": None if number % 5 == 0 else bytes([number % 256]),
    }


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_every_caller_gets_its_own_offset_and_its_record_is_there(ponds: Ponds, durability: Any) -> None:
    """I2: through a reopen and a settle."""
    sent: dict[tuple[int, int], int] = {}
    with ponds() as pond:
        stream = pond.create_stream("s", SCHEMA, keys=["key"], streamlets=3, durability=durability)

        def produce(thread: int) -> None:
            for number in range(thread * 1_000, thread * 1_000 + 60):
                ((streamlet, offsets),) = stream.append(record(number)).ranges.items()
                assert len(offsets) == 1
                sent[streamlet, offsets.start] = number
                if number % 20 == 0:
                    assert number in stream.scan(f"id = {number}")["id"].to_pylist(), "readable at once"

        in_threads(8, produce)
    assert len(sent) == 480
    for settle in (False, True):
        with ponds() as pond:
            stream = pond.stream("s")
            if settle:
                stream.settle()
            found = stream.scan(columns=[*SCHEMA.names, "_streamlet", "_offset"]).to_pylist()
            assert {(row["_streamlet"], row["_offset"]): row["id"] for row in found} == sent
            for row in found:
                assert {name: row[name] for name in SCHEMA.names} == record(row["id"])


def test_a_record_that_does_not_fit_hurts_nobody_else(pond: millpond.Pond) -> None:
    stream = pond.create_stream("s", SCHEMA, keys=["key"], streamlets=2)
    outcomes: Counter[str] = Counter()
    bad: list[tuple[dict[str, Any], str]] = [
        ({**record(1), "id": None}, "column 'id'"),
        ({**record(1), "at": "yesterday"}, "column 'at'"),
        ({**record(1), "price": Decimal("0.001")}, "column 'price'"),
        ({**record(1), "key": "\ud800"}, "column 'key'"),
        ({"key": "k"}, "'id'"),
        ({**record(1), "more": 1}, "'more'"),
        ({}, "'id'"),
    ]

    def produce(thread: int) -> None:
        for number in range(40):
            row, said = bad[(number + thread) % len(bad)]
            with pytest.raises(InvalidRecord, match=said):
                stream.append(row)
            outcomes["refused"] += 1
            stream.append(record(thread * 100 + number))

    in_threads(6, produce)
    assert outcomes["refused"] == 240
    assert sorted(stream.scan()["id"].to_pylist()) == [t * 100 + n for t in range(6) for n in range(40)]


class Zone(tzinfo):
    """A time zone of somebody's own making."""

    seen: ClassVar[set[str]] = set()

    def utcoffset(self, _: datetime | None) -> timedelta:
        self.seen.add(threading.current_thread().name)
        return timedelta(hours=1)


@pytest.mark.embedded
@pytest.mark.parametrize(
    "odd",
    [
        {"at": NOON.replace(tzinfo=Zone())},
        {"id": np.int64(7)},
        {"key": np.str_("k7")},
        {"at": np.datetime64("2026-01-01T12:00:00", "us")},
        {"body": bytearray(b"x")},
    ],
    ids=lambda odd: type(next(iter(odd.values()))).__name__,
)
def test_values_that_run_code_of_their_own_do_not_do_so_in_the_committer(
    pond: millpond.Pond, odd: dict[str, Any]
) -> None:
    stream = pond.create_stream("s", SCHEMA)
    Zone.seen.clear()
    stream.append({**record(7), **odd})
    assert stream.count() == 1
    assert "millpond-committer" not in Zone.seen


def test_large_records_that_come_together_are_written_apart(ponds: Ponds) -> None:
    with ponds() as pond:
        stream = pond.create_stream("s", SCHEMA)
        in_threads(6, lambda thread: [stream.append({"id": thread, "body": bytes(700_000)}) for _ in range(2)])
    with ponds() as pond:
        assert Counter(pond.stream("s").scan(columns=["id"])["id"].to_pylist()) == Counter(dict.fromkeys(range(6), 2))


def test_a_record_over_the_bound_is_refused_alone(ponds: Ponds) -> None:
    with ponds(append_bytes_max=1_000_000) as pond:
        stream = pond.create_stream("s", SCHEMA)

        def produce(thread: int) -> None:
            for _ in range(5):
                if thread % 2:
                    with pytest.raises(TooLarge):
                        stream.append({"id": thread, "body": bytes(1_100_000)})
                else:
                    stream.append({"id": thread, "body": bytes(600_000)})

        in_threads(4, produce)
        assert stream.count() == 10


def test_streams_that_are_dropped_and_ponds_that_are_closed_take_nothing(ponds: Ponds) -> None:
    pond = ponds()
    stream, other = pond.create_stream("s", SCHEMA), pond.create_stream("t", SCHEMA)
    stream.append(record(1))
    pond.drop_stream("s")
    with pytest.raises(StreamNotFound):
        stream.append(record(2))
    pond.close()
    with pytest.raises(PondClosed):
        other.append(record(3))


def test_an_altered_stream_takes_the_new_column(ponds: Ponds) -> None:
    with ponds() as pond:
        stream = pond.create_stream("s", SCHEMA)
        stream.append(record(1))
        pond.alter_stream("s", SCHEMA.append(pa.field("note", pa.string())))
        stream.append({**record(2), "note": "new"})
        stream.append(record(3))
        assert stream.scan(columns=["id", "note"]).to_pylist() == [
            {"id": 1, "note": None},
            {"id": 2, "note": "new"},
            {"id": 3, "note": None},
        ]


@pytest.mark.embedded
def test_submitted_records_are_read_back_as_they_are(pond: millpond.Pond) -> None:
    """Of every kind that a door submits: JSON and dicts, with a schema and raw, with what they may leave out."""
    columns = [("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("tags", pa.list_(pa.string()))]
    typed = pond.create_stream("lab/typed", pa.schema(columns))
    raw = pond.create_stream("lab/raw")
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    def told(answer: millpond.Ack | None, error: BaseException | None) -> None:
        answers.put((answer, error))

    typed.submit_json(b'{"n": 1, "at": "2026-01-31T12:00:00Z", "tags": ["a"]}', told)
    typed.submit({"n": 2, "at": moment, "tags": None}, told)
    raw.submit({"body": b"plain"}, told)
    raw.submit({"body": b"whole", "headers": {"a": "b"}, "time": moment}, told)
    raw.submit_json(b'{"body": "text"}', told)
    for _ in range(5):
        answer, error = answers.get(timeout=30)
        assert error is None
        assert answer.durability == "disk"
    for bad in (b'{"n": "x"}', b"[1]", b"{", b"\xff"):
        with pytest.raises(InvalidRecord):
            typed.submit_json(bad, told)
    assert typed.scan().to_pylist() == [
        {"n": 1, "at": moment, "tags": ["a"]},
        {"n": 2, "at": moment, "tags": None},
    ]
    events = raw.scan().to_pylist()
    assert [event["body"] for event in events] == [b"plain", b"whole", b"text"]
    assert [event["headers"] for event in events] == [[], [("a", "b")], []]
    assert events[1]["time"] == moment
    assert all(event["time"] is not None for event in events)
