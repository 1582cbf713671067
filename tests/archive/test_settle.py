from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.archive.objects import parse_name
from millpond.archive.stream_archive import SettleReport
from millpond.errors import InvalidInput, SettleConflict, SettleFailed
from millpond.model.predicate import And, Compare
from millpond.testing import FaultyStorage
from tests.archive.meddling import Meddling
from tests.archive.settled_stream import DAY_MICROS, MIDNIGHT, SettledStream, define, expected, read_all, records


def test_nothing_is_there_before_the_first_settle(stream: SettledStream) -> None:
    snapshot = stream.archive.snapshot()
    assert (snapshot.version, dict(snapshot.boundary), len(snapshot.objects)) == (-1, {}, 0)
    assert read_all(snapshot).num_rows == 0
    assert not Path(stream.root).exists()


def test_a_settle_makes_rows_and_boundary_visible_together(stream: SettledStream) -> None:
    """I3"""
    report = stream.archive.settle({}, {0: 10, 1: 4}, [records(0, 0, 10), records(1, 0, 4)])
    assert isinstance(report, SettleReport)
    assert (report.rows, report.objects, report.partitions, dict(report.boundary)) == (14, 1, 1, {0: 10, 1: 4})
    snapshot = stream.archive.snapshot()
    assert snapshot.version == report.version
    assert snapshot.boundary == {0: 10, 1: 4}
    assert read_all(snapshot).equals(expected({0: 10, 1: 4}))
    assert read_all(stream.reopen()).equals(expected({0: 10, 1: 4}))


def test_a_boundary_moves_without_rows(stream: SettledStream) -> None:
    """I3: discarded ranges advance it, too."""
    stream.settle_to({0: 5, 1: 5})
    report = stream.archive.settle({0: 5, 1: 5}, {0: 9, 1: 5}, [])
    assert (report.objects, report.rows) == (0, 0)
    assert stream.reopen().boundary == {0: 9, 1: 5}


def test_a_snapshot_stays_what_it_was(stream: SettledStream) -> None:
    stream.settle_to({0: 5})
    before = stream.archive.snapshot()
    stream.settle_to({0: 9})
    stream.archive.compact(least_objects=2)
    assert read_all(before).equals(expected({0: 5}))
    assert before.boundary == {0: 5}


@pytest.mark.parametrize("start", [{0: 4}, {0: 6}, {}, {0: 5, 1: 1}])
def test_a_settle_from_another_boundary_is_refused(stream: SettledStream, start: dict[int, int]) -> None:
    stream.settle_to({0: 5})
    with pytest.raises(SettleConflict, match="has settled up to"):
        stream.archive.settle(start, {0: 9, 1: 1}, [records(0, 5, 9)])
    assert read_all(stream.archive.snapshot()).equals(expected({0: 5}))


@pytest.mark.parametrize(
    ("batches", "what"),
    [
        ([records(0, 6, 9)], "starts late is fine, but ends beyond"),
        ([records(0, 4, 8)], "starts below the boundary"),
        ([records(0, 5, 7), records(0, 6, 8)], "an offset twice"),
        ([records(0, 7, 8), records(0, 5, 6)], "out of order"),
        ([records(1, 0, 1)], "a streamlet that does not settle"),
        ([records(0, 5, 8).take(pa.array([0, 2, 1]))], "shuffled"),
    ],
)
def test_rows_that_are_not_of_the_range_are_refused(
    stream: SettledStream, batches: list[pa.RecordBatch], what: str
) -> None:
    """I3: a commit adds each offset of its range at most once, and no other."""
    stream.settle_to({0: 5})
    with pytest.raises(InvalidInput, match="not the next ones"):
        stream.archive.settle({0: 5}, {0: 8}, batches)
    assert stream.reopen().boundary == {0: 5}, what
    assert len(list(Path(stream.root).rglob("b0*.parquet"))) == 1, "an object was left behind"


def test_a_boundary_never_moves_back(stream: SettledStream) -> None:
    stream.settle_to({0: 5})
    with pytest.raises(InvalidInput, match="only moves forward"):
        stream.archive.settle({0: 5}, {0: 4}, [])
    with pytest.raises(InvalidInput, match="streamlets are 0 to 1"):
        stream.archive.settle({0: 5}, {0: 5, 2: 1}, [])


def test_gaps_in_offsets_are_settled_as_they_are(stream: SettledStream) -> None:
    """I2: a replicated log may leave gaps: nothing counts by subtraction."""
    stream.archive.settle({}, {0: 10}, [records(0, 1, 4), records(0, 6, 9)])
    assert read_all(stream.reopen()).column("_offset").to_pylist() == [1, 2, 3, 6, 7, 8]


def test_batches_that_mix_streamlets_are_taken(stream: SettledStream) -> None:
    mixed = pa.Table.from_batches([records(0, 0, 3), records(1, 0, 3)]).combine_chunks().to_batches()[0]
    stream.archive.settle({}, {0: 3, 1: 3}, [mixed.take(pa.array([0, 3, 1, 4, 5, 2]))])
    assert read_all(stream.archive.snapshot()).equals(expected({0: 3, 1: 3}))


def test_object_names_can_be_read_by_a_person(stream: SettledStream) -> None:
    """C2: generation, time partition with start and duration, bucket, block, attempt."""
    stream.settle_to({0: 3})
    (path,) = stream.archive.snapshot().objects.paths
    name = parse_name(path)
    assert name is not None
    assert path.startswith(f"g00001/{MIDNIGHT // 1_000_000}.86400/b0000-000000000001-")
    assert str(name) == path
    assert (name.generation, name.start, name.seconds, name.bucket, name.block) == (1, 1699920000, 86400, 0, 1)


def test_an_object_describes_itself(stream: SettledStream) -> None:
    """C3: schema, stream, offsets and time range are known from the footer alone."""
    stream.archive.settle({}, {0: 8, 1: 2}, [records(0, 2, 8), records(1, 0, 2)])
    (path,) = stream.archive.snapshot().objects.paths
    footer = pq.read_metadata(f"{stream.root}/{path}")
    said = {key.decode(): value.decode() for key, value in footer.metadata.items()}
    assert said["millpond.stream"] == "grid/meters"
    assert said["millpond.generation"] == "1"
    assert json.loads(said["millpond.offsets"]) == {"0": [2, 8], "1": [0, 2]}
    assert json.loads(said["millpond.time_micros"]) == [MIDNIGHT, MIDNIGHT + 7]
    assert footer.schema.to_arrow_schema().names[-3:] == ["_streamlet", "_offset", "_ingest_time"]


def test_rows_are_split_into_objects_of_the_size_aimed_at(stream: SettledStream) -> None:
    batches = [records(0, start, start + 1_000) for start in range(0, 20_000, 1_000)]
    size = batches[0].nbytes
    report = stream.archive.settle({}, {0: 20_000}, batches, object_bytes=5 * size)
    assert report.objects == 4
    objects = stream.archive.snapshot().objects
    assert [parse_name(path).bucket for path in objects.paths] == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert objects.rows.tolist() == [5_000] * 4
    assert read_all(stream.reopen()).equals(expected({0: 20_000}))


def test_a_batch_larger_than_an_object_is_cut(stream: SettledStream) -> None:
    batch = records(0, 0, 10_000)
    report = stream.archive.settle({}, {0: 10_000}, [batch], object_bytes=batch.nbytes // 4 + 1)
    assert report.objects == 4
    assert read_all(stream.reopen()).equals(expected({0: 10_000}))


def test_a_long_input_is_held_in_bounded_memory(tmp_path: Path) -> None:
    """I8: three objects at most are gathered or in work, however long the input."""
    stream = SettledStream(tmp_path)
    before, most = pa.total_allocated_bytes(), 0
    size = records(0, 0, 4_000).nbytes

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for start in range(0, 200_000, 4_000):
            yield records(0, start, start + 4_000)
            most = max(most, pa.total_allocated_bytes() - before)

    stream.archive.settle({}, {0: 200_000}, batches(), object_bytes=4 * size)
    # Encoding an object takes about its size again.
    assert most < 6 * 4 * size
    assert stream.archive.snapshot().objects.rows.sum() == 200_000


def test_rows_go_to_the_partition_of_their_event_time(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path, define(event_time="at"))
    days = pa.Table.from_batches(
        [records(0, day * 10, day * 10 + 10, at=MIDNIGHT + day * DAY_MICROS) for day in range(3)]
    )
    shuffled = days.combine_chunks().to_batches()[0]
    report = stream.archive.settle({}, {0: 30}, [shuffled.slice(0, 15), shuffled.slice(15)])
    assert (report.objects, report.partitions) == (3, 3)
    objects = stream.archive.snapshot().objects
    starts = [parse_name(path).start for path in objects.paths]  # type: ignore[union-attr]
    assert starts == [1699920000 + day * 86_400 for day in range(3)]
    kept = objects.prune(Compare(">=", "at", days.column("at")[20].as_py())).keep
    assert kept.tolist() == [False, False, True]


# Two settlers, and answers that get lost.


def test_of_two_settlers_one_wins_and_nothing_is_doubled(stream: SettledStream) -> None:
    """I3, O3: two archives on one directory, as two processes would have them."""
    stream.settle_to({0: 5})
    other = stream.open()
    stream.settle_to({0: 9})
    with pytest.raises(SettleConflict):
        other.settle({0: 5}, {0: 9}, [records(0, 5, 9)])
    assert read_all(stream.reopen()).equals(expected({0: 9}))
    assert other.snapshot().boundary == {0: 9}, "the loser knows where it stands"
    assert not [f for f in stream.archive.verify() if f.severity == "error"]


@pytest.fixture
def meddled(stream: SettledStream) -> tuple[SettledStream, Meddling]:
    delta = Meddling(stream.root)
    stream.settle_to({0: 5, 1: 5})
    stream.archive = stream.open(delta)
    return stream, delta


def test_a_settler_that_was_checked_before_another_committed_is_refused(
    meddled: tuple[SettledStream, Meddling],
) -> None:
    """The fence is in the commit itself: the check before it is not enough."""
    stream, delta = meddled
    other = stream.open()
    delta.before = lambda: other.settle({0: 5, 1: 5}, {0: 5, 1: 8}, [records(1, 5, 8)])
    with pytest.raises(SettleConflict):
        stream.archive.settle({0: 5, 1: 5}, {0: 9, 1: 5}, [records(0, 5, 9)])
    assert stream.reopen().boundary == {0: 5, 1: 8}
    assert read_all(stream.archive.snapshot()).equals(expected({0: 5, 1: 8}))


def test_a_commit_that_leaves_the_boundary_alone_does_not_stop_a_settle(
    meddled: tuple[SettledStream, Meddling],
) -> None:
    stream, delta = meddled
    stream.settle_to({0: 7, 1: 5})
    other = stream.open()
    delta.before = lambda: other.compact(least_objects=2)
    stream.settle_to({0: 9, 1: 5})
    assert read_all(stream.reopen()).equals(expected({0: 9, 1: 5}))
    assert len(stream.archive.snapshot().objects) == 2
    assert not [f for f in stream.archive.verify() if f.severity == "error"]


def raise_lost() -> None:
    raise OSError("the answer was lost")


def test_a_commit_whose_answer_was_lost_counts(meddled: tuple[SettledStream, Meddling]) -> None:
    """I5: an unknown outcome is resolved by reading the log for our commit id."""
    stream, delta = meddled
    delta.after = raise_lost
    stream.settle_to({0: 9, 1: 5})
    assert read_all(stream.archive.snapshot()).equals(expected({0: 9, 1: 5}))
    assert read_all(stream.reopen()).equals(expected({0: 9, 1: 5}))


def test_a_commit_that_did_not_happen_can_be_tried_again(meddled: tuple[SettledStream, Meddling]) -> None:
    stream, delta = meddled
    delta.before = raise_lost
    with pytest.raises(SettleFailed, match="the answer was lost"):
        stream.settle_to({0: 9, 1: 5})
    assert stream.boundary == {0: 5, 1: 5}
    stream.settle_to({0: 9, 1: 5})
    assert read_all(stream.reopen()).equals(expected({0: 9, 1: 5}))


def test_a_commit_of_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    """I5: the answer is lost, and the log cannot be read: the objects stay, and the next settle finds out."""
    storage = FaultyStorage(SettledStream(tmp_path).storage)
    stream = SettledStream(tmp_path, storage=storage)
    stream.settle_to({0: 5})
    delta = Meddling(stream.root)
    stream.archive = stream.open(delta)

    def lose() -> None:
        storage.fail(kind="read", path=r"_delta_log/0+2\.json")
        raise_lost()

    delta.after = lose
    with pytest.raises(SettleFailed, match="is not known"):
        stream.settle_to({0: 9})
    assert stream.boundary == {0: 5}
    with pytest.raises(SettleConflict):
        stream.archive.settle({0: 5}, {0: 9}, [records(0, 5, 9)])
    assert stream.boundary == {0: 9}
    assert read_all(stream.archive.snapshot()).equals(expected({0: 9}))


def test_a_commit_that_could_not_be_synced_is_written_anew_before_it_is_believed(tmp_path: Path) -> None:
    """I5: after a failed sync another one of the same file proves nothing."""
    storage = FaultyStorage(SettledStream(tmp_path).storage, root=tmp_path)
    stream = SettledStream(tmp_path, storage=storage)
    stream.settle_to({0: 5})
    storage.fail(kind="sync_file", path=r"_delta_log/0+2\.json")
    storage.fail(kind="rewrite", path=r"_delta_log")
    with pytest.raises(SettleFailed, match="may not survive a power cut"):
        stream.settle_to({0: 9})
    assert stream.boundary == {0: 5}, "the log may not let go yet"
    assert stream.archive.snapshot(refresh=True).boundary == {0: 9}
    storage.power_cut()
    again = SettledStream(tmp_path)
    assert read_all(again.archive.snapshot()).equals(expected({0: 9}))


def test_readers_and_settlers_in_threads_see_whole_snapshots(stream: SettledStream) -> None:
    errors: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                snapshot = stream.archive.snapshot()
                assert read_all(snapshot).equals(expected(snapshot.boundary))
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for stop in range(5, 60, 5):
        stream.settle_to({0: stop, 1: stop // 2})
        if stop % 20 == 0:
            stream.archive.compact(least_objects=2)
    done.set()
    for reader in readers:
        reader.join(60)
    assert not errors


def test_reading_takes_columns_a_predicate_and_objects(stream: SettledStream) -> None:
    stream.settle_to({0: 100})
    stream.settle_to({0: 200})
    snapshot = stream.archive.snapshot()
    some = And((Compare(">=", "_offset", 150), Compare("<", "n", 1_550)))
    found = pa.Table.from_batches(snapshot.read(columns=["n", "vid"], predicate=some))
    assert found.schema.names == ["n", "vid"]
    assert found.column("n").to_pylist() == [n * 10 for n in range(150, 155)]
    assert snapshot.objects.prune(some).keep.tolist() == [False, True]
    first = pa.Table.from_batches(snapshot.read(np.array([True, False]), ["_offset"]))
    assert first.column("_offset").to_pylist() == list(range(100))
    with pytest.raises(InvalidInput, match="no column 'x'"):
        list(snapshot.read(columns=["x"]))


def test_batches_come_in_the_size_asked_for(stream: SettledStream) -> None:
    stream.settle_to({0: 1_000})
    batches = list(stream.archive.snapshot().read(batch_rows=300))
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]


def test_delete_leaves_nothing(stream: SettledStream) -> None:
    stream.settle_to({0: 5})
    stream.archive.delete()
    assert not Path(stream.root).exists()
    assert stream.archive.snapshot().version == -1
    stream.settle_to({0: 3})
    assert read_all(stream.reopen()).equals(expected({0: 3}))
