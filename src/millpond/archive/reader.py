"""Reading objects: projection and filter applied inside the Parquet reader, every byte checked on the way.

Objects are given by path; nothing is listed. What an object lacks because its column was added later reads as null.

Invariant: a changed byte is an error (`Damaged`), never a row. With an index entry all bytes read are checked against
its block checksums; without one (a damaged index file), pages are still checked by Parquet's own.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds

from millpond.archive.checksums import CheckedFile
from millpond.errors import Damaged, MillpondError
from millpond.model.evaluate import Filter
from millpond.storage.protocol import Storage

# Up to this size an object is fetched in one piece: one read instead of footer, then columns.
_WHOLE_BYTES = 4 << 20
# Arrow's own default.
BATCH_ROWS = 1 << 17

_FORMAT = ds.ParquetFileFormat()
_OPTIONS = ds.ParquetFragmentScanOptions(pre_buffer=True, page_checksum_verification=True)


@dataclass(frozen=True, slots=True)
class ObjectToRead:
    """`checksums` is None where there is no index entry."""

    path: str
    size: int
    checksums: bytes | None


def read_object(
    storage: Storage,
    root: str,
    wanted: ObjectToRead,
    schema: pa.Schema,
    columns: Sequence[str],
    passing: Filter | None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The rows of one object that pass, in their order. Empty batches are left out."""
    try:
        scanner = ds.Scanner.from_fragment(
            _FORMAT.make_fragment(open_object(storage, root, wanted), file_size=wanted.size),
            schema=schema,
            columns=list(columns),
            filter=None if passing is None else passing.expression,
            batch_size=batch_rows,
            fragment_scan_options=_OPTIONS,
        )
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield batch
    except MillpondError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise unreadable(wanted.path, error) from error


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
