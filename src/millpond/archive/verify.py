"""Verification: every byte and every count of an archive, checked against everything that speaks of it.

Four accounts must agree: the Delta log (which objects, how large, how many rows, the boundary), the index entries
(bounds, checksums), the objects themselves (pages, footers, rows), and arithmetic: per streamlet the offsets of all
objects together are exactly [0, boundary), each once (those of loads have gaps), without as many as the commits say
that have expired. What differs becomes a finding;
verification goes on, changes nothing and deletes nothing.
"""

from __future__ import annotations

import json
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.archive.checksums import block_checksums
from millpond.archive.commit_file import LOG_DIRECTORY
from millpond.archive.index.minmax import MAX, MIN, NULLS
from millpond.archive.objects import offset_ranges
from millpond.archive.snapshot import SettledSnapshot
from millpond.archive.table import UNREADABLE, DeltaLog
from millpond.archive.verify_log import expired_rows, verify_log
from millpond.errors import MillpondError
from millpond.model.findings import Finding
from millpond.model.schema import OFFSET, STREAMLET
from millpond.model.stats import ColumnRange, collect_stats
from millpond.storage.protocol import Storage

Progress = Callable[[int, int], None]

_RESTORE = "restore it from a backup; reads that need it fail until then"
_OUTSIDE = "rows were added, changed or removed by something that is not Millpond, or the log is damaged"


def verify_archive(
    storage: Storage,
    snapshot: SettledSnapshot,
    delta: DeltaLog,
    loads: int,
    generation: int,
    progress: Progress | None = None,
) -> Iterator[Finding]:
    """All findings of one archive. `delta`: a table that was not loaded yet; `loads`: the streamlet of loads."""
    yield from verify_log(storage, snapshot.root)
    claims: Mapping[str, Mapping[str, Any]] = {}
    if snapshot.version >= 0:
        try:
            delta.load()
            missing = delta.missing_columns(snapshot.schema)
            claims = delta.claims()
        except (MillpondError, *UNREADABLE) as error:
            yield Finding("error", LOG_DIRECTORY, f"deltalake cannot load the table: {error}", _RESTORE)
        else:
            if missing:
                hint = "the next settle adds them; until then other engines do not see them"
                yield Finding("warning", LOG_DIRECTORY, f"the table lacks columns {missing}", hint)
    expired = expired_rows(storage, snapshot.root, generation, snapshot.version)
    yield from Verification(snapshot, claims, loads, expired).run(progress)


class Verification:
    """One pass over the objects of one snapshot. `claims`: what the Delta log says of them (see `DeltaLog.claims`);
    `expired`: how many records may be missing rightly."""

    def __init__(
        self, snapshot: SettledSnapshot, claims: Mapping[str, Mapping[str, Any]], loads: int, expired: int
    ) -> None:
        self._snapshot = snapshot
        self._expired = expired
        self._loads = loads
        self._claims = claims
        self._runs: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._unread = False

    def run(self, progress: Progress | None = None) -> Iterator[Finding]:
        """Findings as they are made. Reads every object whole, one at a time."""
        snapshot = self._snapshot
        for warning in snapshot.warnings:
            yield Finding("warning", snapshot.root, warning, "objects without an index entry are read by every query")
        for at in range(len(snapshot.objects)):
            yield from self._object(at)
            if progress is not None:
                progress(at + 1, len(snapshot.objects))
        if not self._unread:
            yield from self._offsets()

    def _object(self, at: int) -> Iterator[Finding]:
        snapshot = self._snapshot
        wanted = snapshot.object_at(at)
        path = posixpath.join(snapshot.root, wanted.path)

        def wrong(message: str, hint: str = _RESTORE) -> Finding:
            return Finding("error", wanted.path, message, hint)

        try:
            data = snapshot.storage.read(path)
        except OSError as error:
            self._unread = True
            yield wrong(f"cannot be read: {error}")
            return
        if len(data) != wanted.size:
            yield wrong(f"has {len(data)} bytes, the table says {wanted.size}")
        if wanted.checksums is not None and block_checksums(data) != wanted.checksums:
            yield wrong("its bytes are not those that were written (block checksums differ)")
        try:
            table, description = _decode(data)
            columns = collect_stats(table)
            self._add_runs(table)
        except (OSError, pa.ArrowException, MillpondError, KeyError, ValueError) as error:
            self._unread = True
            yield wrong(f"is not a readable Parquet object: {error}")
            return
        rows = int(snapshot.objects.rows[at])
        if table.num_rows != rows:
            yield wrong(f"has {table.num_rows} rows, the table says {rows}")
        stated = {str(s): [r.start, r.stop] for s, r in offset_ranges(table).items()}
        if description is not None and json.loads(description) != stated:
            yield wrong(f"says that it holds offsets {description}, and holds {json.dumps(stated)}")
        if wanted.checksums is None:
            hint = "its index file is gone or damaged: the object is read by every query, checked page by page only"
            yield Finding("warning", wanted.path, "has no index entry", hint)
        entry = snapshot.objects.entries.slice(at, 1).to_pylist()[0]
        for problem in _outside(columns, table.num_rows, lambda kind, name: entry.get(kind + name)):
            yield wrong(
                f"its index entry is wrong: {problem}",
                "queries may have skipped it: remove the file in _index that has its entry; then it is always read",
            )
        there = self._claims.get(wanted.path, {})
        for problem in _outside(columns, table.num_rows, lambda kind, name: there.get(_DELTA[kind] + name)):
            yield wrong(f"its statistics in the Delta log are wrong: {problem}", "other engines may skip it wrongly")

    def _add_runs(self, table: pa.Table) -> None:
        """Offsets as runs without a gap: few numbers for many rows."""
        streamlets, offsets = (table.column(name).to_numpy() for name in (STREAMLET, OFFSET))
        for streamlet in np.unique(streamlets).tolist():
            own = np.sort(offsets[streamlets == streamlet])
            edges = np.flatnonzero(np.diff(own) != 1)
            starts = own[np.concatenate(([0], edges + 1))]
            stops = own[np.concatenate((edges, [len(own) - 1]))] + 1
            self._runs[streamlet] += zip(starts.tolist(), stops.tolist(), strict=True)

    def _offsets(self) -> Iterator[Finding]:
        boundary = self._snapshot.boundary
        missing: list[tuple[str, int, int]] = []
        for streamlet in sorted({*boundary, *self._runs}):
            reached, end = 0, boundary.get(streamlet, 0)
            for start, stop in [*sorted(self._runs.get(streamlet, [])), (end, end)]:
                where = f"streamlet {streamlet}"
                if start < reached:
                    yield Finding("error", where, f"offsets [{start}, {min(stop, reached)}) are there twice", _OUTSIDE)
                elif start > reached and streamlet != self._loads:
                    missing.append((where, reached, start))
                reached = max(reached, stop)
        rows = sum(stop - start for _, start, stop in missing)
        if rows != self._expired:
            told = f" ({self._expired} records have expired, {rows} are missing)" if self._expired else ""
            for where, start, stop in missing:
                yield Finding("error", where, f"offsets [{start}, {stop}) are missing{told}", _OUTSIDE)
            if not missing:
                yield Finding(
                    "error", "the log", f"{self._expired} records have expired, and none is missing", _OUTSIDE
                )


_DELTA = {MIN: "min.", MAX: "max.", NULLS: "null_count."}


def _decode(data: bytes) -> tuple[pa.Table, str | None]:
    """All rows, with page checksums verified, and what the object says of its offsets."""
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    stated = (file.metadata.metadata or {}).get(b"millpond.offsets")
    table = file.read()
    table.validate(full=True)
    return table, None if stated is None else stated.decode()


def _outside(columns: Mapping[str, ColumnRange], rows: int, claimed: Callable[[str, str], Any]) -> Iterator[str]:
    """Where a claim does not bound the data. No claim (None) is never wrong."""
    for name, found in columns.items():
        low, high, nulls = (claimed(kind, name) for kind in (MIN, MAX, NULLS))
        if nulls is not None and nulls != found.nulls:
            yield f"{name} has {found.nulls} nulls, not {nulls}"
        if found.nulls == rows:
            continue  # bounds of nothing bound it
        if low is not None and (found.min is None or low > found.min):
            yield f"{name} goes down to {found.min!r}, not {low!r}"
        if high is not None and (found.max is None or high < found.max):
            yield f"{name} goes up to {found.max!r}, not {high!r}"
