"""The methods of a pond that are about data sets: the same for an embedded pond and for a connected one."""

from __future__ import annotations

import abc
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from millpond.archive.dataset.definition import DatasetDefinition
from millpond.archive.dataset.keeper import DatasetKeeper
from millpond.clock import Clock
from millpond.errors import InvalidName
from millpond.model.names import PART_LENGTH_MAX, check_name
from millpond.model.spec import GivenSpec
from millpond.wire.dataset import Dataset, Progress, active
from millpond.wire.served import Change

# What keeps a definition, and what makes a data set with it.
Make: TypeAlias = Callable[[DatasetDefinition], DatasetKeeper]
Made: TypeAlias = Callable[[Make], DatasetKeeper]


class Shelf(Protocol):
    """The data sets of one pond. Thread-safe."""

    def all(self) -> list[Dataset]:
        """By name."""
        ...

    def get(self, wanted: str) -> Dataset:
        """By name, or by the path that was indexed."""
        ...

    def create(self, name: str, made: Made) -> Dataset:
        """A new one: `made` is given what keeps a definition. It may take hours: nobody else waits for it."""
        ...

    def drop(self, name: str) -> str:
        """The name of the one that was dropped."""
        ...


class WithDatasets(abc.ABC):
    """The methods of a pond that are about data sets."""

    _datasets: Shelf
    _clock: Clock

    @staticmethod
    @abc.abstractmethod
    def _jobs() -> ModuleType:
        """`millpond.spark.datasets`."""

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
        session, ours = active(spark, self._jobs), self._jobs()

        def made(make: Make) -> DatasetKeeper:
            store: DatasetKeeper = ours.create(
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
