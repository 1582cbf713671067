"""Where a pond may be."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidValue


@pytest.mark.parametrize("odd", ["a%20b", "a\\b", "a\nb", "a\x00b"])
def test_a_path_that_delta_readers_would_misread_is_refused_before_anything_is_made(tmp_path: Path, odd: str) -> None:
    with pytest.raises(InvalidValue, match="directory without %"):
        millpond.open(f"{tmp_path}/{odd}")
    with pytest.raises(InvalidValue, match="directory without %"):
        millpond.open(tmp_path / "pond", archive=f"{tmp_path}/{odd}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("odd", ["a b", "a#b?c=d", "é漢🦆", "a:b", "a'b\"c", "[a]{b}*"])
def test_any_other_path_serves(tmp_path: Path, odd: str) -> None:
    for number in range(2):
        with millpond.open(tmp_path / odd, settle_on_close=True) as pond:
            stream = pond.create_stream("x", pa.schema([("n", pa.int64())]), exist_ok=True)
            stream.append({"n": number})
            assert stream.count() == number + 1
