"""A served pond, and drivers in processes of their own that write to it, for tests of what goes wrong on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

import millpond
from millpond.flight import FlightDoor
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.wire.access import EVERYTHING
from tests.conftest import JAVA_OPTIONS, ROOT

SECRET = "a-secret-for-tests"
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


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

    def close(self) -> None:
        self.door.close()
        self.pond.close()
