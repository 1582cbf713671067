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
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.commit_file import CommitFile
from millpond.archive.object_index import ObjectIndex
from millpond.archive.objects import NAME_NUMBERS
from millpond.archive.table import DeltaLog
from millpond.errors import Damaged, SettleConflict
from millpond.model.definition import StreamDefinition

_MODULUS = 1 << 128
_APP_ID = re.compile(r"[^/]+/\d+/g(?P<generation>\d+)/s\d+\Z")


@dataclass(frozen=True, eq=False)
class TableState:
    """A version of the table. `objects` are those of the stream's generation, the digest is of all. `generation` is the
    one whose boundary the table states, 0 if it states none: lower than the stream's for as long as a truncation has
    not reached the table, and then nothing in it counts."""

    version: int
    boundary: Mapping[int, int]
    objects: ObjectIndex
    objects_digest: int
    warnings: tuple[str, ...] = ()
    generation: int = 0


def app_id(pond_id: str, definition: StreamDefinition, streamlet: int) -> str:
    """Names a streamlet's boundary among the app transactions of the table."""
    return f"{pond_id}/{definition.id}/g{definition.generation}/s{streamlet}"


def of_boundaries(transactions: Mapping[str, int]) -> dict[str, int]:
    """Those that state boundaries; writers who number what they write may have added others."""
    return {name: version for name, version in transactions.items() if _APP_ID.match(name)}


def _stated_generation(transactions: Mapping[str, int]) -> int:
    found = (_APP_ID.match(name) for name in transactions)
    return max((int(match["generation"]) for match in found if match), default=0)


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
    before: TableState | None,
    warnings: Sequence[str],
    count_rows: Callable[[str], int],
    nothing: ObjectIndex,
) -> TableState:
    """The state at the handle's version. `commits`: the newest ones, parsed; `before`: the state before them, None if
    not known; `count_rows`: the rows of an object of which the log does not tell; `nothing`: an index of no objects,
    which knows the stream's schema and indexes. `SettleConflict` if the table is of a
    higher generation than the stream was when its definition was handed out."""
    found = delta.objects()
    digest = objects_digest(zip(*(found.column(name).to_pylist() for name in ("path", "bytes", "rows")), strict=True))
    generation, boundary = _stated(delta, commits, definition, app_ids, before)
    warnings = [*warnings, *_check(delta.version, commits.get(delta.version), digest, app_ids)]
    if generation > definition.generation:
        raise SettleConflict(
            f"{definition.name} was truncated: generation {definition.generation} is gone, the table has {generation}",
            hint="nothing was written: go on with the newest generation of the stream",
        )
    mine = _counted(_of_generation(found, definition, generation), count_rows)
    objects = nothing.aligned(mine, entries)
    return TableState(delta.version, boundary, objects, digest, tuple(warnings), generation)


def _stated(
    delta: DeltaLog,
    commits: Mapping[int, CommitFile],
    definition: StreamDefinition,
    app_ids: Sequence[str],
    before: TableState | None,
) -> tuple[int, dict[int, int]]:
    """The generation and the boundary. Each commit of ours states all of it, so the newest decides; commits of other
    engines do not touch it."""
    for version in sorted(commits, reverse=True):
        if commits[version].state is not None:
            stated = commits[version].transactions
            boundary = {streamlet: stated[name] for streamlet, name in enumerate(app_ids) if name in stated}
            return _stated_generation(stated), boundary
    if before is not None:
        return before.generation, dict(before.boundary)
    asked = {streamlet: delta.transaction_version(name) for streamlet, name in enumerate(app_ids)}
    boundary = {streamlet: version for streamlet, version in asked.items() if version is not None}
    return definition.generation if boundary else 0, boundary


def _check(version: int, newest: CommitFile | None, digest: int, app_ids: Sequence[str]) -> list[str]:
    """What was loaded is what the newest commit says it led to."""
    if newest is None or newest.state is None:
        return [f"version {version} was committed by another engine: what it did to the table was not checked"]
    # Of this stream of this pond: another's boundary says nothing about its records.
    own = app_ids[0].rpartition("/g")[0] + "/g"
    stated = {name: to for name, to in of_boundaries(newest.transactions).items() if name.startswith(own)}
    if state_text(digest, stated) != newest.state:
        raise Damaged(
            f"the Delta table at version {version} does not hold what its commits wrote",
            hint="a file in `_delta_log` was changed: restore it from a backup; nothing was changed here",
        )
    return []


def _of_generation(objects: pa.Table, definition: StreamDefinition, stated: int) -> pa.Table:
    """Objects of other generations are on their way out; those of other engines have none and count, but for what they
    added before a truncation that has not reached the table."""
    if definition.generation > max(stated, 1):
        return objects.slice(0, 0)
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
