"""C11, C5: truncation is one moment for everybody: readers, writers, followers and the archive."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import millpond
from millpond.errors import StreamNotFound, Truncated
from millpond.pond.pond import Pond
from millpond.pond.stream import Stream

SCHEMA = pa.schema([("vid", pa.string()), ("n", pa.int64())])
DEADLINE_SECONDS = 60.0


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"vid": f"v{n % 7}", "n": n} for n in numbers]


def numbers(stream: Stream) -> list[int]:
    return sorted(stream.scan(columns=["n"]).column("n").to_pylist())


@pytest.fixture
def pond(tmp_path: Path) -> Any:
    with millpond.open(tmp_path / "pond", background=False) as opened:
        yield opened


def made(pond: Pond, name: str = "grid/meters", **how: Any) -> Stream:
    stream = pond.create_stream(name, SCHEMA, keys=["vid"], **{"streamlets": 3} | how)
    stream.append(rows(*range(30)))
    if stream.definition.settle is not None:
        stream.settle()
    stream.append(rows(*range(30, 40)))
    return stream


def test_everything_goes_and_the_stream_stays(pond: Pond) -> None:
    stream = made(pond)
    preview = stream.truncate(preview=True)
    assert (preview.rows_live, preview.rows_settled, preview.objects, preview.generation) == (10, 30, 1, 2)
    assert not preview.done
    assert len(numbers(stream)) == 40, "a preview took something"
    before = stream.snapshot()
    gone = stream.truncate()
    assert (gone.rows_live, gone.rows_settled, gone.generation, gone.done) == (10, 30, 2, True)
    assert numbers(stream) == []
    assert stream.count() == 0
    assert stream.get("v1").num_rows == 0
    assert stream.segments() == []
    status = stream.status()
    assert (status.generation, status.rows_live, status.rows_settled, status.objects) == (2, 0, 0, 0)
    assert status.head == {0: 0, 1: 0, 2: 0}
    assert deltalake.DeltaTable(stream.archive.root).to_pyarrow_table().num_rows == 0
    assert before.settled.objects.rows.sum() == 30, "a snapshot that was taken before changed"
    ack = stream.append({"vid": "v1", "n": 100})
    assert {offsets.start for offsets in ack.ranges.values()} == {0}
    assert numbers(stream) == [100]
    assert stream.settle() is not None
    assert numbers(stream) == [100]
    assert pond.verify().findings == ()


def test_it_is_on_record(pond: Pond) -> None:
    made(pond).truncate()
    (record,) = pond.audit().to_pylist()
    assert (record["action"], record["stream"]) == ("truncate", "grid/meters")
    assert "rows_live=10 rows_settled=30" in record["detail"]
    assert "generation=1" in record["detail"]


@pytest.mark.parametrize("settle", [millpond.Settle(), None], ids=["archived", "never archived"])
def test_nothing_comes_back_after_a_reopen(tmp_path: Path, settle: Any) -> None:
    with millpond.open(tmp_path, background=False) as pond:
        stream = made(pond, settle=settle)
        stream.truncate()
        stream.append(rows(7, 8))
    for _ in range(2):
        with millpond.open(tmp_path, background=False) as pond:
            stream = pond.stream("grid/meters")
            assert numbers(stream) == [7, 8]
            assert stream.status().generation == 2
            assert pond.verify().findings == ()
    with millpond.open(tmp_path, background=False) as pond:
        pond.stream("grid/meters").truncate()
    with millpond.open(tmp_path, background=False) as pond:
        assert numbers(pond.stream("grid/meters")) == []
        assert pond.stream("grid/meters").status().generation == 3
        pond.drop_stream("grid/meters")
        with pytest.raises(StreamNotFound):
            pond.stream("grid/meters")


def test_columns_are_added_before_and_after(pond: Pond) -> None:
    stream = made(pond)
    pond.alter_stream("grid/meters", pa.schema([*SCHEMA, pa.field("note", pa.string())]))
    stream.truncate()
    stream.append([{"vid": "a", "n": 1, "note": "x"}])
    stream.settle()
    pond.alter_stream("grid/meters", pa.schema([*stream.schema, pa.field("more", pa.int64())]))
    stream.append([{"vid": "a", "n": 2, "note": "y", "more": 3}])
    stream.settle()
    found = stream.scan().sort_by("n").to_pylist()
    assert [(row["n"], row["note"], row["more"]) for row in found] == [(1, "x", None), (2, "y", 3)]
    assert pond.verify().findings == ()


def test_the_log_lets_go_of_what_was_truncated(tmp_path: Path) -> None:
    small = {"journal_file_bytes": 64_000, "segment_bytes": 64_000}
    with millpond.open(tmp_path, background=False, **small) as pond:
        stream = pond.create_stream("a", pa.schema([("n", pa.int64()), ("pad", pa.string())]))
        for n in range(40):
            stream.append([{"n": n, "pad": "x" * 10_000}] * 2)
        assert pond.log.status().journal_files > 5
        stream.truncate()
        stream.append([{"n": 1, "pad": ""}])
        assert pond.log.status().journal_files <= 2
        assert pond.log.status().memory_bytes < 2_000


def test_a_retry_of_what_was_truncated_leaves_no_trace(tmp_path: Path) -> None:
    """The append was acknowledged, and then discarded: sent again it is neither new nor an error."""
    with millpond.open(tmp_path, background=False) as pond:
        stream = made(pond)
        stream.append(rows(50), producer="p", sequence=4)
        stream.truncate()
        again = stream.append(rows(50), producer="p", sequence=4)
        assert (again.duplicate, again.ranges) == (True, {})
        assert numbers(stream) == []
    with millpond.open(tmp_path, background=False) as pond:
        stream = pond.stream("grid/meters")
        assert stream.append(rows(50), producer="p", sequence=4).duplicate
        assert not stream.append(rows(51), producer="p", sequence=5).duplicate
        assert numbers(stream) == [51]


def test_writers_of_every_kind_go_over_by_themselves(pond: Pond) -> None:
    """Nothing is refused, and what is acknowledged after the truncation is there once."""
    stream = made(pond)
    truncated = threading.Event()
    stop = threading.Event()
    after: list[list[int]] = [[], [], []]
    errors: list[BaseException] = []

    def write(kind: int) -> None:
        n = 1_000_000 * (kind + 1)
        try:
            with stream.producer() as producer:
                while not stop.is_set():
                    n += 1
                    late = truncated.is_set()
                    if kind == 0:
                        stream.append(rows(n)[0])
                    elif kind == 1:
                        stream.append(rows(n), producer="me", sequence=n)
                    else:
                        producer.append(rows(n)[0])
                        if n % 5 == 0:
                            producer.flush()
                    if late:
                        after[kind].append(n)
                        if len(after[kind]) >= 20:
                            return
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(kind,)) for kind in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        stream.truncate()
    truncated.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
        stop.set()
    assert errors == []
    found = numbers(stream)
    assert len(found) == len(set(found)), "a record is there twice"
    assert set(found) >= {n for each in after for n in each}
    assert all(n >= 1_000_000 for n in found), "records of an old generation"
    stream.settle()
    assert numbers(stream) == found
    assert pond.verify().findings == ()


def test_a_follower_goes_over_and_a_kept_position_is_refused(pond: Pond) -> None:
    stream = made(pond)
    with stream.read(follow=True) as reader:
        seen = 0
        while seen < 40:
            seen += next(reader).num_rows
        kept = reader.position
        stream.truncate()
        stream.append(rows(5, 6, 7))
        found: list[int] = []
        while len(found) < 3:
            found += next(reader).column("n").to_pylist()
        assert sorted(found) == [5, 6, 7]
        assert reader.position.generation == 2
    with pytest.raises(Truncated, match="generation 1 is gone, this is 2"):
        stream.read(kept)
    with pytest.raises(Truncated):
        stream.read(kept, follow=True)


def test_settling_beside_it_never_brings_anything_back(pond: Pond) -> None:
    """A settler, a merger and a truncation at the same time, again and again."""
    stream = made(pond)
    errors: list[BaseException] = []
    stop = threading.Event()

    def keep(work: Any) -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    works = (stream.settle, lambda: stream.archive.compact(least_objects=2), stream.count)
    threads = [threading.Thread(target=keep, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for generation in range(2, 12):
        stream.append(rows(*range(generation * 100, generation * 100 + 20)))
        stream.truncate()
        stream.append(rows(generation))
        assert numbers(stream) == [generation]
    stop.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert errors == []
    stream.settle()
    assert numbers(stream) == [11]
    table = deltalake.DeltaTable(stream.archive.root).to_pyarrow_table()
    assert table.column("n").to_pylist() == [11]
    assert pond.verify().findings == ()
