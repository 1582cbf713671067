"""B7: verify finds what is wrong, names it, and finds nothing where nothing is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.archive.delta_stats import stats_json
from millpond.archive.objects import encode_object
from millpond.archive.stream_archive import Finding
from millpond.archive.table import Added, DeltaLog, Removed
from millpond.model.stats import ColumnRange
from tests.archive.settled_stream import SettledStream, records


@pytest.fixture
def settled(stream: SettledStream) -> SettledStream:
    for stop in (100, 200, 300):
        stream.settle_to({0: stop, 1: stop // 2})
    return stream


def errors(stream: SettledStream) -> list[Finding]:
    found = stream.archive.verify()
    assert all(finding.hint for finding in found)
    return [finding for finding in found if finding.severity == "error"]


def test_a_sound_archive_has_no_findings(settled: SettledStream) -> None:
    assert settled.archive.verify() == []
    settled.archive.compact(least_objects=2)
    settled.archive.checkpoint()
    assert settled.archive.verify() == []


def test_an_empty_archive_has_no_findings(stream: SettledStream) -> None:
    assert stream.archive.verify() == []


def test_progress_is_told(settled: SettledStream) -> None:
    told: list[tuple[int, int]] = []
    settled.archive.verify(lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_object_of_another_size_is_found(settled: SettledStream) -> None:
    path = settled.archive.snapshot().objects.paths[1]
    with Path(settled.root, path).open("ab") as file:
        file.write(b"PAR1")
    found = errors(settled)
    assert {finding.path for finding in found} == {path}
    assert any("bytes, the table says" in finding.message for finding in found)


def rewritten(stream: SettledStream, at: int, table: pa.Table) -> str:
    """Another Parquet file in the place of an object."""
    path = stream.archive.snapshot().objects.paths[at]
    pq.write_table(table, Path(stream.root, path))
    return path


def test_rows_that_are_missing_doubled_or_strange_are_found(settled: SettledStream) -> None:
    """I3: per streamlet the offsets are exactly [0, boundary), each once."""
    table = pa.Table.from_batches([records(0, 100, 199), records(0, 0, 1), records(1, 50, 100)])
    path = rewritten(settled, 1, table)
    messages = [finding.message for finding in errors(settled) if finding.path == "streamlet 0"]
    assert messages == ["offsets [0, 1) are there twice", "offsets [199, 200) are missing"]
    assert any("block checksums differ" in finding.message for finding in errors(settled) if finding.path == path)


def test_a_wrong_row_count_is_found(settled: SettledStream) -> None:
    rewritten(settled, 2, pa.Table.from_batches([records(0, 200, 250), records(1, 100, 150)]))
    assert any("100 rows, the table says 150" in finding.message for finding in errors(settled))


class Lying(DeltaLog):
    """Writes other statistics than those it was given."""

    def commit(
        self,
        added: Sequence[Added],
        removed: Sequence[Removed],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        **more: Any,
    ) -> None:
        wrong = json.loads(added[0].stats)
        wrong["maxValues"]["n"] = 5
        wrong["nullCount"]["vid"] = 1
        lie = Added(added[0].path, added[0].bytes, added[0].rows, json.dumps(wrong))
        super().commit([lie], removed, transactions, metadata, **more)


def test_statistics_that_would_mislead_other_engines_are_found(stream: SettledStream) -> None:
    """B1, F5"""
    stream.archive = stream.open(Lying(stream.root))
    stream.settle_to({0: 10})
    messages = [finding.message for finding in errors(stream)]
    assert len(messages) == 2
    assert "n goes up to 90, not 5" in messages[1]
    assert "vid has 0 nulls, not 1" in messages[0]


def test_an_index_entry_that_does_not_bound_its_object_is_found(stream: SettledStream) -> None:
    """F5: the entry was made from other rows than the object."""

    def lie(table: pa.Table, definition: Any, place: Any) -> Any:
        data, facts = encode_object(table, definition, place)
        narrower = ColumnRange(10, 20, 0)
        columns = dict(facts.columns) | {"n": narrower}
        return data, type(facts)(facts.size, facts.rows, columns, facts.checksums)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millpond.archive.writing.encode_object", lie)
        stream.settle_to({0: 10})
    messages = [finding.message for finding in errors(stream)]
    assert any("its index entry is wrong: n goes down to 0, not 10" in message for message in messages)
    assert any("n goes up to 90, not 20" in message for message in messages)


def test_every_damaged_commit_file_is_found(settled: SettledStream) -> None:
    for version in range(3):
        path = Path(settled.root, "_delta_log", f"{version:020d}.json")
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"delta-rs", b"delta-rt", 1))
        assert [finding.path for finding in errors(settled)] == [f"_delta_log/{path.name}"]
        path.write_bytes(whole)
    assert not errors(settled)


def test_what_was_set_aside_is_a_warning(settled: SettledStream) -> None:
    Path(settled.root, "_delta_log", f"{3:020d}.json").write_bytes(b"")
    settled.reopen()
    (finding,) = settled.archive.verify()
    assert finding.severity == "warning"
    assert finding.path.startswith("_torn/")


def test_statistics_leave_out_what_json_cannot_say() -> None:
    """B1: and what readers would get wrong."""
    columns = {
        "nan": ColumnRange(None, None, 0),
        "inf": ColumnRange(1.0, float("inf"), 2),
        "b": ColumnRange(b"", b"x", 0),
    }
    said = json.loads(stats_json(3, columns))
    assert said == {
        "numRecords": 3,
        "minValues": {"inf": 1.0},
        "maxValues": {},
        "nullCount": {"nan": 0, "inf": 2, "b": 0},
    }
