"""Reading objects: only the columns and row groups that are needed, every byte checked on the way.

Objects are given by path; nothing is listed. With a predicate its own columns are read first, and the others only of
row groups in which something matches. What an object lacks because its column was added later reads as null.

Invariant: a changed byte is an error (`Damaged`), never a row. With an index entry all bytes read are checked against
its block checksums; without one (a damaged index file), pages are still checked by Parquet's own.

Nothing runs ahead of the caller: pyarrow's own scanner reads on in threads of its own, which call back into Python and
abort the process when a scan is given up shortly before the interpreter ends.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond.archive.checksums import CheckedFile
from millpond.archive.objects import parse_name
from millpond.archive.row_groups import row_groups
from millpond.archive.shape import conform
from millpond.errors import Damaged, MillpondError
from millpond.model.evaluate import Filter
from millpond.model.predicate import Predicate
from millpond.storage.protocol import Storage

# Up to this size an object is fetched in one piece: one read instead of footer, then columns.
_WHOLE_BYTES = 4 << 20
# Arrow's own default.
BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class ObjectToRead:
    """`checksums` is None where there is no index entry."""

    path: str
    size: int
    checksums: bytes | None

    @property
    def ours(self) -> bool:
        """Whether all bytes are checked to be those that we wrote. A rebuilt index has entries for the objects of other
        engines, too, which do not have our names."""
        return self.checksums is not None and parse_name(self.path) is not None


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate, and the same made ready for the schema that is read with."""

    predicate: Predicate
    passing: Filter


def read_object(
    storage: Storage,
    root: str,
    wanted: ObjectToRead,
    schema: pa.Schema,
    columns: Sequence[str],
    where: Condition | None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The rows of one object that pass, in their order. Empty batches are left out."""
    try:
        with open_object(storage, root, wanted) as source:
            file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
            for table in _tables(file, schema, columns, where, wanted.ours):
                for batch in table.to_batches(max_chunksize=batch_rows):
                    if batch.num_rows:
                        yield batch
    except MillpondError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise unreadable(wanted.path, error) from error


def _tables(
    file: pq.ParquetFile, schema: pa.Schema, columns: Sequence[str], where: Condition | None, ours: bool
) -> Iterator[pa.Table]:
    """A table per row group that has matching rows."""
    projected = pa.schema([schema.field(name) for name in columns])
    if where is None or where.passing.passes_all:
        for group in range(file.num_row_groups):
            yield _read_group(file, group, projected)
        return
    passing = where.passing
    judged = pa.schema([schema.field(name) for name in sorted(passing.columns)])
    rest = pa.schema([field for field in projected if field.name not in passing.columns])
    for group in row_groups(file, where.predicate, judged, ours=ours):
        read = _read_group(file, group, judged)
        mask = pa.chunked_array([passing.mask(batch) for batch in read.to_batches()], pa.bool_())
        if not pc.any(mask).as_py():
            continue
        for field, column in zip(rest, _read_group(file, group, rest).columns, strict=True):
            read = read.append_column(field, column)
        yield read.select(projected.names).filter(mask)


def _read_group(file: pq.ParquetFile, group: int, schema: pa.Schema) -> pa.Table:
    there = [name for name in schema.names if name in file.schema_arrow.names]
    return conform(file.read_row_group(group, columns=there), schema)


def open_object(storage: Storage, root: str, wanted: ObjectToRead) -> pa.NativeFile:
    """The object as a file that pyarrow can read."""
    path = posixpath.join(root, wanted.path)

    def read_at(start: int, length: int) -> bytes:
        return storage.read(path, start, length)

    if wanted.checksums is None:
        return pa.BufferReader(storage.read(path))
    checked = CheckedFile(wanted.path, wanted.size, wanted.checksums, read_at)
    if wanted.size <= _WHOLE_BYTES:
        return pa.BufferReader(checked.read())
    return pa.PythonFile(checked, mode="r")


def unreadable(path: str, error: Exception) -> Damaged:
    missing = isinstance(error, FileNotFoundError)
    return Damaged(
        f"settled object {path} {'is missing' if missing else f'cannot be read: {error}'}",
        hint="restore it from a backup, then run `millpond verify`",
    )
