"""Writes the parts of the docs that are derived from the code: tables of settings and errors, examples of formats.

    python docs/generate.py            rewrites the marked parts of the pages in this directory

A part stands between `<!-- generated: name -->` and `<!-- end of name -->`. `tests/test_docs.py` renders the parts
again and fails if a page differs. The examples come from a real pond, made with a clock that stands still and attempt
ids that are counted instead of drawn; values that still differ from run to run, or with the version of a library, are
shown as `…`.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import millpond
from millpond import errors
from millpond.archive.index.entries import DIRECTORY as INDEX_DIRECTORY
from millpond.errors import MillpondError
from millpond.log.embedded import frame as frames
from millpond.log.embedded.journal_file import FILE_HEADER_BYTES, scan
from millpond.log.embedded.recovery import JournalState
from millpond.serve.metric_table import table_text
from millpond.serve.settings import ServeSettings, shown_default
from millpond.settings import settings_table
from millpond.testing import ManualClock

DOCS = Path(__file__).parent

# 2024-01-01T00:00:00Z, in microseconds.
START_MICROS = 1_704_067_200_000_000
POND_ID = "00112233445566778899aabbccddeeff"
METERS = pa.schema([("vid", pa.string()), ("temp", pa.float64()), ("date", pa.timestamp("us", tz="UTC"))])

_PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL)


# The example pond.


@contextmanager
def _counted_ids() -> Iterator[None]:
    """Ids that are random in life follow one another here."""
    count = itertools.count(1)

    def token_hex(size: int) -> str:
        return POND_ID if size == 16 else f"{next(count):0{2 * size}x}"

    with patch("secrets.token_hex", token_hex):
        yield


@cache
def example() -> dict[str, Any]:
    """A small pond's files, by name: what the examples are made of."""
    with tempfile.TemporaryDirectory() as scratch, _counted_ids():
        return _run(Path(scratch) / "pond")


def _run(root: Path) -> dict[str, Any]:
    clock = ManualClock(START_MICROS)
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    with millpond.open(root, clock=clock, background=False) as pond:
        meters = pond.create_stream("grid/meters", METERS, keys=["vid"], event_time="date", settle=millpond.Settle())
        clock.advance("1s")
        meters.append({"vid": "m1", "temp": 21.5, "date": noon}, producer="p1", sequence=7)
        journal = (root / "journal" / "000000000001.journal").read_bytes()
        meters.append({"vid": "m2", "temp": float("nan")})
        meters.settle()
        files: dict[str, Any] = {
            "journal": journal,
            "pond.json": (root / "pond.json").read_text(),
            "tree": [str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_file()],
        }
        archive = root / "archive" / "grid.meters-16"
        files["commit"] = (archive / "_delta_log" / f"{1:020d}.json").read_text()
        (entries,) = (archive / INDEX_DIRECTORY).glob("*.parquet")
        files["entries"] = pq.read_table(entries)
        (parquet,) = archive.glob("g00001/*/b0000-*.parquet")
        files["footer"] = pq.read_metadata(parquet).metadata
        meters.archive.checkpoint()
        files["last_checkpoint"] = (archive / INDEX_DIRECTORY / "_last_checkpoint").read_text()
    return files


# Rendering.


def _fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def _hex_lines(data: bytes, start: int, notes: list[tuple[int, str]]) -> Iterator[str]:
    """`data` as hex, one line per noted field (size, note), cut into lines of 16 bytes."""
    at = 0
    for size, note in notes:
        for offset in range(0, size, 16):
            piece = data[at + offset : at + min(size, offset + 16)]
            yield f"{start + at + offset:04x}  {piece.hex(' '):<47}  {note if offset == 0 else ''}".rstrip()
        at += size
    assert at == len(data), f"{at} bytes are explained, there are {len(data)}"


def _file_header() -> str:
    data = example()["journal"][:FILE_HEADER_BYTES]
    notes = [
        (8, 'magic "MILLPOND"'),
        (2, "format version 1"),
        (6, "zeros"),
        (8, "file number 1"),
        (16, "the pond's id"),
        (8, f"created, {START_MICROS} µs"),
        (12, "zeros"),
        (4, "crc32 of bytes 0 to 60"),
    ]
    return _fenced("\n".join(_hex_lines(data, 0, notes)))


def _frames() -> list[frames.Frame]:
    data = example()["journal"]
    return scan(memoryview(data), "example", 1, bytes.fromhex(POND_ID), last=True).frames


def _kind(frame: frames.Frame) -> str:
    return {frames.ROWS: "2, encoded rows", frames.STATE: "3, state"}[frame.kind]


def _frame(frame: frames.Frame, payload_note: str) -> str:
    data = example()["journal"][frame.position : frame.end]
    named = frames.HEADER_BYTES + len(frame.producer)
    padding, tail = -named % 8, -frame.payload_bytes % 8
    sequence = f"sequence {frame.sequence - 1}, plus one" if frame.sequence else "no sequence"
    notes = [
        (4, 'magic "MPFR"'),
        (4, "crc32 of the rest of the header and the producer"),
        (4, f"payload length {frame.payload_bytes}"),
        (4, "crc32 of the payload"),
        (1, f"kind {_kind(frame)}"),
        (1, "flags: last of its group"),
        (2, f"streamlet {frame.streamlet}"),
        (4, f"stream id {frame.stream}"),
        (4, f"generation {frame.generation}"),
        (4, f"rows {frame.rows}"),
        (8, f"first offset {frame.base}"),
        (8, f"{'ingest time' if frame.rows else 'written'}, {frame.ingest_micros} µs"),
        (8, f"synced up to byte {frame.synced} of this file"),
        (8, sequence),
        (4, f"schema version {frame.schema_version}"),
        (2, f"producer of {len(frame.producer)} bytes"),
        (10, "zeros"),
        *([(len(frame.producer), f'producer "{frame.producer.decode()}"')] if frame.producer else []),
        *([(padding, "zeros up to a multiple of 8")] if padding else []),
        (frame.payload_bytes, payload_note),
        *([(tail, "zeros up to a multiple of 8")] if tail else []),
    ]
    return _fenced("\n".join(_hex_lines(data, frame.position, notes)))


def _rows_frame() -> str:
    (found,) = [frame for frame in _frames() if frame.stream == 16]
    return _frame(found, 'one row: ["m1", 21.5, 1704110400000000]')


def _state_frame() -> str:
    found = _frames()[0]
    payload = example()["journal"][found.payload_at : found.payload_at + found.payload_bytes]
    state = msgspec.msgpack.decode(payload, type=JournalState)
    shown = json.dumps(msgspec.to_builtins(state, str_keys=True))
    return _frame(found, "MessagePack, see below") + f"\nIts payload, as JSON:\n\n{_fenced(shown, 'json')}"


def _pond_json() -> str:
    return _fenced(example()["pond.json"], "json")


def _tree() -> str:
    return _fenced("\n".join(example()["tree"]))


# What differs from run to run, or with the version of a library that writes it.
_VARIES = {"timestamp", "size", "modificationTime", "millpond.state", "millpond.previous_crc32", "millpond.index_crc32"}


def _settled(value: Any, name: str = "") -> Any:
    if name in _VARIES:
        return "…"
    if isinstance(value, dict):
        # deltalake writes these two in no particular order.
        keys = sorted(value) if name in ("commitInfo", "operationParameters") else value
        return {key: _settled(value[key], key) for key in keys}
    return value


def _commit() -> str:
    lines = []
    for text in example()["commit"].splitlines():
        action = _settled(json.loads(text))
        if "commitInfo" in action:
            info = action["commitInfo"]
            action["commitInfo"] = {key: info[key] for key in info if "delta-rs" not in str(info[key])}
        if "add" in action:
            action["add"] = {key: value for key, value in action["add"].items() if value is not None}
            action["add"]["stats"] = json.loads(action["add"]["stats"])
        lines.append(json.dumps(action, indent=2, ensure_ascii=False))
    return _fenced("\n".join(lines), "json")


def _entries() -> str:
    table = example()["entries"]
    (row,) = table.to_pylist()
    shown = {"bytes": "…", "blocks_crc32": "… (4 bytes)"}
    lines = ["| column | type | in the example |", "|---|---|---|"]
    for field in table.schema:
        value = row[field.name]
        text = shown.get(field.name) or ("null" if value is None else str(value))
        lines.append(f"| `{field.name}` | {field.type} | {text} |")
    return "\n".join(lines) + "\n"


def _footer() -> str:
    found = {name.decode(): value.decode() for name, value in example()["footer"].items()}
    lines = ["| key | in the example |", "|---|---|"]
    lines += [f"| `{name}` | `{found[name]}` |" for name in sorted(found) if name.startswith("millpond.")]
    return "\n".join(lines) + "\n"


def _last_checkpoint() -> str:
    found = json.loads(example()["last_checkpoint"])
    found |= {name: "…" for name in found if name.endswith("crc32")}
    return _fenced(json.dumps(found, ensure_ascii=False), "json")


def _settings() -> str:
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {_number(default)} | {doc} |" for name, default, doc in settings_table()]
    return "\n".join(lines) + "\n"


def _serve_settings() -> str:
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for each in fields(ServeSettings):
        lines.append(f"| `{each.name}` | {shown_default(each).replace(',', ' ')} | {each.metadata['doc']} |")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:,}".replace(",", " ")


def error_classes(base: type[MillpondError] = MillpondError) -> Iterator[type[MillpondError]]:
    """Every error, each below its base."""
    yield base
    for each in base.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from error_classes(each)


def _errors() -> str:
    lines = ["| code | class | meaning |", "|---|---|---|"]
    for each in error_classes():
        depth = len(each.__mro__) - len(MillpondError.__mro__)
        meaning = " ".join((each.__doc__ or "").split())
        lines.append(f"| `{each.code}` | {'· ' * depth}`{each.__name__}` | {meaning} |")
    return "\n".join(lines) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "settings": _settings,
    "serve-settings": _serve_settings,
    "errors": _errors,
    "metrics": table_text,
    "pond-json": _pond_json,
    "tree": _tree,
    "file-header": _file_header,
    "rows-frame": _rows_frame,
    "state-frame": _state_frame,
    "commit": _commit,
    "entries": _entries,
    "footer": _footer,
    "last-checkpoint": _last_checkpoint,
}


def rendered(page: str) -> str:
    """A page's text with every generated part made anew."""
    return _PART.sub(lambda found: found[1] + PARTS[found["name"]]() + found[3], page)


def parts_of(page: str) -> list[str]:
    """The names of the generated parts on a page."""
    return [found["name"] for found in _PART.finditer(page)]


def main() -> int:
    """Rewrite the pages that are out of date, and name them."""
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text()
        after = rendered(before)
        if after != before:
            path.write_text(after)
            print(f"rewritten: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
