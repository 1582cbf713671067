"""Streams with a layout: settles and merges group rows by bucket, and every row is still there once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.archive.index.entries import BUCKET, BUCKETS, MODEL
from millpond.archive.layout.arranging import Arranging
from millpond.archive.layout.grid import Grid
from millpond.archive.layout.kdtree import KdModel, KdTree
from millpond.archive.layout.layout import Buckets, Layout, Order
from millpond.archive.layout.model_file import DIRECTORY, KEPT, ModelFiles
from millpond.archive.layout.registry import register_layout
from millpond.archive.objects import ROW_GROUP_ROWS, encode_object
from millpond.archive.row_groups import row_groups
from millpond.errors import SettleFailed
from millpond.model.past_query import PastQuery
from millpond.model.predicate import And, Compare
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET, TIMESTAMP
from millpond.model.spec import Spec, parse_spec
from millpond.storage import LocalStorage
from millpond.testing import FaultyStorage
from millpond.testing.layout_contract import number_tables
from tests.archive.bucketed import TREE, assert_holds, laid_out, places
from tests.archive.settled_stream import SCHEMA, SettledStream, define, records


def test_a_settle_makes_an_object_per_bucket(tmp_path: Path) -> None:
    stream = laid_out(tmp_path)
    stream.settle_to({0: 3_000, 1: 1_000})
    snapshot, stored = stream.archive.snapshot(), stream.archive.model()
    assert stored is not None
    assert stored.model.buckets == 16
    assert places(snapshot) == [(stored.model.id, bucket, 16) for bucket in range(16)]
    assert [path.rpartition("/")[2][:5] for path in snapshot.objects.paths] == [f"b{n:04d}" for n in range(16)]
    assert max(snapshot.objects.rows) <= 4_000 / 16 * 1.3
    assert_holds(stream, {0: 3_000, 1: 1_000})


def test_objects_are_skipped_by_what_their_bucket_spans(tmp_path: Path) -> None:
    stream = laid_out(tmp_path)
    stream.settle_to({0: 4_000, 1: 4_000})
    here = And((Compare(">=", "n", 100), Compare("<=", "n", 150)))
    assert int(stream.archive.snapshot().objects.prune(here).keep.sum()) <= 2


def test_an_object_says_where_it_belongs(tmp_path: Path) -> None:
    stream = laid_out(tmp_path)
    stream.settle_to({0: 500})
    snapshot = stream.archive.snapshot()
    metadata = pq.read_schema(Path(stream.root) / snapshot.objects.paths[3]).metadata
    stored = stream.archive.model()
    assert stored is not None
    assert metadata[b"millpond.model"].decode() == stored.model.id
    assert metadata[b"millpond.bucket"] == b"3/16"


def test_rows_of_an_object_lie_near_each_other(tmp_path: Path) -> None:
    """Whatever the order they came in."""
    stream = laid_out(tmp_path, "kdtree:n,buckets=2")
    batch = records(0, 0, 2_000)
    shuffled = pa.array(np.random.default_rng(1).permutation(2_000))
    mixed = batch.set_column(1, "n", batch.column("n").take(shuffled))
    stream.archive.settle({}, {0: 2_000}, [mixed])
    for batch in stream.archive.snapshot().read(batch_rows=10_000):
        numbers = batch.column("n").to_numpy()
        assert (np.diff(numbers) >= 0).mean() > 0.95


def test_parts_of_an_object_are_skipped() -> None:
    """A small square touches one row group of four; as rows come, it touches all."""
    rng = np.random.default_rng(2)
    count = 4 * ROW_GROUP_ROWS
    places_of_rows = {name: pa.array(rng.uniform(0, 100, count)) for name in ("x", "y")}
    rows = pa.table({**places_of_rows, INGEST_TIME: pa.array(np.zeros(count, np.int64)).cast(TIMESTAMP)})
    rows = rows.append_column(STREAMLET, pa.array(np.zeros(count, np.int32)))
    rows = rows.append_column(OFFSET, pa.array(np.arange(count)))
    square = And(tuple(Compare(op, name, at) for name in "xy" for op, at in ((">=", 10.0), ("<=", 12.0))))
    layout = KdTree("x", "y", buckets=1)
    ((place, ordered),) = Arranging(layout, layout.fit(rows)).groups(rows)
    assert place is not None
    judged = pa.schema([("x", pa.float64()), ("y", pa.float64())])
    touched = []
    for table in (rows, ordered):
        data, _ = encode_object(table, define())
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
        touched.append(len(row_groups(file, square, judged, ours=True)))
    assert touched == [4, 1]
    x = ordered.column("x").to_numpy().copy()
    x[5] = np.nan  # greater than every number, as Spark has it
    data, _ = encode_object(ordered.set_column(0, "x", pa.array(x)), define())
    file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
    assert 0 in row_groups(file, Compare(">", "x", 99.0), judged, ours=True)
    # What another engine wrote may have NaN that its statistics do not tell of.
    assert len(row_groups(file, square, judged, ours=False)) == 4


def test_a_background_settle_makes_no_tiny_objects(tmp_path: Path) -> None:
    """The upper levels of the tree, as many buckets as have enough to hold."""
    stream = laid_out(tmp_path, "kdtree:vid,buckets=16")
    stream.settle_to({0: 2_000}, object_bytes_min=1 << 30)
    (first,) = places(stream.archive.snapshot())
    assert first[1:] == (0, 1)
    size = sum(batch.nbytes for batch in stream.archive.snapshot().read())
    stream.settle_to({0: 4_000}, object_bytes_min=size // 5)
    stored = stream.archive.model()
    assert stored is not None
    assert places(stream.archive.snapshot())[1:] == [(stored.model.id, bucket, 4) for bucket in range(4)]
    assert_holds(stream, {0: 4_000})


def test_objects_never_cross_a_time_partition(tmp_path: Path) -> None:
    stream = laid_out(tmp_path, event_time="at", partition_seconds=60)
    batch = records(0, 0, 3_000)
    # Three minutes, in turn.
    times = pa.array(1_699_920_000_000_000 + np.arange(3_000) % 3 * 60_000_000, SCHEMA.field("at").type)
    stream.archive.settle({}, {0: 3_000}, [batch.set_column(3, "at", times)])
    snapshot = stream.archive.snapshot()
    assert len({path.split("/")[1] for path in snapshot.objects.paths}) == 3
    assert len(snapshot.objects) == 48
    for at in range(len(snapshot.objects)):
        keep = np.zeros(len(snapshot.objects), np.bool_)
        keep[at] = True
        assert len({value for batch in snapshot.read(keep) for value in batch.column("at").to_pylist()}) == 1


def test_later_blocks_use_the_model_that_there_is(tmp_path: Path) -> None:
    stream = laid_out(tmp_path, "kdtree:vid,buckets=4")
    stream.settle_to({0: 1_000})
    first = stream.archive.model()
    stream.reopen()
    stream.settle_to({0: 9_000})
    assert first is not None
    assert {model for model, _, _ in places(stream.archive.snapshot())} == {first.model.id}
    assert_holds(stream, {0: 9_000})


def test_a_model_of_few_rows_gives_way(tmp_path: Path) -> None:
    stream = laid_out(tmp_path)
    stream.settle_to({0: 10})
    few = stream.archive.model()
    stream.settle_to({0: 30})
    assert stream.archive.model() == few, "twice as many are few, too"
    stream.settle_to({0: 4_000})
    many = stream.archive.model()
    assert few is not None
    assert many is not None
    assert (few.model.rows, many.model.rows, many.number) == (10, 3_970, few.number + 1)
    assert max(stream.archive.snapshot().objects.rows) < 400
    assert_holds(stream, {0: 4_000})


def test_a_model_that_is_put_counts_from_then_on(tmp_path: Path) -> None:
    stream = laid_out(tmp_path, "kdtree:vid,buckets=4")
    stream.settle_to({0: 2_000})
    layout = stream.archive.layout
    assert layout is not None
    better = layout.fit(pa.Table.from_batches([records(0, 0, 500)]))
    stream.archive.put_model(better)
    stream.settle_to({0: 4_000})
    models = [model for model, _, _ in places(stream.archive.snapshot())]
    assert better.id not in models[:4]
    assert models[4:] == [better.id] * 4
    assert_holds(stream, {0: 4_000})


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "kind"])
def test_a_damaged_model_is_left_out(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    stream = laid_out(tmp_path)
    stream.settle_to({0: 2_000})
    (file,) = (Path(stream.root) / DIRECTORY).iterdir()
    body = file.read_bytes()
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(body[: len(body) // 2])
    elif damage == "flip":
        file.write_bytes(body.replace(b'"rows":2000', b'"rows":2001'))
    else:
        file.write_bytes(body.replace(b'"kdtree"', b'"spiral"'))
    stream.reopen()
    with caplog.at_level(logging.WARNING):
        assert stream.archive.model() is None
    assert damage == "gone" or "is left out" in caplog.text
    stream.settle_to({0: 5_000})
    assert stream.archive.model() is not None
    assert_holds(stream, {0: 5_000})


def test_only_so_many_models_are_kept(tmp_path: Path) -> None:
    files = ModelFiles(LocalStorage(), str(tmp_path))
    layout = KdTree("x", buckets=4)
    for n in range(KEPT + 5):
        files.put(layout, layout.fit(pa.table({"x": [float(n), n + 1.0]})), n)
    found = ModelFiles(LocalStorage(), str(tmp_path)).newest(layout)
    assert found is not None
    assert (found.number, found.at_micros) == (KEPT + 4, KEPT + 4)
    assert len(list((tmp_path / DIRECTORY).iterdir())) == KEPT
    assert files.newest(KdTree("x", buckets=8)) is None, "a model is of one layout"


def test_a_stream_gets_another_layout(tmp_path: Path) -> None:
    """What has settled stays as it is; what comes next is laid out anew."""
    stream = laid_out(tmp_path, None)
    stream.settle_to({0: 1_000})
    assert places(stream.archive.snapshot()) == [(None, None, None)]
    stream.definition = define(layout=parse_spec("kdtree:n,buckets=4"))
    stream.archive.alter(stream.definition)
    stream.settle_to({0: 2_000})
    stream.definition = define(layout=parse_spec("kdtree:n,buckets=8"))
    stream.archive.alter(stream.definition)
    stream.settle_to({0: 3_000})
    assert [buckets for _, _, buckets in places(stream.archive.snapshot())] == [None, *[4] * 4, *[8] * 8]
    assert_holds(stream, {0: 3_000})


def test_a_layout_that_nobody_knows_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = laid_out(tmp_path, Spec("spiral", ("n",)))
    with caplog.at_level(logging.WARNING):
        stream.settle_to({0: 1_000})
    assert "no layout 'spiral'" in caplog.text
    assert places(stream.archive.snapshot()) == [(None, None, None)]
    assert_holds(stream, {0: 1_000})


class _BadModel(KdModel):
    def _assign(self, rows: pa.Table) -> Buckets:
        return np.zeros(rows.num_rows - 1, np.int32)


class _BadOrder(KdModel):
    def order(self, rows: pa.Table) -> Order:
        return np.zeros(rows.num_rows, np.int64)


@pytest.mark.parametrize("bad", [_BadModel, _BadOrder])
def test_a_layout_that_would_lose_rows_is_not_followed(bad: type[KdModel], caplog: pytest.LogCaptureFixture) -> None:
    rows = pa.table({"x": [3.0, 1.0, 2.0]})
    layout = KdTree("x", buckets=2)
    model = bad(layout.fit(rows)._stored)
    with caplog.at_level(logging.ERROR):
        ((place, found),) = list(Arranging(layout, model).groups(rows))
    assert (place, found) == (None, rows)
    assert "stored as they come" in caplog.text


class Halves(Layout):
    """A user's layout: two buckets."""

    name = "halves"

    def __init__(self, *columns: str, buckets: int = 2) -> None:
        super().__init__(*columns, buckets=buckets)

    def fit(self, sample: pa.Table, history: Sequence[PastQuery] = ()) -> KdModel:
        raise RuntimeError("a mistake in user code")

    @classmethod
    def decode(cls, plain: Any) -> KdModel:
        raise ValueError("none was ever encoded")


def test_a_layout_that_fails_does_not_keep_records_from_settling(tmp_path: Path) -> None:
    register_layout(Halves)
    stream = laid_out(tmp_path, "halves:n,buckets=2")
    stream.settle_to({0: 1_000})
    assert places(stream.archive.snapshot()) == [(None, None, None)]
    assert_holds(stream, {0: 1_000})


def test_a_disk_that_does_not_take_the_model_fails_the_settle(tmp_path: Path) -> None:
    storage = FaultyStorage(LocalStorage())
    stream = SettledStream(tmp_path, define(layout=TREE), storage)
    storage.fail(kind="write", path=DIRECTORY)
    with pytest.raises(SettleFailed, match="could not settle"):
        stream.settle_to({0: 1_000})
    assert stream.boundary == {}
    storage.heal()
    stream.settle_to({0: 1_000})
    assert_holds(stream, {0: 1_000})


def test_a_block_that_the_model_does_not_know_is_laid_out_all_the_same(tmp_path: Path) -> None:
    """Everything in it is later than all that the model has seen: the same dimensions are cut at other values."""
    stream = laid_out(tmp_path)
    stream.settle_to({0: 2_000})
    known = stream.archive.model()
    stream.settle_to({0: 6_000})
    snapshot = stream.archive.snapshot()
    assert len(snapshot.objects) == 32
    assert max(snapshot.objects.rows[16:]) <= 1.1 * 4_000 / 16
    assert stream.archive.model() == known, "it is for that block alone"
    assert known is not None
    (other,) = {model for model, _, _ in places(snapshot)[16:]}
    assert other != known.model.id
    assert_holds(stream, {0: 6_000})


@settings(max_examples=60, deadline=None)
@given(
    rows=number_tables("xy").filter(lambda table: table.num_rows > 0),
    sample=number_tables("xy"),
    buckets=st.integers(1, 12),
    least=st.sampled_from([0, 1, 100, 400, 1 << 20]),
    adapt=st.booleans(),
    grid=st.booleans(),
)
def test_arranging_gives_each_row_once(
    rows: pa.Table, sample: pa.Table, buckets: int, least: int, adapt: bool, grid: bool
) -> None:
    layout = Grid("x", "y", buckets=buckets) if grid else KdTree("x", "y", buckets=buckets)
    model = layout.fit(sample)
    numbered = rows.append_column("n", pa.array(range(rows.num_rows)))
    seen: list[int] = []
    groups = list(Arranging(layout, model, object_bytes_min=least, adapt=adapt).groups(numbered))
    for place, group in groups:
        assert place is not None
        numbers = group.column("n").to_pylist()
        if place.model == model.id:
            inside = numbered.take(pa.array(numbers))
            assert set(model.assign(inside, place.buckets).tolist()) == {place.bucket}
        assert 0 <= place.bucket < place.buckets <= max(1, model.buckets)
        seen += numbers
    assert sorted(seen) == list(range(rows.num_rows))
    assert len({place for place, _ in groups}) == len(groups)
    if least:
        assert len(groups) == 1 or numbered.nbytes >= len(groups) * least


def test_a_tree_is_fitted_to_other_rows_along_the_same_dimensions() -> None:
    rng = np.random.default_rng(1)
    layout = KdTree("at", "x", "name", buckets=24)

    def rows(later: float) -> pa.Table:
        at, x = rng.uniform(later, later + 1, 9_600), rng.normal(size=9_600)
        return pa.table({"at": at, "x": x, "name": [f"{later}-{n % 977:04d}" for n in range(9_600)]})

    model = layout.fit(rows(0.0), [PastQuery({"at": (0.1, 0.2)}, 0), PastQuery({"x": (0.1, 0.2)}, 0)] * 9)
    later = rows(5.0)
    assert np.bincount(model.assign(later)).max() > 3 * 9_600 / 24
    other = model.refitted(later)
    assert other._stored.split == model._stored.split
    assert other.buckets == 24
    assert np.bincount(other.assign(later)).max() < 1.1 * 9_600 / 24
    assert other.encode() == model.refitted(later).encode()


def test_index_files_of_before_layouts_are_read(tmp_path: Path) -> None:
    """Entries without the columns of layouts: nothing is known of where a layout put them."""
    stream = laid_out(tmp_path, None)
    stream.settle_to({0: 1_000})
    for file in (Path(stream.root) / "_index").glob("*-*.parquet"):
        table = pq.read_table(file)
        old = table.drop_columns([MODEL, BUCKET, BUCKETS])
        stream.storage.remove(str(file))
        pq.write_table(old, file)
    before = stream.archive.snapshot().objects.entries
    assert places(stream.archive.snapshot()) == [(None, None, None)]
    assert before.schema.field(BUCKET).type == pa.int32()
