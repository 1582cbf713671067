"""Merging keeps buckets apart, refines them, and comes to rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millpond.model.spec import parse_spec
from tests.archive.bucketed import assert_holds, laid_out, places
from tests.archive.settled_stream import define, records


def test_merging_stays_within_a_bucket(tmp_path: Path) -> None:
    stream = laid_out(tmp_path, "kdtree:vid,buckets=4")
    for stop in range(1_000, 6_000, 1_000):
        stream.settle_to({0: stop})
    assert len(stream.archive.snapshot().objects) == 20
    report = stream.archive.compact(object_bytes_min=1 << 30)
    assert report is not None
    assert (report.objects_before, report.objects_after) == (20, 4)
    stored = stream.archive.model()
    assert stored is not None
    assert places(stream.archive.snapshot()) == [(stored.model.id, bucket, 4) for bucket in range(4)]
    snapshot = stream.archive.snapshot()
    for at in range(4):
        keep = np.arange(4) == at
        rows = pa.Table.from_batches(snapshot.read(keep))
        assert set(stored.model.assign(rows).tolist()) == {at}
    assert stream.archive.compact(object_bytes_min=1 << 30) is None
    assert_holds(stream, {0: 5_000})


def test_merging_brings_rows_down_the_tree(tmp_path: Path) -> None:
    """Small settles use one bucket; what has gathered is cut into as many as are large enough, and then again."""
    stream = laid_out(tmp_path, "kdtree:vid,buckets=16")
    stop = 0
    for _ in range(5):
        stop += 1_000
        stream.settle_to({0: stop}, object_bytes_min=1 << 30)
    assert {buckets for _, _, buckets in places(stream.archive.snapshot())} == {1}
    size = sum(batch.nbytes for batch in stream.archive.snapshot().read())
    assert stream.archive.compact(object_bytes_min=size // 5) is not None
    assert {buckets for _, _, buckets in places(stream.archive.snapshot())} == {4}
    assert len(stream.archive.snapshot().objects) == 4
    assert_holds(stream, {0: stop})


def test_merging_lays_out_what_no_model_has_cut(tmp_path: Path) -> None:
    stream = laid_out(tmp_path, None)
    for stop in (1_000, 2_000, 3_000, 4_000):
        stream.settle_to({0: stop})
    stream.definition = define(layout=parse_spec("kdtree:n,buckets=2"))
    stream.archive.alter(stream.definition)
    stream.settle_to({0: 5_000})
    layout = stream.archive.layout
    assert layout is not None
    before = places(stream.archive.snapshot())[4:]
    newest = layout.fit(pa.Table.from_batches([records(0, 0, 4_000)]))
    stream.archive.put_model(newest)
    assert stream.archive.compact() is not None
    assert places(stream.archive.snapshot()) == [*before, (newest.id, 0, 2), (newest.id, 1, 2)]
    assert stream.archive.compact() is None
    assert_holds(stream, {0: 5_000})


@pytest.mark.parametrize("gone", [False, True])
def test_a_new_model_does_not_make_a_stream_be_rewritten(tmp_path: Path, gone: bool) -> None:
    """Objects of an older model, or of a layout that is gone, are merged within their buckets."""
    stream = laid_out(tmp_path, "kdtree:vid,buckets=3")
    for stop in range(1_000, 5_000, 1_000):
        stream.settle_to({0: stop})
    older, layout = stream.archive.model(), stream.archive.layout
    assert older is not None
    assert layout is not None
    if gone:
        stream.definition = define()
        stream.archive.alter(stream.definition)
    else:
        stream.archive.put_model(layout.fit(pa.Table.from_batches([records(0, 0, 100)])))
    assert len(stream.archive.snapshot().objects) == 12
    assert stream.archive.compact() is not None
    assert places(stream.archive.snapshot()) == [(older.model.id, bucket, 3) for bucket in range(3)]
    assert stream.archive.compact() is None
    assert_holds(stream, {0: 4_000})
