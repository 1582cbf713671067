"""A streaming copy from one stream to another, exactly once, whenever its driver is killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.client.pond import RemotePond
from millpond.client.stream import RemoteStream
from tests.conftest import JAVA_OPTIONS
from tests.serving import serving

ROOT = Path(__file__).parent.parent.parent
PYTHONPATH = os.pathsep.join([str(ROOT), str(ROOT / "src")])
SCHEMA = pa.schema([("n", pa.int64()), ("city", pa.string())])
BEGIN_SECONDS = 300.0
FINISH_SECONDS = 500.0
# From a moment in which nothing has happened yet to several batches later.
KILL_SECONDS_MAX = 3.0


@contextlib.contextmanager
def driver(url: str, checkpoint: Path, log: Path, mode: str) -> Iterator[subprocess.Popen[bytes]]:
    """The driver and its JVM, in a process group of their own, of which nothing is left afterwards."""
    command = [sys.executable, ROOT / "tests" / "spark" / "copy_job.py", url, "grid/meters", "grid/copy"]
    with log.open("ab") as said:
        process = subprocess.Popen(
            [*command, checkpoint, JAVA_OPTIONS, mode],
            stdout=subprocess.PIPE,
            stderr=said,
            env=os.environ
            | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": PYTHONPATH},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def numbers(stream: RemoteStream) -> list[int]:
    return sorted(n for batch in stream.read(columns=["n"]) for n in batch.column("n").to_pylist())


def fill(stream: RemoteStream, start: int, stop: int) -> None:
    stream.append([{"n": n, "city": f"c{n % 3}"} for n in range(start, stop)])


def copy_while_killed(tmp_path: Path, kills: int, seed: int) -> None:
    chance, log, checkpoint = random.Random(seed), tmp_path / "driver.log", tmp_path / "checkpoint"
    with serving(tmp_path / "pond") as served:
        url = f"http://127.0.0.1:{served.rest_port}"
        with millpond.connect(url) as pond:
            source = pond.create_stream("grid/meters", schema=SCHEMA, streamlets=2)
            copy = pond.create_stream("grid/copy", schema=SCHEMA)
            made = 0
            for kill in range(kills):
                for _ in range(4):
                    fill(source, made, made + 250)
                    made += 250
                if kill % 2:
                    source.settle()
                with driver(url, checkpoint, log, "on") as process:
                    assert process.stdout is not None
                    said = process.stdout.readline()
                    assert said == b"begun\n", log.read_text()[-4_000:]
                    time.sleep(chance.uniform(0, KILL_SECONDS_MAX))  # when it is killed is up to chance
            with driver(url, checkpoint, log, "finish") as process:
                assert process.wait(FINISH_SECONDS + 20 * kills) == 0, log.read_text()[-4_000:]
            assert numbers(copy) == list(range(made))
            check_group(pond, made)


def check_group(pond: RemotePond, made: int) -> None:
    """What the group is behind is at most the last batch, which Spark has not told the source of."""
    (status,) = [each for each in pond.groups() if each.group == "copy"]
    assert status.lag_total <= 100


@pytest.mark.cluster
@pytest.mark.timeout(1_500)
def test_a_copy_whose_driver_is_killed_has_every_record_once(tmp_path: Path) -> None:
    copy_while_killed(tmp_path, kills=5, seed=1)


@pytest.mark.cluster
@pytest.mark.long
def test_a_copy_whose_driver_is_killed_a_hundred_times_has_every_record_once(tmp_path: Path) -> None:
    copy_while_killed(tmp_path, kills=100, seed=random.randrange(2**32))
