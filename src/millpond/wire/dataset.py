"""A data set: files that others wrote, which a pond has indexed. Its files stay where and what they are.

The same for an embedded pond and for a connected one: who keeps it differs (`DatasetKeeper`), and Spark does the work.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.dataset.definition import DatasetDefinition
from millpond.archive.dataset.keeper import DatasetKeeper
from millpond.archive.dataset.report import DatasetStatus, RefreshReport
from millpond.archive.index.blobs import BlobWriter
from millpond.archive.index.entries import BYTES, ROWS
from millpond.clock import Clock
from millpond.errors import Backpressure, DatasetNotFound, Fenced, MillpondError
from millpond.model.spec import GivenSpec, Spec, as_spec

if TYPE_CHECKING:
    from types import ModuleType

Progress = Callable[[int, int], None]
# Gives `millpond.spark.datasets`, and so pyspark, to who needs it: rooms above this one know it by name.
Jobs: TypeAlias = "Callable[[], ModuleType]"


class Dataset:
    """Made by `pond.index`, found by `pond.dataset`. Thread-safe; one change at a time."""

    def __init__(self, store: DatasetKeeper, clock: Clock, pond_id: str, jobs: Jobs) -> None:
        self._store, self._clock, self._pond_id, self._jobs = store, clock, pond_id, jobs
        self._changing = threading.Lock()
        self._dropped = False

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def id(self) -> str:
        """Tells it from one of the same name that was dropped."""
        return self.definition.id

    @property
    def types(self) -> int:
        """Another number when its columns have other types, as those of partitions may."""
        return zlib.crc32(self.definition.partitions.encode())

    @property
    def path(self) -> str:
        """Where its files are."""
        return self.definition.path

    @property
    def format(self) -> str:
        """The format of its files."""
        return self.definition.files

    @property
    def indexes(self) -> tuple[Spec, ...]:
        return self.definition.specs

    @property
    def definition(self) -> DatasetDefinition:
        """All that is kept of it but its entries."""
        if self._dropped:
            raise DatasetNotFound(
                f"data set {self._store.definition.name!r} was dropped", hint="pond.index(...) makes it again"
            )
        return self._store.definition

    def to_spark(self, spark: Any) -> Any:
        """A Spark DataFrame of its files, read through the index. Each query sees the files that are there when it is
        planned: what was never indexed, or has changed since, is read."""
        _ = self.definition
        return self._jobs().dataset_frame(self._store, self._pond_id, spark)

    def refresh(self, spark: Any = None, *, progress: Progress | None = None) -> RefreshReport:
        """Find files that are new, have changed or are gone, and describe the first two by a Spark job. Without
        `spark` the active session is used. `progress(files done, files in all)` is called on the way."""
        with self._changing:
            self._begin()
            report: RefreshReport = self._jobs().refresh(self._store, active(spark, self._jobs), self._clock, progress)
            return report

    def rebuild(self, spark: Any = None, *, progress: Progress | None = None) -> RefreshReport:
        """Describe every file anew, with the settings of this session."""
        with self._changing:
            self._begin()
            report: RefreshReport = self._jobs().rebuild(self._store, active(spark, self._jobs), self._clock, progress)
            return report

    def add_index(self, *indexes: GivenSpec, spark: Any = None, progress: Progress | None = None) -> RefreshReport:
        """More indexes, e.g. `millpond.Values("city")` or "values:city", for all files."""
        with self._changing:
            self._begin()
            report: RefreshReport = self._jobs().add_index(
                self._store, indexes, active(spark, self._jobs), self._clock, progress
            )
            return report

    def drop_index(self, *indexes: GivenSpec) -> None:
        """Without these indexes: objects, "values(city)", or the name of a kind. No file is read for it."""
        with self._changing:
            self._begin()
            keys = [one if isinstance(one, str) else _key(one) for one in indexes]
            self._jobs().drop_index(self._store, keys, self._clock)

    def status(self) -> DatasetStatus:
        """As of the last refresh."""
        self._begin()
        definition = self.definition
        partitions = [field["name"] for field in msgspec.json.decode(definition.partitions)["fields"]]
        _, entries = self._store.entries()
        rows = entries.column(ROWS)
        return DatasetStatus(
            name=definition.name,
            id=definition.id,
            path=definition.path,
            format=definition.files,
            indexes=tuple(str(spec) for spec in definition.specs),
            partitions=tuple(partitions),
            files=entries.num_rows,
            bytes=int(pc.sum(entries.column(BYTES)).as_py() or 0),
            rows=None if rows.null_count else int(pc.sum(rows).as_py() or 0),
            indexed_micros=definition.indexed_micros,
            warnings=self._store.warnings(),
        )

    def _begin(self) -> None:
        """As it is now, if it still is."""
        _ = self.definition
        self._store.renew()

    @property
    def keeper(self) -> DatasetKeeper:
        """For those who serve it."""
        _ = self.definition
        return self._store

    def change(
        self, version: int, entries: pa.Table, blobs: BlobWriter, definition: DatasetDefinition | None, *, whole: bool
    ) -> DatasetDefinition:
        """What somebody elsewhere described: more entries, or with `whole` these in the place of all. `Fenced` if it
        is not of that version any more."""
        if not self._changing.acquire(blocking=False):
            raise Backpressure(f"data set {self.name!r} is being changed", hint="try again when that is done")
        try:
            known = self.definition
            if known.version != version:
                raise Fenced(
                    f"data set {known.name!r} was changed meanwhile: it is at version {known.version}, not {version}",
                    hint="refresh it: what has been described is kept",
                )
            if whole:
                self._store.rewrite(entries, blobs, self._clock.now_micros(), definition)
            else:
                self._store.add(entries, blobs, self._clock.now_micros())
            return self._store.definition
        finally:
            self._changing.release()

    def drop(self) -> None:
        """For the pond, which forgets it as well."""
        with self._changing:
            self._dropped = True
            try:
                self._store.drop()
            except MillpondError:  # refused, or not reached: it is there
                self._dropped = False
                raise

    def __repr__(self) -> str:
        return f"<millpond dataset {self._store.definition.name!r}, {self._store.definition.path}>"


def _key(given: GivenSpec) -> str:
    return as_spec(given).key


def active(spark: Any, jobs: Jobs) -> Any:
    """The session that was given, or the active one."""
    return spark if spark is not None else jobs().active_session()
