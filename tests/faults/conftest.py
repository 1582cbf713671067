"""A simulated crash kills every thread of a pond: their deaths are no news. A modelled disk needs no real one."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.testing import Crash


@pytest.fixture(autouse=True)
def _dying_threads_are_silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def hook(args: threading.ExceptHookArgs, before=threading.excepthook) -> None:
        if not isinstance(args.exc_value, Crash):
            before(args)

    monkeypatch.setattr(threading, "excepthook", hook)
    # The log says of every injected fault what it should; pytest would keep all of it for each test.
    logging.getLogger("millpond").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("millpond").setLevel(logging.NOTSET)


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where the system has one: what a power cut leaves is modelled, so that thousands of real
    syncs prove nothing more. The runs from outside (kill -9) use the real disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="millpond-faults-", dir=memory))
    yield path
    shutil.rmtree(path)
