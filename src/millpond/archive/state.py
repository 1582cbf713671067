"""What a table holds at a version, folded into one number that every commit of ours carries.

The number is the sum of a hash per live object (path, bytes, rows) and per streamlet (app transaction, boundary),
modulo 2**128. A sum can be carried forward by adding and subtracting, and does not depend on an order. Whoever loads
the table computes it again from what was loaded: if the two differ, some byte of the log, of a checkpoint, or of the
way in between is not what was written, and nothing is served from it.

Left out: the statistics in add actions, which Millpond does not use (see `index/`), and the schema, which is compared
with the stream's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.commit_file import CommitFile
from millpond.archive.object_index import ObjectIndex
from millpond.archive.objects import NAME_NUMBERS
from millpond.archive.table import DeltaLog
from millpond.errors import Damaged
from millpond.model.definition import StreamDefinition
from millpond.model.schema import stored_schema

_MODULUS = 1 << 128


@dataclass(frozen=True, eq=False)
class TableState:
    """A version of the table. `objects` are those of the stream's generation, the digest is of all."""

    version: int
    boundary: Mapping[int, int]
    objects: ObjectIndex
    objects_digest: int
    warnings: tuple[str, ...] = ()


def app_id(pond_id: str, definition: StreamDefinition, streamlet: int) -> str:
    """Names a streamlet's boundary among the app transactions of the table."""
    return f"{pond_id}/{definition.id}/g{definition.generation}/s{streamlet}"


def objects_digest(objects: Iterable[tuple[str, int, int | None]]) -> int:
    """Of (path, bytes, rows) each."""
    return sum(_hash(f"{path}|{size}|{rows}") for path, size, rows in objects) % _MODULUS


def changed_digest(digest: int, added: int, removed: int) -> int:
    return (digest + added - removed) % _MODULUS


def state_text(digest: int, transactions: Mapping[str, int]) -> str:
    """The number for the commit: live objects and boundary together."""
    boundary = sum(_hash(f"{name}={version}") for name, version in transactions.items())
    return f"{(digest + boundary) % _MODULUS:032x}"


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")


def load_state(
    delta: DeltaLog,
    commits: Mapping[int, CommitFile],
    entries: pa.Table,
    definition: StreamDefinition,
    app_ids: Sequence[str],
    boundary: Mapping[int, int] | None,
    warnings: Sequence[str],
    count_rows: Callable[[str], int],
) -> TableState:
    """The state at the handle's version. `commits`: the newest ones, parsed; `boundary`: what it was before them,
    None if not known; `count_rows`: the rows of an object of which the log does not tell."""
    found = delta.objects()
    digest = objects_digest(zip(*(found.column(name).to_pylist() for name in ("path", "bytes", "rows")), strict=True))
    boundary = _boundary(delta, commits, app_ids, boundary)
    warnings = [*warnings, *_check(delta.version, commits.get(delta.version), digest, app_ids, boundary)]
    mine = _counted(_of_generation(found, definition), count_rows)
    objects = ObjectIndex.align(mine, entries, stored_schema(definition.schema))
    return TableState(delta.version, boundary, objects, digest, tuple(warnings))


def _boundary(
    delta: DeltaLog, commits: Mapping[int, CommitFile], app_ids: Sequence[str], before: Mapping[int, int] | None
) -> dict[int, int]:
    """Each commit of ours states all of it, so the newest decides; commits of other engines do not touch it."""
    for version in sorted(commits, reverse=True):
        if commits[version].state is not None:
            stated = commits[version].transactions
            return {streamlet: stated[name] for streamlet, name in enumerate(app_ids) if name in stated}
    if before is not None:
        return dict(before)
    asked = {streamlet: delta.transaction_version(name) for streamlet, name in enumerate(app_ids)}
    return {streamlet: version for streamlet, version in asked.items() if version is not None}


def _check(
    version: int, newest: CommitFile | None, digest: int, app_ids: Sequence[str], boundary: Mapping[int, int]
) -> list[str]:
    """What was loaded is what the newest commit says it led to."""
    if newest is None or newest.state is None:
        return [f"version {version} was committed by another engine: what it did to the table was not checked"]
    computed = state_text(digest, {app_ids[streamlet]: offset for streamlet, offset in boundary.items()})
    if computed != newest.state:
        raise Damaged(
            f"the Delta table at version {version} does not hold what its commits wrote",
            hint="a file in `_delta_log` was changed: restore it from a backup; nothing was changed here",
        )
    return []


def _of_generation(objects: pa.Table, definition: StreamDefinition) -> pa.Table:
    """Objects of other generations are on their way out; those of other engines have none and count."""
    paths = objects.column("path")
    foreign = pc.invert(pc.match_substring_regex(paths, pattern=NAME_NUMBERS))
    return objects.filter(pc.or_(foreign, pc.starts_with(paths, pattern=f"g{definition.generation:05d}/")))


def _counted(objects: pa.Table, count_rows: Callable[[str], int]) -> pa.Table:
    """Actions of other engines may lack the number of rows; the object itself knows."""
    rows = objects.column("rows")
    if rows.null_count == 0:
        return objects
    paths = objects.column("path").to_pylist()
    known = [
        count_rows(path) if number is None else number for path, number in zip(paths, rows.to_pylist(), strict=True)
    ]
    return objects.set_column(objects.schema.get_field_index("rows"), "rows", pa.array(known, pa.int64()))
