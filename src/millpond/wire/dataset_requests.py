"""Requests about data sets. They are about the pond as a whole: reading takes the right to read all of it, and changes
the right to administrate it. Files are described where Spark runs; the node keeps what is known of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec

from millpond.wire.access import Right
from millpond.wire.request_base import Count, Name, Request, Stage

# The key of a schema's metadata under which `DatasetEntries` sends its `DatasetMark`.
MARK = b"millpond.dataset"

Id = Annotated[str, msgspec.Meta(max_length=64)]
# A definition as `msgspec` writes it: mostly the schema.
Definition = Annotated[str, msgspec.Meta(max_length=4_000_000)]


@dataclass(frozen=True, slots=True)
class DatasetMark:
    """A data set as it is now: its definition as JSON, the node's directory of it, and what could not be read."""

    definition: str
    directory: str
    warnings: tuple[str, ...] = ()


class ListDatasets(Request, frozen=True, tag="list-datasets"):
    """-> list of `DatasetMark`."""

    right: ClassVar[Right | None] = "read"


class DescribeDataset(Request, frozen=True, tag="describe-dataset"):
    """-> `DatasetMark`. `id`: the very data set that is meant."""

    right: ClassVar[Right | None] = "read"

    dataset: Name
    id: Id


class CreateDataset(Request, frozen=True, tag="create-dataset"):
    """-> `DatasetMark`. A data set of whose files nothing is known yet."""

    right: ClassVar[Right | None] = "admin"

    definition: Definition


class ChangeDataset(Request, frozen=True, tag="change-dataset"):
    """-> `DatasetMark`, with the last piece; nothing before. Entries for files of a data set of that version, in the
    order of `piece`: Arrow streams in base64, or, with `blobs`, the next bytes of the blobs of that name.
    `whole`: they take the place of all that were there, and `definition`, if it is not empty, of the old one."""

    right: ClassVar[Right | None] = "admin"

    dataset: Name
    id: Id
    version: Count
    change: Stage
    piece: Count
    pieces: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    data: Annotated[str, msgspec.Meta(max_length=2_000_000)]
    blobs: Annotated[str, msgspec.Meta(max_length=100)] = ""
    whole: bool = False
    definition: Definition = ""


class DropDataset(Request, frozen=True, tag="drop-dataset"):
    """-> nothing. The files themselves are not touched."""

    right: ClassVar[Right | None] = "admin"

    dataset: Name
    id: Id


class DatasetEntries(Request, frozen=True, tag="dataset-entries"):
    """What is known of each file, a row per file, with the `DatasetMark` that it belongs to."""

    right: ClassVar[Right | None] = "read"

    dataset: Name
    id: Id


DatasetCall = ListDatasets | DescribeDataset | CreateDataset | ChangeDataset | DropDataset
