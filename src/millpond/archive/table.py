"""The Delta table under a stream: the only home of deltalake.

`DeltaLog` is thin on purpose: it translates, decides nothing, and holds one handle (a table at a version). What a
commit means, when it is retried, what is synced: see `commit.py`. Tests put a wrapper in its place to crash before or
after a commit.

Facts it stands on (deltalake 1.6, held by tests):
- With `max_commit_retries=0` a commit becomes exactly the handle's version + 1 or fails: nothing is rebased behind our
  back, and every second writer is refused, whatever it wrote.
- A handle does not see its own commit before `refresh`.
- Hooks after a commit (checkpoints, clean-up) are off: they would write and delete without syncs.
- Columns are only added at the end, after the system's: readers go by name.
- Loading takes an empty newest commit file for a commit without actions: `repair.py` looks before this does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from millpond.errors import Damaged, FormatTooNew, InvalidSchema

# Checkpoints are ours to make (and to sync); log files are never cleaned up behind our back.
_CONFIGURATION = {"delta.checkpointInterval": "1000000000", "delta.enableExpiredLogCleanup": "false"}
# What deltalake raises for a log it cannot make sense of.
UNREADABLE = (DeltaError, ValueError, OSError)


@dataclass(frozen=True, slots=True)
class Added:
    """An object that a commit adds."""

    path: str
    bytes: int
    rows: int
    stats: str


@dataclass(frozen=True, slots=True)
class Removed:
    """An object that a commit removes from the table. Its file stays."""

    path: str
    bytes: int
    rows: int | None  # None where another engine did not say


class DeltaLog:
    """One table, at the version of its last `refresh`. Not thread-safe."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._handle: DeltaTable | None = None

    @property
    def version(self) -> int:
        """-1 while there is no table."""
        return -1 if self._handle is None else self._handle.version()

    def refresh(self) -> int:
        """Go to the newest version; which one it is."""
        if self._handle is None:
            self.load()
        else:
            self._handle.update_incremental()
        return self.version

    def load(self) -> int:
        """Read the table from its log, forgetting what was known."""
        try:
            self._handle = DeltaTable(self._root)
        except TableNotFoundError:
            self._handle = None
        else:
            self._check_protocol()
        return self.version

    def create(self, schema: pa.Schema, *, name: str, description: str, metadata: Mapping[str, Any]) -> None:
        """Version 0: an empty table. Fails if there is one."""
        DeltaTable.create(
            self._root,
            schema,
            name=name,
            description=description,
            configuration=_CONFIGURATION,
            commit_properties=_properties(metadata, {}),
            post_commithook_properties=_hooks_off(),
        )

    def commit(
        self,
        added: Sequence[Added],
        removed: Sequence[Removed],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        *,
        data_change: bool,
        now_millis: int,
    ) -> None:
        """Version + 1 with all of this, or an exception (which may also mean that the answer was lost)."""
        handle = self._table
        actions: list[AddAction | RemoveAction] = [
            AddAction(one.path, one.bytes, {}, now_millis, data_change, one.stats) for one in added
        ]
        actions += [
            RemoveAction(one.path, data_change, now_millis, size=one.bytes, partition_values={}) for one in removed
        ]
        handle.create_write_transaction(
            actions,
            "append",
            handle.schema(),
            [],
            commit_properties=_properties(metadata, transactions),
            post_commithook_properties=_hooks_off(),
        )

    def add_columns(
        self, schema: pa.Schema, names: Sequence[str], transactions: Mapping[str, int], metadata: Mapping[str, Any]
    ) -> None:
        """Version + 1 with these columns of `schema` added."""
        fields = [field for field in Schema.from_arrow(schema).fields if field.name in names]
        self._table.alter.add_columns(
            fields,
            commit_properties=_properties(metadata, transactions),
            post_commithook_properties=_hooks_off(),
        )

    def missing_columns(self, schema: pa.Schema) -> list[str]:
        """The columns of `schema` that the table lacks; `InvalidSchema` if one is there with another type."""
        there = {field.name: field for field in self._table.schema().fields}
        missing = []
        for field in Schema.from_arrow(schema).fields:
            if field.name not in there:
                missing.append(field.name)
            elif field.type != there[field.name].type:
                raise InvalidSchema(
                    f"column {field.name!r} is {there[field.name].type} in the table, {field.type} in the stream",
                    hint="the table was altered from outside or its log is damaged: run `millpond verify`",
                )
        return missing

    def objects(self) -> pa.Table:
        """The live objects: path, bytes, rows (null where the action has no statistics)."""
        found = pa.table(self._table.get_add_actions(flatten=True))
        rows = found["num_records"] if "num_records" in found.schema.names else pa.nulls(len(found), pa.int64())
        table = pa.table({"path": found["path"], "bytes": found["size_bytes"], "rows": rows})
        return table.cast(pa.schema([("path", pa.string()), ("bytes", pa.int64()), ("rows", pa.int64())]))

    def claims(self) -> dict[str, dict[str, Any]]:
        """What the log says of each live object, by path: `min.<column>`, `max.<column>`, `null_count.<column>`."""
        rows: list[dict[str, Any]] = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return {row["path"]: row for row in rows}

    def transaction_version(self, app_id: str) -> int | None:
        """What the newest commit that names `app_id` says. Slow when that was long ago: it replays the log."""
        return self._table.transaction_version(app_id)

    def checkpoint(self) -> None:
        """Write the checkpoint of this version and the hint that names it. Nothing is synced."""
        self._table.create_checkpoint()

    @property
    def _table(self) -> DeltaTable:
        if self._handle is None:
            raise Damaged(f"{self._root} has no Delta table", hint="it was there before: restore `_delta_log`")
        return self._handle

    def _check_protocol(self) -> None:
        protocol = self._table.protocol()
        features = protocol.reader_features or []
        if protocol.min_reader_version > 1 or features:
            raise FormatTooNew(
                f"{self._root} was raised to Delta reader version {protocol.min_reader_version} {features}",
                hint="another engine switched on a table feature; millpond reads tables without reader features",
            )


def _properties(metadata: Mapping[str, Any], transactions: Mapping[str, int]) -> CommitProperties:
    return CommitProperties(
        custom_metadata=dict(metadata),
        max_commit_retries=0,
        app_transactions=[Transaction(app_id, version) for app_id, version in transactions.items()],
    )


def _hooks_off() -> PostCommitHookProperties:
    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
