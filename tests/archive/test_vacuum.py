"""Vacuum removes what nobody can see any more, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.archive.load import ROW_BITS, LoadWriter
from millpond.errors import Backpressure, InvalidValue
from millpond.storage import LocalStorage

SCHEMA = pa.schema([("n", pa.int64())])
DAY_SECONDS = 86_400


@pytest.fixture
def stream(pond_dir: Path) -> Iterator[millpond.Stream]:
    with millpond.open(str(pond_dir), background=False) as pond:
        yield pond.create_stream("s", SCHEMA)


def settle(stream: millpond.Stream, times: int) -> None:
    for n in range(times):
        stream.append({"n": n})
        stream.settle()


def leave_behind(stream: millpond.Stream) -> list[Path]:
    """Objects of a load that is given up."""
    ticket = stream.bulk.begin_load("job")
    assert ticket is not None
    before = set(objects(stream))
    with LoadWriter(
        LocalStorage(), ticket.root, stream.definition, ticket.load, 0, ROW_BITS, object_bytes=1 << 20
    ) as writer:
        writer.add(pa.RecordBatch.from_pydict({"n": [1, 2, 3]}))
        assert writer.finish() is not None
    stream.bulk.abort_load(ticket.load)
    return sorted(set(objects(stream)) - before)


def objects(stream: millpond.Stream) -> list[Path]:
    return sorted(Path(stream.archive.root).glob("g*/*/*.parquet"))


def age(paths: list[Path], days: float) -> None:
    then = time.time() - days * DAY_SECONDS
    for path in paths:
        os.utime(path, (then, then))


def commits(stream: millpond.Stream) -> list[Path]:
    return sorted((Path(stream.archive.root) / "_delta_log").glob("*.json"))


def test_leftovers_go_when_they_are_old(stream: millpond.Stream) -> None:
    settle(stream, 2)
    old, young = leave_behind(stream), leave_behind(stream)
    age([*objects(stream), *commits(stream)], 8)
    age(young, 6)
    preview = stream.vacuum("7d", preview=True)
    assert (preview.objects, preview.preview) == (1, True)
    assert old[0].exists()
    size = old[0].stat().st_size
    report = stream.vacuum("7d")
    assert (report.objects, report.bytes, report.stream) == (1, size, "s")
    assert not old[0].exists()
    assert young[0].exists()
    assert stream.count() == 2
    assert stream.scan().num_rows == 2


def test_merged_objects_stay_as_long_as_somebody_may_read_them(stream: millpond.Stream) -> None:
    settle(stream, 4)
    before = stream.snapshot()
    assert stream.archive.compact() is not None
    age([*objects(stream), *commits(stream)[:-1]], 30)  # written long ago, merged just now
    assert stream.vacuum("7d").objects == 0
    assert sum(batch.num_rows for batch in before.settled.read()) == 4
    age(commits(stream), 30)
    settle(stream, 1)
    assert stream.vacuum("7d").objects == 4
    assert len(objects(stream)) == 2
    assert stream.scan().num_rows == 5


def test_what_is_there_is_never_removed_however_old(stream: millpond.Stream) -> None:
    settle(stream, 3)
    age([*objects(stream), *commits(stream)], 1_000)
    settle(stream, 1)
    age(commits(stream), 1_000)
    assert stream.vacuum("1h").objects == 0
    assert stream.scan().num_rows == 4


def test_files_that_are_not_ours_are_left_alone(stream: millpond.Stream) -> None:
    settle(stream, 1)
    root = Path(stream.archive.root)
    strange = [root / "part-0001.parquet", objects(stream)[0].with_name("mine.parquet"), root / "_index" / "x.parquet"]
    for path in strange:
        path.write_bytes(b"x")
    age(strange, 1_000)
    assert stream.vacuum("1h").objects == 0
    assert all(path.exists() for path in strange)


def test_nothing_is_removed_while_a_load_may_commit(stream: millpond.Stream) -> None:
    ticket = stream.bulk.begin_load("job")
    assert ticket is not None
    with pytest.raises(Backpressure, match="being loaded"):
        stream.vacuum("7d")
    stream.bulk.abort_load(ticket.load)
    assert stream.vacuum("7d").objects == 0


def test_an_age_under_an_hour_is_refused(stream: millpond.Stream) -> None:
    with pytest.raises(InvalidValue, match="hour"):
        stream.vacuum("10m")
