"""The directory of data sets: what a dropped one left is removed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import millpond


def test_only_what_is_left_of_data_sets_is_removed(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", background=False, disk_reserve_bytes=0):
        pass
    directory = tmp_path / "pond" / "datasets"
    for name in ("grid.weather-5f0c91d2", "lost+found", "notes", "weather-old", "copy of grid.weather-5f0c91d2"):
        (directory / name).mkdir(parents=True)
        (directory / name / "file").write_text("x")
    with millpond.open(tmp_path / "pond", background=False, disk_reserve_bytes=0) as pond:
        assert pond.datasets() == []
    left = {path.parent.name for path in directory.glob("*/file")}
    assert left == {"lost+found", "notes", "weather-old", "copy of grid.weather-5f0c91d2"}
