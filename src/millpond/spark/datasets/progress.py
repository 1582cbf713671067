"""How far a Spark job is, told while it runs: from the tasks that have ended, asked for in a thread beside it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

# Often enough for people; each look costs a few calls to the JVM.
LOOK_SECONDS = 0.5
# What setJobGroup sets.
_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def following(spark: SparkSession, total: int, told: Callable[[int], None]) -> Iterator[None]:
    """Jobs that this thread runs inside are told of: `told(how much of total is done)`, in another thread."""
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in _GROUP}
    group = f"millpond-{secrets.token_hex(4)}"
    context.setJobGroup(group, "millpond: describing files")
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            tracker = context.statusTracker()
            tasks = done = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None else ():
                    found = tracker.getStageInfo(stage)
                    if found is not None:
                        tasks, done = tasks + found.numTasks, done + found.numCompletedTasks
            if tasks:
                told(min(total - 1, total * done // tasks))  # the end is for the caller to tell

    watcher = threading.Thread(target=look, name="millpond-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None takes it away
