"""A Spark standalone cluster: a master and two workers, whose executors are processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from tests.conftest import JAVA_OPTIONS
from tests.spark.write_job import ROWS
from tests.spark.write_node import Node

ROOT = Path(__file__).parent.parent.parent
# Of this checkout, wherever its packages are installed.
PYTHONPATH = os.pathsep.join([str(ROOT), str(ROOT / "src")])
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
START_SECONDS = 120.0
JOB_SECONDS = 500.0

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


class Cluster(NamedTuple):
    """Its URL, and the process groups of its master and its workers, executors included."""

    url: str
    processes: list[subprocess.Popen[bytes]]

    def kill_worker(self) -> None:
        os.killpg(self.processes[-1].pid, signal.SIGKILL)


@pytest.fixture
def master(cluster: Cluster) -> str:
    return cluster.url


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    at = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [[f"{deploy}.master.Master", *at, "--port", str(port)]]
    for number in range(2):
        work = ["--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"work{number}"), url]
        commands.append([f"{deploy}.worker.Worker", *at, *work])
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": PYTHONPATH,
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with open(tmp_path / f"daemon{number}.log", "wb") as log:
                started.append(
                    subprocess.Popen(
                        [SPARK_CLASS, *command], stdout=log, stderr=log, env=environment, start_new_session=True
                    )
                )
            if number == 0:
                _wait_until_listening(port, started[0])
        yield Cluster(url, started)
    finally:
        for process in reversed(started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            process.wait(30)


def _wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the master ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("the master does not listen")


def test_a_cluster_reads_both_halves_exactly(master: str, tmp_path: Path) -> None:
    """B2 on a cluster: settled objects by path, live records by Flight, retries and joins on one snapshot."""
    job = subprocess.run(
        [sys.executable, ROOT / "tests" / "spark" / "cluster_job.py", master, tmp_path, JAVA_OPTIONS],
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": PYTHONPATH},
    )
    assert job.returncode == 0, job.stderr[-4_000:]
    found = json.loads(job.stdout.splitlines()[-1])
    assert found["driver"] not in found["workers"]
    assert len(found["workers"]) == 2, "both workers should have run tasks"
    assert found["all"] == list(range(350))
    assert found["few"] == [*range(190, 206), 349]
    assert found["objects"] == [2, 3]
    assert found["nan"] == list(range(7, 350, 50))
    assert found["groups"] == [["c0", 117], ["c1", 117], ["c2", 116]]
    assert found["retried"] == list(range(350))
    assert found["served"] >= 2, "no live task was tried twice"
    assert found["unmatched"] == 0


def test_a_stream_is_read_exactly_although_a_worker_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """Settled and live records; the worker goes while tasks of a micro-batch are in the middle of them."""
    job = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "spark" / "cluster_stream_job.py", cluster.url, tmp_path, JAVA_OPTIONS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": PYTHONPATH},
    )
    try:
        deadline = time.monotonic() + JOB_SECONDS
        while len(list(tmp_path.glob("running-*"))) < 2 and job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(list(tmp_path.glob("running-*"))) >= 2, "both workers should have been in the middle of a task"
        cluster.kill_worker()
        (tmp_path / "killed").touch()
        said, complained = job.communicate(timeout=JOB_SECONDS)
    finally:
        job.kill()
        job.wait(30)
    assert job.returncode == 0, complained[-4_000:]
    found = json.loads(said.splitlines()[-1])
    assert sorted(n for batch in found["batches"] for n in batch) == list(range(found["made"]))
    assert len(found["batches"]) == 4


def test_executors_need_nothing_but_pyarrow(tmp_path: Path) -> None:
    """The function that fetches travels by value: it can be loaded and run where Millpond cannot be imported."""
    from pyspark import cloudpickle

    import millpond.spark.live
    from millpond.flight import fetch

    assert millpond.spark.live
    pickled = tmp_path / "function.pickle"
    pickled.write_bytes(cloudpickle.dumps(fetch.ticket_reader("grpc://127.0.0.1:1", "token", [b"{}"])))
    code = f"""
import pickle, sys
sys.modules["millpond"] = None
import pyarrow as pa
read = pickle.load(open({str(pickled)!r}, "rb"))
try:
    list(read(iter([pa.record_batch({{"id": pa.array([0])}})])))
except RuntimeError as error:
    assert "does not answer" in str(error), error
    print("tried to fetch")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "tried to fetch", run.stderr


@pytest.mark.parametrize("to", ["log", "archive"])
def test_tasks_that_fail_or_die_are_run_again_and_count_once(master: str, tmp_path: Path, to: str) -> None:
    """A task raises, its Python dies, its executor dies: each time after its rows are written."""
    node = Node(tmp_path)
    with contextlib.closing(node):
        troubles = ["raise", "die", "executor"]
        assert node.run(to, master=master, troubles=troubles) == 0
        assert node.numbers() == list(range(len(troubles) * ROWS))
        assert node.pond.staging.bytes == 0
        assert node.pond.verify().findings == ()
