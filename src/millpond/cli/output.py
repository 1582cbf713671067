"""The one place that prints. Data goes to stdout, talk to stderr, so that a pipe carries data only.

With `--json` whatever goes to stdout is JSON: one object on one line, or, for lists and records, one object a line
(NDJSON). Without it, people get aligned text. Text that comes from records is shown with its control characters
escaped: a record must not be able to move the cursor of whoever looks at it.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from millpond.cli.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

# How many rows of a table decide how wide its columns are.
TABLE_ROWS = 1_000

Value = Any  # whatever msgspec can encode: None, numbers, text, times, sequences, mappings, dataclasses


class Output:
    """What one command prints, and how. Not thread-safe; `progress` is."""

    def __init__(self, *, json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self.json, self.quiet, self.verbose = json, quiet, verbose

    # Talk.

    def say(self, text: str) -> None:
        """Something worth knowing; `--quiet` leaves it out."""
        if not self.quiet:
            _talk(text)

    def detail(self, text: str) -> None:
        """Something that only `--verbose` shows."""
        if self.verbose:
            _talk(text)

    def warn(self, text: str) -> None:
        """Something to look at. Not left out by `--quiet`."""
        _talk(f"warning: {text}")

    def error(self, code: str, message: str, hint: str = "", **more: Value) -> None:
        """Why the command ends here. With `--json`: one object on stderr."""
        if self.json:
            _talk(_encode({"code": code, "message": message, "hint": hint, **more}))
            return
        _talk(f"error: {message}")
        if hint:
            _talk(f"hint: {hint}")

    def progress(self, label: str, *, unit: str = "", total: float | None = None) -> Progress:
        """A bar on stderr that appears when work takes long and somebody is looking. A context manager."""
        return Progress(label, unit=unit, total=total, shown=not self.quiet and sys.stderr.isatty())

    # Data.

    def one(self, value: Mapping[str, Value], *, text: str | None = None) -> None:
        """One thing: a JSON object, or `text`, or its fields, one a line."""
        if self.json:
            _print(_encode(value))
        elif text is not None:
            _print(text)
        else:
            width = max((len(name) for name in value), default=0)
            for name, each in value.items():
                _print(f"{name:<{width}}  {shown(each)}".rstrip())

    def line(self, text: str) -> None:
        """A line of text that is the answer itself."""
        _print(text)

    def several(self, things: Iterable[Mapping[str, Value]], columns: Sequence[str]) -> None:
        """A list of things of one kind: NDJSON with all fields, or a table of `columns`."""
        if self.json:
            for thing in things:
                _print(_encode(thing))
            return
        table = _Table(columns)
        table.add([[thing.get(name) for name in columns] for thing in things])
        table.end()

    def records(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, form: str | None) -> int:
        """Records, in the form asked for: "ndjson", "csv", "arrow" or "table". How many there were."""
        form = "ndjson" if self.json or form is None else form
        if form == "table":
            return self._record_table(batches, schema)
        from millpond.ingest.text import writer_of

        written, out = 0, _whole(sys.stdout.buffer)
        with writer_of(form, out, schema) as writer:
            for batch in batches:
                writer.write(batch)
                out.flush()
                written += batch.num_rows
        out.flush()
        return written

    def _record_table(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
        table, written = _Table(schema.names), 0
        for batch in batches:
            for start in range(0, batch.num_rows, TABLE_ROWS):
                piece = batch.slice(start, TABLE_ROWS)
                table.add(list(zip(*(column.to_pylist() for column in piece.columns), strict=True)))
                written += piece.num_rows
        table.end()
        return written

    def default_form(self) -> str:
        """How records are printed when nobody says: a table for people, NDJSON for pipes."""
        return "table" if sys.stdout.isatty() and not self.json else "ndjson"


def _whole(out: BinaryIO) -> BinaryIO:
    """A stdout that writes all of what it is given or fails. Where PYTHONUNBUFFERED is set it is a bare file, which may
    write a part and say nothing."""
    return open(out.fileno(), "wb", closefd=False) if isinstance(out, io.RawIOBase) else out


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _talk(text: str) -> None:
    sys.stdout.flush()  # so that the two keep their order where they meet, on a terminal
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _encode(value: Value) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def shown(value: Value) -> str:
    """A value for people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, bytes):
        return repr(value)[2:-1]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{shown(k)}: {shown(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(each) for each in value) + "]"
    return escaped(str(value).replace("+00:00", "Z"))


def escaped(text: str) -> str:
    """`text` with everything that is not printable written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class _Table:
    """Aligned columns; numbers to the right. A terminal gets lines of its width, a pipe gets all of every value.

    Widths are those of the first rows: a long table is printed as it comes, and a wider value later pushes its line."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._widths: list[int] = []
        self._right: list[bool] = []
        self._limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def add(self, rows: Sequence[Sequence[Value]]) -> None:
        cells = [[shown(value) for value in row] for row in rows]
        if not self._widths:
            self._begin(rows, cells)
        for line in cells:
            self._print(line)

    def end(self) -> None:
        """A table without rows still has a head."""
        if not self._widths:
            self._begin([], [])

    def _begin(self, rows: Sequence[Sequence[Value]], cells: Sequence[Sequence[str]]) -> None:
        for at, name in enumerate(self._columns):
            self._widths.append(max([len(name), *(len(row[at]) for row in cells)]))
            there = [row[at] for row in rows if row[at] is not None]
            self._right.append(bool(there) and all(map(_is_number, there)))
        self._print(self._columns)
        self._print(["-" * width for width in self._widths])

    def _print(self, line: Sequence[str]) -> None:
        padded = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, self._widths, self._right, strict=True)
        ]
        text = "  ".join(padded).rstrip()
        _print(text if self._limit is None or len(text) <= self._limit else text[: self._limit - 1] + "…")


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def leave_stdout_quietly() -> None:
    """Whoever read our output is gone: nothing more is written, and the interpreter does not complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
