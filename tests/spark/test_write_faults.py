"""Writes whose tasks fail, die, run twice, and whose driver is killed: all of a write is there, once, or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import millpond
from millpond.flight import FlightDoor
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.wire.access import EVERYTHING
from tests.conftest import JAVA_OPTIONS, ROOT
from tests.spark.write_job import ROWS

SECRET = "a-secret-for-tests"
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
# A killed driver's lease keeps others from loading for this long.
LEASE_SECONDS = 3.0
QUICK_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
}

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


class Node:
    """A pond with a door, and drivers in processes of their own that write to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Small objects, so that a task that comes to grief leaves some behind.
        self.pond = millpond.open(path / "pond", background=False, segment_bytes=64_000, block_segments=1)
        self.door = FlightDoor(PondDesk(self.pond, SecretGate(SECRET, EVERYTHING)))
        self.stream = self.pond.create_stream("s", SCHEMA)

    def run(self, to: str, *, master: str = "local[2]", kill: str = "", **more: Any) -> int:
        """Run a driver; how its process ended."""
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "700m",
            "spark.executor.memory": "600m",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self._path / "local"),
            "spark.sql.warehouse.dir": str(self._path / "warehouse"),
            **more.pop("settings", {}),
        }
        asked = {"master": master, "pond": self.door.location, "token": SECRET, "to": to, "kill": kill, **more}
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        job = subprocess.run(
            [sys.executable, ROOT / "tests" / "spark" / "write_job.py", json.dumps({**asked, "settings": settings})],
            capture_output=True,
            text=True,
            timeout=500,
            env=environment,
            cwd=self._path,
        )
        assert job.returncode in (0, -9), job.stderr[-4_000:]
        return job.returncode

    def numbers(self) -> list[int]:
        """What readers see, and what an independent reader of the table sees once all has settled."""
        found = sorted(self.stream.scan(columns=["n"]).column("n").to_pylist())
        self.stream.settle()
        if self.stream.status().version >= 0:
            table = DeltaTable(self.stream.archive.root).to_pyarrow_table(columns=["n"])
            assert sorted(table.column("n").to_pylist()) == found
        return found

    def leftovers(self) -> int:
        """Objects that no commit names."""
        files = {str(path.relative_to(self.stream.archive.root)) for path in self.objects()}
        return len(files - set(self.stream.snapshot().settled.objects.paths))

    def objects(self) -> list[Path]:
        return list(Path(self.stream.archive.root).glob("g*/*/*.parquet"))

    def close(self) -> None:
        self.door.close()
        self.pond.close()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr("millpond.pond.loading.LEASE_SECONDS", LEASE_SECONDS)
    made = Node(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("to", ["log", "archive"])
def test_tasks_that_fail_die_or_run_twice_count_once(node: Node, to: str) -> None:
    """On two executors, each a process of its own."""
    troubles = ["raise", "die", "slow"]
    ended = node.run(to, master="local-cluster[2,1,700]", troubles=troubles, settings=QUICK_SPECULATION)
    assert ended == 0
    assert node.numbers() == list(range(len(troubles) * ROWS))
    if to == "archive":
        assert node.leftovers() > 0, "attempts that came to grief had written objects"
        for path in node.objects():
            os.utime(path, (0, 0))
        for path in (Path(node.stream.archive.root) / "_delta_log").iterdir():
            os.utime(path, (0, 0))
        assert node.stream.vacuum("7d").objects > 0
        assert node.leftovers() == 0
    assert node.pond.staging.bytes == 0
    assert node.numbers() == list(range(len(troubles) * ROWS))
    assert node.pond.verify().findings == ()


@pytest.mark.parametrize("to", ["log", "archive"])
def test_a_driver_that_is_killed_leaves_all_or_nothing(node: Node, to: str) -> None:
    assert node.run(to, troubles=[""], kill="before the commit") == -9
    assert node.numbers() == []
    assert node.run(to, troubles=[""], kill="after the commit") == -9
    assert node.numbers() == list(range(ROWS))


@pytest.mark.parametrize("to", ["log", "archive"])
def test_a_streaming_copy_is_exact_although_its_driver_is_killed(node: Node, to: str, tmp_path: Path) -> None:
    source = node.pond.create_stream("source", SCHEMA)
    source.append(pa.table({"n": range(10_000), "text": [f"t{n % 10}" for n in range(10_000)]}))
    checkpoint = str(tmp_path / "checkpoint")
    for kill, least in (("before the commit", 0), ("after the commit", 1), ("after the commit", 2)):
        assert node.run(to, kill=kill, checkpoint=checkpoint) == -9
        seen = node.numbers()
        assert len(seen) == len(set(seen)) == 3_000 * least
    assert node.run(to, checkpoint=checkpoint) == 0
    assert node.numbers() == list(range(10_000))
