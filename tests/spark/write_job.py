"""Run by test_write_faults.py in a process of its own: a driver that writes to a served pond, and may be killed on the
way. What it is to do comes as JSON: the master, the door, the target, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import millpond
from millpond.client.bulk import RemoteBulk

ROWS = 20_000
TASKS = 4


def troubled(trouble: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What stands before the writer in each task; the first attempt of task 1 comes to grief after its rows are out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            if trouble == "raise":
                raise RuntimeError("planned")
            if trouble == "die":
                os._exit(3)
            if trouble == "executor":  # which started the process that started this one
                os.kill(int(Path(f"/proc/{os.getppid()}/stat").read_text().split()[3]), signal.SIGKILL)
                time.sleep(300)

    return run


def frame(spark: SparkSession, start: int, trouble: str) -> DataFrame:
    data = spark.range(start, start + ROWS, 1, TASKS).selectExpr("id AS n", "concat('t', id % 10) AS text")
    return data.mapInArrow(troubled(trouble), "n long, text string") if trouble else data


def kill_at(moment: str) -> None:
    """Let this process be killed at its next commit, before it is sent or after it is answered."""
    if moment:
        for method in ("commit_staged", "commit_load"):
            setattr(RemoteBulk, method, killing(getattr(RemoteBulk, method), moment))


def killing(plain: Callable[..., Any], moment: str) -> Callable[..., None]:
    def commit(bulk: RemoteBulk, *given: Any, **more: Any) -> None:
        if moment == "after the commit":
            plain(bulk, *given, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    return commit


def main(asked: dict[str, Any]) -> None:
    builder = SparkSession.builder.master(asked["master"]).appName("writes")
    for name, value in asked["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    millpond.spark.register(spark)
    where = {"pond": asked["pond"], "token": asked["token"], "stream": "s", "to": asked["to"]}
    if asked.get("checkpoint"):
        kill_at(asked["kill"])
        source = {**where, "stream": "source", "maxRecordsPerTrigger": "3000"}
        del source["to"]
        copied = spark.readStream.format("millpond").options(**source).load().writeStream.format("millpond")
        copied = copied.options(**where, checkpointLocation=asked["checkpoint"]).trigger(availableNow=True)
        copied.start().awaitTermination()
    else:
        for number, trouble in enumerate(asked["troubles"]):
            kill_at(asked["kill"])
            frame(spark, number * ROWS, trouble).write.format("millpond").options(**where).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
