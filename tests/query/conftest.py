from __future__ import annotations

from pathlib import Path

import pytest

from tests.query.small_pond import SmallPond, define


@pytest.fixture
def pond(tmp_path: Path) -> SmallPond:
    """One stream with one streamlet, nothing in it."""
    return SmallPond(tmp_path)


@pytest.fixture
def wide_pond(tmp_path: Path) -> SmallPond:
    """One stream with three streamlets, and reads that come in batches of four."""
    return SmallPond(tmp_path, define(streamlets=3), batch_rows=4)
