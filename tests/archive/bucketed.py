"""A settled stream with a layout, and what must hold of it whatever the layout does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.archive.index.entries import BUCKET, BUCKETS, MODEL
from millpond.archive.snapshot import SettledSnapshot
from millpond.model.schema import OFFSET, STREAMLET
from millpond.model.spec import Spec, parse_spec
from tests.archive.settled_stream import SettledStream, define, records

TREE = parse_spec("kdtree:n,temp,buckets=16")


def laid_out(root: Path, layout: Spec | str | None = TREE, **more: Any) -> SettledStream:
    spec = parse_spec(layout) if isinstance(layout, str) else layout
    return SettledStream(root, define(layout=spec, **more))


def places(snapshot: SettledSnapshot) -> list[tuple[str | None, int | None, int | None]]:
    columns = [snapshot.objects.entries.column(name).to_pylist() for name in (MODEL, BUCKET, BUCKETS)]
    return list(zip(*columns, strict=True))


def assert_holds(stream: SettledStream, stop: dict[int, int]) -> None:
    """Exactly the records up to `stop`, each once, by this archive and by one that is opened afresh."""
    wanted = pa.Table.from_batches([records(s, 0, offset) for s, offset in stop.items()])
    for snapshot in (stream.archive.snapshot(), stream.open().snapshot()):
        found = pa.Table.from_batches(snapshot.read(), snapshot.schema)
        assert found.sort_by([(STREAMLET, "ascending"), (OFFSET, "ascending")]).equals(wanted.combine_chunks())
