"""What readers of an archive are shown: one frozen snapshot at a time.

A snapshot is never of a generation that has ended: a truncation is shown at once, without waiting for a running writer,
and what that writer has come to is not shown any more. `renew` and the filters are called by one writer at a time.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from millpond.archive.index.filters import Filter
from millpond.archive.ledger import Ledger
from millpond.archive.snapshot import SettledSnapshot
from millpond.archive.truncate import is_owed
from millpond.model.schema import stored_schema
from millpond.storage.protocol import Storage

_OWED = "the table does not know yet that the stream was truncated; the next settle tells it"


class Shown:
    """`snapshot` and `generation` may be read from any thread."""

    def __init__(self, storage: Storage, ledger: Ledger) -> None:
        self._storage, self._ledger = storage, ledger
        self._lock = threading.Lock()  # held for a moment
        self._filters: tuple[Filter, ...] = ()
        self.generation = ledger.definition.generation
        self.snapshot = self._take()

    def renew(self) -> None:
        """Show what the ledger has come to."""
        with self._lock:
            if self._ledger.definition.generation >= self.generation:  # else it is of a generation that has ended
                self.snapshot = self._take()

    def begin_generation(self, generation: int) -> None:
        """The stream was truncated: nothing has settled. Any thread."""
        with self._lock:
            if generation > self.generation:
                self.generation = generation
                self.snapshot = replace(self.snapshot, boundary={}, objects=self._ledger.nothing, generation=generation)

    def add_filter(self, filter: Filter) -> None:
        """Queries are to ask this one, too."""
        self._filters = (*self._filters, filter)
        self.renew()

    def remove_filter(self, filter: Filter) -> None:
        """Queries are not to ask it any more."""
        self._filters = tuple(one for one in self._filters if one is not filter)
        self.renew()

    def _take(self) -> SettledSnapshot:
        ledger, state = self._ledger, self._ledger.state
        definition = ledger.definition
        schema = stored_schema(definition.schema)
        if state is None:
            return SettledSnapshot(
                -1,
                {},
                ledger.nothing,
                ledger.root,
                schema,
                self._storage,
                generation=definition.generation,
                filters=self._filters,
            )
        warnings = (*state.warnings, *ledger.indexes.warnings, *((_OWED,) if is_owed(ledger) else ()))
        return SettledSnapshot(
            state.version,
            state.boundary,
            state.objects,
            ledger.root,
            schema,
            self._storage,
            warnings,
            definition.generation,
            self._filters,
        )
