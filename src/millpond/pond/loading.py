"""Loads into one stream's archive: who may load, and until when.

One load of a stream at a time, because a load's offsets begin where the last one's end. Its driver renews a lease; once
that has run out another may begin, and the first is fenced: its commit is refused by its id, whatever it has written.
Nothing of this is kept across a restart: a load that this process does not know cannot commit, and a driver that asks
whether it had committed is answered from the Delta log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.archive.load import Load, LoadReport
from millpond.archive.stream_archive import StreamArchive
from millpond.clock import Clock
from millpond.errors import Backpressure, Fenced, InvalidValue, Unavailable
from millpond.model.definition import StreamDefinition
from millpond.model.stored_definition import encode_definition
from millpond.pond.upkeep import Upkeep
from millpond.settings import Settings
from millpond.wire.bulk import LoadTicket

# A driver that pauses for garbage collection is back within this; one that died keeps others from loading for as long.
LEASE_SECONDS = 60.0


@dataclass
class _Current:
    load: Load
    owner: str
    until_seconds: float
    committing: bool = False
    reports: dict[int, pa.Table] = field(default_factory=dict)


class Loading:
    """Thread-safe."""

    def __init__(
        self,
        definition: Callable[[], StreamDefinition],
        archive: StreamArchive,
        clock: Clock,
        settings: Settings,
        upkeep: Upkeep,
    ) -> None:
        self._upkeep = upkeep
        self._definition, self._archive, self._clock, self._settings = definition, archive, clock, settings
        self._lock = threading.Lock()
        self._current: _Current | None = None

    def begin(self, owner: str, mark: str, number: int) -> LoadTicket | None:
        """See `Bulk.begin_load`. `Backpressure` while another load is alive."""
        definition = self._definition()
        if definition.settle is None:
            raise InvalidValue(
                f"{definition.name} is not archived",
                hint="write to its log, or create it with settle=Settle()",
            )
        with self._lock, self._upkeep.step():
            self._refuse_second(owner)
            load = self._archive.begin_load(self._clock.now_micros(), {mark: number} if mark else {})
            if load is None:
                return None
            self._current = _Current(load, owner, self._lease())
        root, size = self._archive.root, self._settings.block_bytes
        stored = self._archive.model()
        model = "" if stored is None else stored.model.encode().decode()
        least = self._settings.object_bytes_min
        return LoadTicket(load, encode_definition(definition), root, size, LEASE_SECONDS, model, least)

    def renew(self, load: str) -> None:
        """See `Bulk.renew_load`. A load is named by its id here."""
        with self._lock:
            self._own(load).until_seconds = self._lease()

    def commit(self, load: str, version: int, report: pa.Table, part: int = 0, parts: int = 1) -> LoadReport | None:
        """See `Bulk.commit_load`. A report may come in parts, any of them more than once; None until all are there.
        `version`: the load's, for one that this process does not know any more."""
        with self._lock:
            if self._current is None or self._current.load.id != load:
                done = self._archive.find_load(load, version)
                if done is not None:
                    return done
            current = self._own(load)
            if current.committing:
                raise Unavailable(f"the load {load[:40]} is being committed", hint="ask again in a moment")
            current.until_seconds = self._lease()
            current.reports[part] = report
            if len(current.reports) < parts:
                return None
            current.committing = True
        try:
            reports = [current.reports[at] for at in sorted(current.reports)]
            whole = pa.concat_tables(reports, promote_options="default")
            with self._upkeep.step():
                done = self._archive.commit_load(current.load, whole)
        except Unavailable:
            raise  # the last part is sent again, and the others are still needed
        except BaseException:
            current.reports.clear()
            raise
        finally:
            with self._lock:
                current.committing, current.until_seconds = False, self._lease()
        self.abort(load)
        return done

    def abort(self, load: str) -> None:
        """See `Bulk.abort_load`. A load that is not known is one that nothing will come of."""
        with self._lock:
            if self._current is not None and self._current.load.id == load and not self._current.committing:
                self._current = None

    def alive(self) -> bool:
        """Whether there is a load that may still commit. One whose lease has run out may not any more, once this was
        asked."""
        with self._lock:
            if self._current is not None and not self._held(self._current):
                self._current = None
            return self._current is not None

    def _lease(self) -> float:
        return self._clock.monotonic_seconds() + LEASE_SECONDS

    def _held(self, current: _Current) -> bool:
        return current.committing or self._clock.monotonic_seconds() < current.until_seconds

    def _refuse_second(self, owner: str) -> None:
        current = self._current
        if current is None or not self._held(current):
            return
        if current.owner == owner and not current.committing:
            return  # whoever left it behind is starting again
        left = max(1.0, current.until_seconds - self._clock.monotonic_seconds())
        raise Backpressure(
            f"{self._definition().name} is being loaded by another job",
            hint="one load of a stream at a time; try again when it is done",
            retry_after_seconds=left,
        )

    def _own(self, load: str) -> _Current:
        if self._current is None or self._current.load.id != load:
            raise Fenced(
                f"the load {load[:40]} into {self._definition().name} was given up: it was not heard of for "
                f"{LEASE_SECONDS:.0f} s, or the node was started again",
                hint="nothing of it is visible: load again",
            )
        return self._current
