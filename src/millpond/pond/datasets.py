"""The data sets of a pond, in its directory.

Each has a directory under `datasets/`, which its definition makes a data set: one without a definition was dropped, or
never came to be, and is removed when the pond looks at its data sets for the first time.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import threading
from collections.abc import Iterator
from types import ModuleType

import msgspec

from millpond.archive.dataset.definition import FORMATS, DatasetDefinition
from millpond.archive.dataset.store import FILE, DatasetStore
from millpond.clock import Clock
from millpond.errors import Damaged, DatasetExists, DatasetNotFound, InvalidInput, MillpondError
from millpond.model.names import check_name
from millpond.storage import Storage
from millpond.wire.dataset import Dataset
from millpond.wire.dataset_face import Made, WithDatasets
from millpond.wire.served import Change

logger = logging.getLogger(__name__)

DIRECTORY = "datasets"
# The names of directories that we make (`DatasetDefinition.directory`); whatever else is there is left alone.
_OURS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*-[0-9a-f]{8}")


class Datasets:
    """Those of one pond. Thread-safe."""

    def __init__(self, storage: Storage, root: str, clock: Clock, pond_id: str) -> None:
        self._storage, self._root, self._clock, self._pond_id = storage, os.path.join(root, DIRECTORY), clock, pond_id
        self._lock = threading.RLock()
        self._found: dict[str, Dataset] | None = None
        self._making: set[str] = set()
        self._damaged: dict[str, MillpondError] = {}

    def all(self) -> list[Dataset]:
        """By name."""
        with self._lock:
            return [self._known()[name] for name in sorted(self._known())]

    def get(self, wanted: str) -> Dataset:
        """By name, or by the path that was indexed."""
        with self._lock:
            known = self._known()
            if wanted in known:
                return known[wanted]
            path = os.path.abspath(wanted)
            for each in known.values():
                if each.path in (wanted, path):
                    return each
            for directory, error in self._damaged.items():
                if directory.rpartition("-")[0] == wanted.replace("/", "."):
                    raise error
            names = ", ".join(sorted(known)[:8]) or "none yet"
            raise DatasetNotFound(f"no data set {wanted!r}", hint=f"data sets: {names}")

    def create(self, name: str, made: Made) -> Dataset:
        """A new one: `made` is given what keeps a definition. It may take hours: nobody else waits for it."""
        with self._lock:
            if name in self._known() or name in self._making:
                raise DatasetExists(
                    f"data set {name!r} is there already",
                    hint="pond.dataset(name).refresh() brings it up to date; pond.drop_dataset(name) drops it",
                )
            self._making.add(name)
        try:
            found = Dataset(made(self._make), self._clock, self._pond_id, dataset_jobs)
            with self._lock:
                self._known()[name] = found
            return found
        finally:
            with self._lock:
                self._making.discard(name)

    def drop(self, name: str) -> str:
        """The name of the one that was dropped."""
        with self._lock:
            found = self.get(name)
            kept = found.name
            del self._known()[kept]
        found.drop()
        return kept

    def keep(self, definition: DatasetDefinition) -> Dataset:
        """One that somebody elsewhere describes; nothing is known of its files yet."""
        given = msgspec.structs.replace(definition, version=0, entries=(), indexed_micros=0)
        if not _OURS.fullmatch(given.directory) or given.files not in FORMATS:
            raise InvalidInput(
                f"not a data set: {given.directory!r} of {given.files!r}", hint="pond.index(...) makes one"
            )
        return self.create(check_name(given.name), lambda make: make(given))

    def _make(self, definition: DatasetDefinition) -> DatasetStore:
        return DatasetStore.create(self._storage, os.path.join(self._root, definition.directory), definition)

    def _known(self) -> dict[str, Dataset]:
        if self._found is None:
            self._found = {each.name: each for each in self._open_all()}
        return self._found

    def _open_all(self) -> Iterator[Dataset]:
        for name in self._storage.list(self._root):
            directory = os.path.join(self._root, name)
            if not self._storage.exists(os.path.join(directory, FILE)):
                if _OURS.fullmatch(name):
                    self._storage.remove_tree(directory)
                continue
            try:
                yield Dataset(DatasetStore.open(self._storage, directory), self._clock, self._pond_id, dataset_jobs)
            except (MillpondError, OSError) as error:
                told = error if isinstance(error, MillpondError) else Damaged(f"{directory}: {error}")
                logger.warning("a data set cannot be used: %s", told.message)
                self._damaged[name] = told


def dataset_jobs() -> ModuleType:
    """What Spark does for data sets."""
    return importlib.import_module("millpond.spark.datasets")


class PondDatasets(WithDatasets):
    """The methods of an embedded pond."""

    _datasets: Datasets
    _jobs = staticmethod(dataset_jobs)

    @property
    def clock(self) -> Clock:
        return self._clock

    def keep_dataset(self, definition: DatasetDefinition) -> Dataset:
        """For those who describe its files elsewhere."""
        self._check_open()
        found = self._datasets.keep(definition)
        self._tell(Change("created", found.name))
        return found
