"""Who keeps a data set: its definition, and the entries of its files. The same at a pond and by a connection to one."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from millpond.archive.dataset.definition import DatasetDefinition
from millpond.archive.index.blobs import BlobWriter
from millpond.archive.index.view import Blobs


class DatasetKeeper(Protocol):
    """Thread-safe for reading; changes are made by one thread at a time, and durable when they return."""

    @property
    def definition(self) -> DatasetDefinition:
        """As it was last seen."""
        ...

    @property
    def blobs(self) -> Blobs:
        """What is too large for an entry."""
        ...

    def renew(self) -> None:
        """See what others have changed. Called before a change that depends on the definition."""
        ...

    def entries(self) -> tuple[DatasetDefinition, pa.Table]:
        """All entries as they are now, one per path, and the definition that they belong to."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What could not be read of them."""
        ...

    def add(self, entries: pa.Table, blobs: BlobWriter, changed_micros: int) -> None:
        """More entries, for files that have none that count."""
        ...

    def rewrite(
        self, entries: pa.Table, blobs: BlobWriter, changed_micros: int, definition: DatasetDefinition | None = None
    ) -> None:
        """These entries in the place of all that were there, and this definition."""
        ...

    def drop(self) -> None:
        """It is no data set any more."""
        ...
