"""Payloads that a door is sent, right ones and mutations of them, for tests that throw them at decoders."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

import pyarrow as pa

from millpond.model.definition import StreamDefinition
from millpond.model.schema import RAW_EVENTS, TIMESTAMP
from millpond.serve import cloudevents
from millpond.serve.forms import ARROW, CSV, JSON, NDJSON

SCHEMA = pa.schema(
    [
        pa.field("vid", pa.string(), nullable=False),
        ("temp", pa.float64()),
        ("n", pa.int16()),
        ("at", TIMESTAMP),
        ("day", pa.date32()),
        ("price", pa.decimal128(20, 2)),
        ("ok", pa.bool_()),
        ("blob", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("pos", pa.struct([("lat", pa.float64()), ("raw", pa.binary())])),
        ("attrs", pa.map_(pa.string(), pa.int8())),
    ]
)
TYPED = StreamDefinition(2, "grid/meters", (SCHEMA,), keys=("vid",), streamlets=2)
RAW = StreamDefinition(3, "events", (RAW_EVENTS,), raw=True)

ROW = {
    "vid": 'm-é\n"1',
    "temp": -1.5e300,
    "n": -32768,
    "at": "2026-01-31T12:00:00.123456Z",
    "day": "1999-12-31",
    "price": "-123456789012345678.99",
    "ok": True,
    "blob_base64": "AP/+",
    "tags": ["a", None, ""],
    "pos": {"lat": 0.1, "raw": "x"},
    "attrs": {"k": 127},
}
ROWS = [ROW, {"vid": "m2"}, {**ROW, "temp": None}]
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "2026-01-31T12:00:00Z", "data": ROW}
BASE64_EVENT = {**{k: v for k, v in EVENT.items() if k != "data"}, "data_base64": "eyJ2aWQiOiAieCJ9"}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _lines(values: list[Any]) -> bytes:
    return b"".join(_json(value) + b"\n" for value in values)


def table() -> pa.Table:
    """Records of every kind, in columns."""
    return pa.table(
        {
            "vid": ["a", "b", "c"],
            "temp": [1.0, None, float("nan")],
            "n": pa.array([1, 2, None], pa.int16()),
            "blob": [b"\x00", None, b"\xff"],
            "tags": [["x"], [], None],
            "pos": pa.array([{"lat": 1.0, "raw": b"r"}, None, {"lat": None, "raw": None}], SCHEMA.field("pos").type),
            "attrs": pa.array([[("k", 1)], [], None], SCHEMA.field("attrs").type),
            "word": pa.array(["p", "q", "p"]).dictionary_encode(),
        }
    ).drop_columns(["word"])


def arrow_stream(compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table().schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table())
    return bytes(sink.getvalue())


_BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "ce-time": "2026-01-31T12:00:00Z"}
_CSV = b'vid,temp,n,ok,at\nm1,1.5,3,true,2026-01-31T12:00:00Z\n"a,""b",,,,\n'

# Headers and body of requests that are right for a stream with columns.
PAYLOADS: list[tuple[dict[str, str], bytes]] = [
    ({"content-type": JSON}, _json(ROW)),
    ({"content-type": JSON}, _json(ROWS)),
    ({}, _json(ROW)),
    ({"content-type": NDJSON}, _lines(ROWS)),
    ({"content-type": CSV}, _CSV),
    ({"content-type": ARROW}, arrow_stream()),
    ({"content-type": ARROW}, arrow_stream("zstd")),
    ({"content-type": cloudevents.STRUCTURED}, _json(EVENT)),
    ({"content-type": cloudevents.STRUCTURED}, _json(BASE64_EVENT)),
    ({"content-type": cloudevents.BATCHED}, _json([EVENT, BASE64_EVENT])),
    ({"content-type": JSON, **_BINARY}, _json(ROW)),
]
COMPRESSED = [gzip.compress(body) for _, body in PAYLOADS]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """`data` with a few of the things done to it that go wrong with bytes: flipped, cut, doubled, spliced."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(6):
            case 0 if found:
                found[at % len(found)] ^= 1 << chance.randrange(8)
            case 1 if found:
                found[at % len(found)] = chance.choice(b'\x00\xff\x7f{}[]",:\n0-9e')
            case 2:
                del found[at:]
            case 3:
                del found[at : at + chance.randint(1, 8)]
            case 4:
                found[at:at] = chance.randbytes(chance.randint(1, 8))
            case 5:
                start = chance.randrange(len(found) + 1)
                found[at:at] = found[start : start + chance.randint(1, 64)]
    return bytes(found)
