"""Where a pond may be."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.errors import Damaged, InvalidValue


@pytest.mark.parametrize("odd", ["a%20b", "a\\b", "a\nb", "a\x00b"])
def test_a_path_that_delta_readers_would_misread_is_refused_before_anything_is_made(tmp_path: Path, odd: str) -> None:
    with pytest.raises(InvalidValue, match="directory without %"):
        millpond.open(f"{tmp_path}/{odd}")
    with pytest.raises(InvalidValue, match="directory without %"):
        millpond.open(tmp_path / "pond", archive=f"{tmp_path}/{odd}")
    assert list(tmp_path.iterdir()) == []


def test_a_pond_with_an_archive_elsewhere_opens_wherever_it_is(tmp_path: Path) -> None:
    """Only the archive is read by others."""
    where = tmp_path / "100%"
    millpond.open(where, archive=tmp_path / "archive").close()
    with millpond.open(where) as pond:
        assert pond.streams() == []


@pytest.mark.parametrize("odd", ["a\u00a0b\u3000c", "a b", "a#b?c=d", "é漢🦆", "a:b", "a'b\"c", "[a]{b}*"])
def test_any_other_path_serves(tmp_path: Path, odd: str) -> None:
    for number in range(2):
        with millpond.open(tmp_path / odd, settle_on_close=True) as pond:
            stream = pond.create_stream("x", pa.schema([("n", pa.int64())]), exist_ok=True)
            stream.append({"n": number})
            assert stream.count() == number + 1


def test_a_commit_that_is_gone_after_the_journal_let_go_is_named(tmp_path: Path) -> None:
    """The newest commit counts as torn if it cannot be read; only the journal tells that it had been whole."""
    with millpond.open(tmp_path, journal_file_bytes=100_000) as pond:
        stream = pond.create_stream("x", pa.schema([("n", pa.int64())]))
        stream.append(pa.table({"n": range(20_000)}))
        stream.append({"n": 0})  # begins the next file, so that the first may go
        stream.settle()
        stream.append({"n": 1})
    (commit,) = tmp_path.glob("archive/*/_delta_log/*1.json")
    whole = commit.read_bytes()
    commit.write_bytes(whole[:50])
    for _ in range(2):  # the second time it has been set aside already
        with pytest.raises(Damaged, match="are missing") as refused:
            millpond.open(tmp_path)
        assert "_torn/00000000000000000001.json-" in refused.value.hint
    commit.write_bytes(whole)
    with millpond.open(tmp_path) as pond:
        assert pond.stream("x").count() == 20_002
