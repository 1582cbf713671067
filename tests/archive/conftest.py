from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive.settled_stream import SettledStream


@pytest.fixture
def stream(tmp_path: Path) -> SettledStream:
    """Two streamlets, nothing settled."""
    return SettledStream(tmp_path)


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where the system has one: with a modelled disk, real syncs prove nothing more."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="millpond-archive-", dir=memory))
    yield path
    shutil.rmtree(path)
