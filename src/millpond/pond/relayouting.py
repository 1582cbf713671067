"""Models and relayouts of one stream: what queries teach its layout, and who rewrites its objects, until when.

One relayout of a stream at a time. One that runs in this process holds its place until it ends; a driver elsewhere
renews a lease, and once that has run out another may begin and the first is fenced: its commits are refused by its id.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from millpond.archive.analysis import Analysis, analysed, check_better_by, past_queries, sample_object, to_read
from millpond.archive.layout.layout import Layout
from millpond.archive.layout.registry import decode_model
from millpond.archive.relayout import Overtaken, RelayoutReport, Unit, plan, rewrite
from millpond.archive.stream_archive import StreamArchive
from millpond.clock import Clock
from millpond.errors import Backpressure, Fenced, InvalidInput, InvalidValue
from millpond.model.definition import StreamDefinition
from millpond.model.past_query import PastQuery
from millpond.model.schema import stored_schema
from millpond.model.stored_definition import decode_definition, encode_definition
from millpond.model.units import Duration, parse_seconds
from millpond.pond.history import QueryHistory
from millpond.pond.upkeep import Upkeep
from millpond.settings import Settings
from millpond.wire.relayout import CurrentModel, RelayoutTicket, UnitAnswer

# A driver that pauses for garbage collection is back within this; one that died keeps others out for as long.
LEASE_SECONDS = 60.0


@dataclass
class _Current:
    ticket: RelayoutTicket
    owner: str
    until_seconds: float
    # What was planned, what of it was reported (by part and piece), and what was answered, for those who commit from
    # elsewhere.
    units: dict[tuple[int, bool], Unit] = field(default_factory=dict)
    reports: dict[tuple[int, bool], dict[int, list[pa.Table | None]]] = field(default_factory=dict)
    answers: dict[tuple[int, bool], UnitAnswer] = field(default_factory=dict)
    # Held by who commits from elsewhere: whoever asks again meanwhile waits for the first one's answer.
    committing: threading.Lock = field(default_factory=threading.Lock)


class Relayouting:
    """A `Relayouts`. Thread-safe."""

    def __init__(
        self,
        definition: Callable[[], StreamDefinition],
        archive: StreamArchive,
        clock: Clock,
        settings: Settings,
        history: QueryHistory,
        upkeep: Upkeep,
    ) -> None:
        self._definition, self._archive, self._storage = definition, archive, archive.snapshot().storage
        self._clock, self._settings, self._history, self._upkeep = clock, settings, history, upkeep
        self._lock = threading.Lock()
        self._current: _Current | None = None

    # What queries teach.

    def analyse(self, period: Duration, better_by: float, swap: bool, draw: Any = None) -> Analysis:
        """See `Stream.analyse`. `draw`: who reads the sample; None: this process."""
        check_better_by(better_by)
        self._upkeep.check()
        known = self._archive.model()
        model, found = analysed(
            self._definition(),
            self._layout(),
            None if known is None else known.model,
            self._archive.snapshot(refresh=True),
            self.past_queries(),
            draw or self._draw,
            seconds=parse_seconds(period),
            better_by=better_by,
        )
        if found.swapped and swap:
            with self._upkeep.step():
                self._archive.put_model(model)
        return found if swap else replace(found, swapped=False)

    def past_queries(self) -> list[PastQuery]:
        """What is on record of the stream, as a layout can learn from it."""
        definition = self._definition()
        return past_queries(self._history.read(definition.id), stored_schema(definition.schema))

    def current_model(self) -> CurrentModel:
        """The model that counts, for who makes the analysis elsewhere."""
        self._layout()
        known = self._archive.model()
        return CurrentModel("" if known is None else known.model.encode().decode())

    def put_model(self, given: str, layout: str, instead_of: str) -> None:
        """The model that an analysis elsewhere found better: it counts from now on, unless things have changed."""
        here, known = self._layout(), self._archive.model()
        if str(here.spec) != layout or ("" if known is None else known.model.id) != instead_of:
            raise InvalidValue(
                f"{self._definition().name} has another layout or model than the analysis began with",
                hint="make the analysis again",
            )
        try:
            model = decode_model(given)
        except ValueError as error:
            raise InvalidValue(f"not a model of a layout: {error}", hint="send what `encode` gave") from error
        if model.kind != here.name or not set(model.columns) <= set(here.columns):
            raise InvalidValue(f"a model of {model.kind} over {model.columns}", hint=f"the layout is {here.spec}")
        with self._upkeep.step():
            self._archive.put_model(model)

    def _draw(self, entries: pa.Table, columns: Sequence[str], rows: Sequence[int]) -> Iterator[pa.Table]:
        schema = stored_schema(self._definition().schema)
        for wanted, count in zip(to_read(entries), rows, strict=True):
            yield sample_object(self._storage, self._archive.root, schema, wanted, columns, count)

    def _layout(self) -> Layout:
        layout = self._archive.layout
        if layout is None:
            name = self._definition().name
            raise InvalidValue(
                f"{name} has no layout", hint=f'pond.alter_stream("{name}", layout=KdTree("lat", "lon")) gives it one'
            )
        return layout

    # Rewriting.

    def begin(self, owner: str, object_bytes_min: int | None, lease_seconds: float = 0.0) -> RelayoutTicket:
        """See `Relayouts.begin`."""
        chosen = object_bytes_min
        self._upkeep.check()
        self._layout()
        if self._archive.model() is None and len(self._archive.snapshot(refresh=True).objects):
            self.analyse("7d", 0.0, swap=True)
        known = self._archive.model()
        model = "" if known is None else known.model.encode().decode()
        least = self._settings.object_bytes_min if chosen is None else chosen
        definition = self._archive.definition  # as it is now: an analysis may have taken its time
        with self._lock:
            self._refuse_second(owner)
            ticket = RelayoutTicket(
                secrets.token_hex(8), encode_definition(definition), self._archive.root, model, least, lease_seconds
            )
            self._current = _Current(ticket, owner, self._lease(lease_seconds))
        return ticket

    def plan(self, relayout: str) -> list[Unit]:
        """See `Relayouts.plan`."""
        ticket = self._own(relayout).ticket
        snapshot = self._archive.snapshot(refresh=True)
        if not ticket.model:
            return []
        model = decode_model(ticket.model)
        units = plan(snapshot, self._archive.definition, model, object_bytes_min=ticket.object_bytes_min)
        with self._lock:
            current = self._own(relayout)
            current.units = {(unit.start, unit.loaded): unit for unit in units}
            current.reports, current.answers = {}, {}
        return units

    def rewrite(self, ticket: RelayoutTicket, units: Sequence[Unit]) -> Iterator[tuple[Unit, list[pa.Table]]]:
        """Rewrite units in this process, one part after the other."""
        definition, model, layout = decode_definition(ticket.definition), decode_model(ticket.model), self._layout()
        least = ticket.object_bytes_min
        for unit in units:
            reports = []
            for part in range(unit.parts):
                self._upkeep.check()
                reports.append(
                    rewrite(self._storage, ticket.root, definition, layout, model, unit, part, object_bytes_min=least)
                )
            yield unit, reports

    def renew(self, relayout: str) -> None:
        """See `Relayouts.renew`."""
        with self._lock:
            current = self._own(relayout)
            current.until_seconds = self._lease(current.ticket.lease_seconds)

    def commit(self, relayout: str, unit: Unit, reports: Sequence[pa.Table]) -> RelayoutReport | None:
        """See `Relayouts.commit`."""
        self.renew(relayout)
        self._definition()  # an error if it was dropped
        try:
            with self._upkeep.step():
                return self._archive.relayout(unit, reports)
        except Overtaken:
            return None

    def commit_part(
        self, relayout: str, start: int, loaded: bool, part: int, report: pa.Table, piece: int = 0, pieces: int = 1
    ) -> UnitAnswer:
        """As `commit`, for one who sends what the parts of a planned unit reported one after the other, in any order
        and any of them more than once; a report may come in pieces. What was committed is answered as the first
        time."""
        place = start, loaded
        with self._lock:
            current = self._own(relayout)
        with current.committing:
            known = current.answers.get(place)
            if known is not None:
                return known
            unit = current.units.get(place)
            if unit is None or part >= unit.parts:
                raise InvalidInput(f"part {part} of a unit at {start} was not planned", hint="plan first")
            reports = current.reports.setdefault(place, {})
            told = reports.setdefault(part, [None] * pieces)
            if piece >= pieces or len(told) != pieces:
                raise InvalidInput(
                    f"piece {piece} of {pieces} of a report that has {len(told)}",
                    hint="a report is sent in one number of pieces",
                )
            told[piece] = report
            whole = [joined for at in sorted(reports) if (joined := _joined(reports[at])) is not None]
            if len(whole) < unit.parts:
                return UnitAnswer(False)
            answer = current.answers[place] = UnitAnswer(True, self.commit(relayout, unit, whole))
            del current.reports[place]
            return answer

    def end(self, relayout: str) -> None:
        """See `Relayouts.end`."""
        with self._lock:
            if self._current is not None and self._current.ticket.id == relayout:
                self._current = None

    def alive(self) -> bool:
        """Whether there is a relayout that may still commit. One whose lease has run out may not any more, once this
        was asked."""
        with self._lock:
            if self._current is not None and self._clock.monotonic_seconds() >= self._current.until_seconds:
                self._current = None
            return self._current is not None

    def _lease(self, seconds: float) -> float:
        return self._clock.monotonic_seconds() + seconds if seconds else float("inf")

    def _refuse_second(self, owner: str) -> None:
        current = self._current
        if current is None or current.owner == owner or self._clock.monotonic_seconds() >= current.until_seconds:
            return
        left = current.until_seconds - self._clock.monotonic_seconds()
        raise Backpressure(
            f"{self._definition().name} is being laid out anew by another job",
            hint="one relayout of a stream at a time; try again when it is done",
            retry_after_seconds=min(max(1.0, left), LEASE_SECONDS),
        )

    def _own(self, relayout: str) -> _Current:
        if self._current is None or self._current.ticket.id != relayout:
            raise Fenced(
                f"the relayout {relayout[:40]} of {self._definition().name} was given up: it was not heard of for "
                f"{LEASE_SECONDS:.0f} s, or the node was started again",
                hint="what it has committed stays: run it again for the rest",
            )
        return self._current


def _joined(pieces: Sequence[pa.Table | None]) -> pa.Table | None:
    """A report from its pieces; None while some are to come."""
    found = [piece for piece in pieces if piece is not None]
    if len(found) < len(pieces):
        return None
    return pa.concat_tables(found, promote_options="default").replace_schema_metadata(found[0].schema.metadata)
