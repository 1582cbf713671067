"""The data sets of a pond, and the methods by which a pond shows them.

Each has a directory under `datasets/`, which its definition makes a data set: one without a definition was dropped, or
never came to be, and is removed when the pond looks at its data sets for the first time.
"""

from __future__ import annotations

import abc
import importlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from millpond.archive.dataset.definition import DatasetDefinition
from millpond.archive.dataset.store import FILE, DatasetStore
from millpond.clock import Clock
from millpond.errors import Damaged, DatasetExists, DatasetNotFound, InvalidName, MillpondError
from millpond.model.names import PART_LENGTH_MAX, check_name
from millpond.model.spec import GivenSpec
from millpond.pond.dataset import Dataset, Progress, active
from millpond.storage import Storage
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

    def create(self, name: str, made: Callable[[Callable[[DatasetDefinition], DatasetStore]], DatasetStore]) -> Dataset:
        """A new one: `made` is given what keeps a definition. It may take hours: nobody else waits for it."""
        with self._lock:
            if name in self._known() or name in self._making:
                raise DatasetExists(
                    f"data set {name!r} is there already",
                    hint="pond.dataset(name).refresh() brings it up to date; pond.drop_dataset(name) drops it",
                )
            self._making.add(name)
        try:
            found = Dataset(made(self._make), self._clock, self._pond_id)
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
                yield Dataset(DatasetStore.open(self._storage, directory), self._clock, self._pond_id)
            except (MillpondError, OSError) as error:
                told = error if isinstance(error, MillpondError) else Damaged(f"{directory}: {error}")
                logger.warning("a data set cannot be used: %s", told.message)
                self._damaged[name] = told


class WithDatasets(abc.ABC):
    """The methods of a pond that are about data sets."""

    _datasets: Datasets
    _clock: Clock

    @abc.abstractmethod
    def _changing(self) -> AbstractContextManager[None]: ...

    @abc.abstractmethod
    def _check_open(self) -> None: ...

    @abc.abstractmethod
    def _tell(self, change: Change) -> None: ...

    def index(
        self,
        path: str | os.PathLike[str],
        *,
        format: str,
        indexes: Sequence[GivenSpec] = (),
        name: str | None = None,
        options: Mapping[str, object] | None = None,
        schema: Any = None,
        spark: Any = None,
        progress: Progress | None = None,
    ) -> Dataset:
        """Index files that others wrote: a directory, a file, a pattern or a URL that Spark can read.

        `format`: csv, json, parquet, orc or text. `options`: Spark's own for that format (`{"header": True}`); the time
        zone of the session is kept with them. `schema`: a StructType, a pyarrow.Schema or a text ("vid string, temp
        double"); without one Spark infers it, once. `indexes`: what is known of each file: `[MinMax("temp"),
        Values("city")]`. Partitions in the names of directories (`dt=2017-08-21/`) need none. `name`: by default the
        last part of the path. `progress(files done, files in all)` is called on the way.
        """
        self._check_open()
        chosen = check_name(name if name is not None else name_of(os.fspath(path)))
        session = active(spark)
        ours = importlib.import_module("millpond.spark.datasets")

        def made(make: Callable[[DatasetDefinition], DatasetStore]) -> DatasetStore:
            store: DatasetStore = ours.create(
                make, chosen, path, format, indexes, options, schema, session, self._clock, progress
            )[0]
            return store

        found = self._datasets.create(chosen, made)
        self._tell(Change("created", chosen))
        return found

    def dataset(self, name_or_path: str | os.PathLike[str]) -> Dataset:
        """The data set of that name, or over that path; `DatasetNotFound` if there is none."""
        self._check_open()
        return self._datasets.get(os.fspath(name_or_path))

    def datasets(self) -> list[Dataset]:
        """All data sets, by name."""
        self._check_open()
        return self._datasets.all()

    def drop_dataset(self, name: str) -> None:
        """Forget a data set, with all that is known of its files. The files themselves are not touched."""
        self._check_open()
        self._tell(Change("dropped", self._datasets.drop(name)))

    def served_datasets(self) -> list[Dataset]:
        """For Spark's views."""
        return self.datasets()


def name_of(path: str) -> str:
    """A name from the last part of a path that can be part of one."""
    for part in reversed(re.split(r"[/\\]", path)):
        stem = part if part.startswith(".") else part.split(".")[0]
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("_.-")
        if name and not re.search(r"[*?{\[]", part):
            return name[:PART_LENGTH_MAX]
    raise InvalidName(f"{path!r} has no part that could be a name", hint="give a name")
