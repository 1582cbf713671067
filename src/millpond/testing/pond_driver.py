"""A pond and its model, driven together: each operation is told to the model, done, and its outcome told.

Shared by the state machine and the fault runs. With `tolerant`, errors of the disk are met and the work goes on: an
append that failed is one whose outcome is not known, unless its error says that nothing was kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import millpond
from millpond.clock import Clock
from millpond.errors import Backpressure, InvalidInput, MillpondError
from millpond.model.definition import Durability
from millpond.model.units import parse_seconds
from millpond.storage import Storage
from millpond.testing.manual_clock import ManualClock
from millpond.testing.pond_model import Attempt, PondModel, Row, StreamModel

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("city", pa.string()),
        ("temp", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
FORMS = ("dict", "dicts", "batch", "table", "pandas")
_CITIES = ("Nice", "Lyon", "Paris", "Zürich", None)
_TEMPS = (21.5, -3.25, float("nan"), float("inf"), None, 0.0)
_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def make_rows(ids: Sequence[int], filling: str = "") -> list[Row]:
    """Records that differ in every column, with nulls, NaN and an infinity among them, over a few days."""
    return [
        {
            "id": n,
            "city": _CITIES[n % len(_CITIES)],
            "temp": _TEMPS[n % len(_TEMPS)],
            "at": None if n % 11 == 10 else _DAY + timedelta(hours=n % 60, microseconds=n),
            "tags": None if n % 4 == 3 else [f"t{n}{filling}"] * (n % 3),
        }
        for n in ids
    ]


class PondDriver:
    """One pond at `path`, opened again and again, and the model of it."""

    def __init__(
        self,
        path: Path,
        storage: Storage,
        model: PondModel | None = None,
        *,
        clock: Clock | None = None,
        tolerant: bool = False,
        **settings: Any,
    ) -> None:
        self.path, self.storage, self.model = path, storage, model or PondModel()
        self.clock = clock or ManualClock()
        self.errors: list[Exception] = []
        self.pond: Any = None
        self._tolerant = tolerant
        self._settings = settings

    # The pond.

    def open(self) -> None:
        """Open the pond, which is not open."""
        with self._meeting_errors():
            self.pond = millpond.open(
                self.path, storage=self.storage, clock=self.clock, background=False, **self._settings
            )

    def close(self) -> None:
        """Close cleanly."""
        pond, self.pond = self.pond, None
        if pond is not None:
            with self._meeting_errors():
                try:
                    pond.close()
                except (MillpondError, OSError):
                    self.model.killed()  # it says so if what was acknowledged at `memory` is lost
                    raise
                self.model.closed_cleanly()

    def abandon(self) -> None:
        """The process is dead as far as the disk goes; end its threads."""
        pond, self.pond = self.pond, None
        if pond is not None:
            with contextlib.suppress(BaseException):
                pond.close()

    def check(self, *, resolve: bool = True) -> None:
        """Compare the pond with the model."""
        self.model.check(self.pond, resolve=resolve, now_micros=self.clock.now_micros())

    @contextlib.contextmanager
    def _meeting_errors(self) -> Iterator[None]:
        try:
            yield
        except (MillpondError, OSError) as error:
            if not self._tolerant:
                raise
            self.errors.append(error)

    def _usable(self, name: str) -> StreamModel | None:
        """The model of a stream that can be used now; None if an error has left it in doubt."""
        model = self.model.streams.get(name)
        return model if self.pond is not None and model is not None and model.exists else None

    # Streams.

    def create(self, name: str, *, durability: Durability = "disk", streamlets: int = 1, **how: Any) -> None:
        """A new stream; nothing if there may be one of that name."""
        if self.pond is None or name in self.model.streams:
            return
        archived = how.get("settle", True) is not None
        model = StreamModel(name, durability, SCHEMA.names, streamlets, archived, exists=None)
        self.model.streams[name] = model
        with self._meeting_errors():
            self.pond.create_stream(
                name, SCHEMA, keys=["id", "city"], durability=durability, streamlets=streamlets, **how
            )
            model.exists = True

    def alter(self, name: str) -> None:
        """Add a column."""
        model = self._usable(name)
        if model is None or model.altering is not None:
            return
        column = f"note{len(model.columns)}"
        model.altering = [*model.columns, column]
        with self._meeting_errors():
            schema = self.pond.stream(name).schema
            self.pond.alter_stream(name, schema.append(pa.field(column, pa.string())))
            model.columns, model.altering = model.altering, None

    def truncate(self, name: str) -> None:
        """Discard all records of a stream."""
        model = self._usable(name)
        if model is None or model.truncating:
            return
        model.truncating = True
        with self._meeting_errors():
            self.pond.stream(name).truncate()
            model.truncated()

    def shorten_ttl(self, name: str, ttl: str) -> None:
        """Records are kept for so long from now on; nothing if it is no less than before."""
        model, micros = self._usable(name), round(parse_seconds(ttl) * 1e6)
        if model is None or model.shortening is not None or micros >= (model.ttl_micros or micros + 1):
            return
        model.shortening = micros
        with self._meeting_errors():
            self.pond.alter_stream(name, ttl=ttl)
            model.ttl_micros, model.shortening = micros, None

    def drop_expired(self, name: str) -> None:
        """As the background does."""
        if self._usable(name) is None:
            return
        with self._meeting_errors():
            self.pond.stream(name).expiry.drop()

    def drop(self, name: str) -> None:
        model = self._usable(name)
        if model is None:
            return
        model.exists = None
        with self._meeting_errors():
            self.pond.drop_stream(name)
            del self.model.streams[name]

    # Records.

    def append(
        self,
        name: str,
        count: int,
        *,
        form: str = "dicts",
        durability: Durability | None = None,
        producer: str = "",
        sequence: int = 0,
        filling: str = "",
    ) -> None:
        """New records, handed over in one of the `FORMS`."""
        model = self._usable(name)
        if model is None:
            return
        rows = make_rows(self.model.new_ids(count), filling)
        for row in rows:
            row |= {column: f"{column} of {row['id']}" for column in model.columns[len(SCHEMA) :] if row["id"] % 2}
        self.send(name, model.sending(rows, durability, producer, sequence), form)

    def send(self, name: str, attempt: Attempt, form: str = "dicts") -> None:
        """Send an append, for the first time or again."""
        if self._usable(name) is None:
            return
        how: dict[str, Any] = {"producer": attempt.producer, "sequence": attempt.sequence} if attempt.producer else {}
        attempt.tries += 1
        attempt.sent_micros.append(self.clock.now_micros())
        with self._meeting_errors():
            stream = self.pond.stream(name)
            try:
                ack = stream.append(_formed(attempt.rows, form, stream.schema), durability=attempt.durability, **how)
            except (Backpressure, InvalidInput):
                attempt.refused()
                raise
            attempt.acked(ack)

    def settle(self, name: str) -> None:
        model = self._usable(name)
        if model is None or not model.archived:
            return
        with self._meeting_errors():
            self.pond.stream(name).settle()
            model.settled()

    def compact(self, name: str) -> None:
        """Merge small objects, however few there are."""
        if self._usable(name) is None:
            return
        with self._meeting_errors():
            self.pond.stream(name).archive.compact(least_objects=2)

    def checkpoint(self, name: str) -> None:
        if self._usable(name) is None:
            return
        with self._meeting_errors():
            self.pond.stream(name).archive.checkpoint()


def _formed(rows: list[Row], form: str, schema: pa.Schema) -> Any:
    if form == "dict" and len(rows) == 1:
        return rows[0]
    if form == "batch":
        return pa.RecordBatch.from_pylist(rows, schema=schema)
    if form == "table":
        half = len(rows) // 2
        batches = [pa.RecordBatch.from_pylist(part, schema=schema) for part in (rows[:half], rows[half:])]
        return pa.Table.from_batches(batches)
    if form == "pandas":
        # Through Arrow's own types: pandas' would make floats of whole numbers with nulls among them.
        return pa.Table.from_pylist(rows, schema=schema).to_pandas(types_mapper=_arrow_type)
    return rows


def _arrow_type(kind: pa.DataType) -> Any:
    import pandas as pd

    return pd.ArrowDtype(kind)
