"""A commit that landed stands, whatever fails after it: what it names is not taken away again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

import millpond


@pytest.mark.parametrize("error", [DeltaError("another engine's commit is not readable"), OSError("no more files")])
def test_objects_of_a_merge_stay_if_the_table_is_unreadable_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.create_stream("numbers", pa.schema([("n", pa.int64())]))
        for n in range(5):
            stream.append({"n": n})
            stream.settle()
        delta = stream.archive._ledger.delta
        commit, refresh = delta.commit, delta.refresh
        landed: list[bool] = []

        def commit_and_tell(*given: Any, **more: Any) -> None:
            commit(*given, **more)
            landed.append(True)

        def fail_once() -> int:
            if landed:
                landed.clear()
                raise error
            return refresh()

        monkeypatch.setattr(delta, "commit", commit_and_tell)
        monkeypatch.setattr(delta, "refresh", fail_once)
        report = stream.archive.compact()
        assert report is not None
        assert (report.objects_before, report.objects_after) == (5, 1)
        assert not landed, "the failure came"
        assert stream.scan().column("n").to_pylist() == list(range(5))
        stream.append({"n": 5})
        stream.settle()
        assert stream.count("n >= 0") == 6
