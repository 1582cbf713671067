"""Files as others write them, and what plain Spark says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond


@pytest.fixture
def pond(pond_dir: Path) -> Iterator[millpond.Pond]:
    with millpond.open(str(pond_dir), background=False) as pond:
        yield pond


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where a test may put files."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
