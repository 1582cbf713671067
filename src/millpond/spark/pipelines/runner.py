"""Running pipelines: a thread each, which starts its query again after a failure, with pauses that grow.

What is wrong with a pipeline itself, as it is first put together, ends it: starting it again would change nothing. Once
it has run, whatever fails may pass (a node that is away, a disk that is full), and even a record that the function
fails on may be handled by the next version of the file; so it is tried again and again, and each failure is shown.

A stop lets a micro-batch that is under way finish and commit. What is cut off nevertheless does no harm: the batch is
done again, exactly once, at the next start.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.errors import InvalidInput, MillpondError
from millpond.spark.group_position import GroupPosition
from millpond.spark.pipelines.blame import blamed
from millpond.spark.pipelines.declare import Pipeline
from millpond.spark.pipelines.place import Checkpoints, PondAccess
from millpond.spark.pipelines.query import sources_of, start_query
from millpond.spark.place import Place
from millpond.wire.pipelines import GROUP_PREFIX, PipelineReport

logger = logging.getLogger(__name__)

PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX = 1.0, 60.0
# How often a query is looked at, and how often the node is told although nothing changed.
LOOK_SECONDS, TELL_SECONDS = 0.25, 5.0
# How long a micro-batch may take to finish once it was asked to stop.
FINISH_SECONDS = 60.0
# A pipeline that runs once is tried so often.
ONCE_ATTEMPTS = 3

Shown = Callable[[PipelineReport], None]


class Runner:
    """Runs pipelines in one Spark session. `shown` is called, in threads of the pipelines', whenever one has news."""

    def __init__(
        self,
        spark: SparkSession,
        access: PondAccess,
        checkpoints: Checkpoints,
        pipelines: Sequence[Pipeline],
        *,
        file: Path | None = None,
        once: bool = False,
        shown: Shown = lambda report: None,
    ) -> None:
        self._stopping = threading.Event()
        self._running = [
            _Running(spark, access, checkpoints, each, file, once, shown, self._stopping) for each in pipelines
        ]

    def start(self) -> None:
        for each in self._running:
            each.thread.start()

    def stop(self) -> None:
        """Ask all to finish what they are doing. Does not wait."""
        self._stopping.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether all have ended, at once or within a time."""
        until = None if seconds is None else time.monotonic() + seconds
        for each in self._running:
            each.thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not any(each.thread.is_alive() for each in self._running)

    def reports(self) -> list[PipelineReport]:
        """How each does now."""
        return [each.report for each in self._running]

    @property
    def failed(self) -> list[PipelineReport]:
        """Those that ended with a failure."""
        return [report for report in self.reports() if report.state == "failed"]


class _Running:
    """One pipeline, in a thread of its own."""

    def __init__(
        self,
        spark: SparkSession,
        access: PondAccess,
        checkpoints: Checkpoints,
        pipeline: Pipeline,
        file: Path | None,
        once: bool,
        shown: Shown,
        stopping: threading.Event,
    ) -> None:
        self._spark, self._access, self._checkpoints = spark, access, checkpoints
        self._pipeline, self._file, self._once = pipeline, file, once or pipeline.trigger == "available-now"
        self._shown, self._stopping = shown, stopping
        self.report = PipelineReport(pipeline.name, tuple(pipeline.sources.values()), pipeline.sink, "starting")
        self._told = 0.0
        self._ends: tuple[str, ...] = ()  # of the last batch, as the checkpoint has them
        self.thread = threading.Thread(target=self._run, name=f"millpond-pipeline-{pipeline.name}", daemon=True)

    def _run(self) -> None:
        failures, has_run = 0, False
        while not self._stopping.is_set():
            self._tell(state="starting")
            try:
                query = self._started()
                has_run = True
                self._tell(state="running", failure="")
                if self._watched(query):
                    failures = 0
                query.stop()
                problem = query.exception()
                if problem is not None:
                    raise problem
                self._move_groups()
                self._tell(state="stopped", failure="")
                return
            except (MillpondError, PySparkException, Exception) as error:
                failures += 1
                failure = self._failure(error)
                logger.debug("pipeline %s failed", self._pipeline.name, exc_info=error)
                if not has_run or (self._once and failures >= ONCE_ATTEMPTS):
                    self._tell(state="failed", failure=failure)
                    return
                self._tell(state="waiting", failure=failure, restarts=self.report.restarts + 1)
                pause = min(PAUSE_SECONDS_FIRST * 2 ** (failures - 1), PAUSE_SECONDS_MAX)
                self._stopping.wait(pause * random.uniform(0.5, 1.0))
        self._tell(state="stopped")

    def _started(self) -> StreamingQuery:
        sources = tuple(stream for _, stream in sources_of(self._access, self._pipeline))
        self.report = replace(self.report, sources=sources)
        return start_query(self._spark, self._access, self._checkpoints, self._pipeline, once=self._once)

    def _watched(self, query: StreamingQuery) -> bool:
        """Until the query has ended, or may be stopped. Whether a batch of it went well."""
        first, stop_at, batch_then = self.report.batch, 0.0, -1
        while query.isActive:
            self._look(query)
            if self._stopping.is_set():
                if not stop_at:
                    stop_at, batch_then = time.monotonic() + FINISH_SECONDS, self.report.batch
                idle = not query.status["isTriggerActive"]
                if idle or self.report.batch > batch_then or time.monotonic() > stop_at:
                    break
            self._stopping.wait(LOOK_SECONDS) if not stop_at else time.sleep(LOOK_SECONDS / 5)
        self._look(query)
        return self.report.batch > first

    def _look(self, query: StreamingQuery) -> None:
        news = [each for each in query.recentProgress if each["batchId"] > self.report.batch and _done(each)]
        if news:
            last = news[-1]
            self._ends = tuple(source["endOffset"] for source in last["sources"])
            self._tell(
                batch=last["batchId"],
                rows=self.report.rows + sum(each["numInputRows"] for each in news),
                batch_rows=last["numInputRows"],
                batch_seconds=round(_milliseconds(last) / 1000, 3),
                behind=_behind(last),
            )
        else:
            latest = query.lastProgress
            behind = self.report.behind if latest is None else _behind(latest)
            if behind != self.report.behind or time.monotonic() - self._told > TELL_SECONDS:
                self._tell(behind=behind)

    def _move_groups(self) -> None:
        """Spark tells a source that a batch is done when the next one begins: of the last one, nobody is told."""
        for place in map(Place.parse, self._ends):
            try:
                if self._access.pond.stream(place.stream).definition.generation == place.generation:
                    group = GROUP_PREFIX + self._pipeline.name
                    GroupPosition(self._access.pond, place.stream, group).move(place.offsets)
            except MillpondError as error:  # the next start moves it
                logger.warning("the position of %s was not moved: %s", self._pipeline.name, error.message)

    def _failure(self, error: BaseException) -> str:
        what = f"pipeline {self._pipeline.name!r} ({self._pipeline.where})"
        told = blamed(what, self._file, error)
        own = isinstance(error, InvalidInput) and told.hint
        return f"{told.message}\n  hint: {told.hint}" if own else told.message

    def _tell(self, **changed: Any) -> None:
        """Show it here, and tell the node, which may be away: it is told again."""
        self.report = replace(self.report, **changed)
        self._told = time.monotonic()
        self._shown(self.report)
        try:
            self._access.pond.pipelines.report(self.report)
        except MillpondError as error:
            logger.debug("the node was not told of %s: %s", self._pipeline.name, error.message)


def _done(progress: Any) -> bool:
    """Whether it tells of a batch that ran, not of a look for records that found none."""
    return "addBatch" in progress["durationMs"] or progress["numInputRows"] > 0


def _milliseconds(progress: Any) -> int:
    return int(progress["durationMs"].get("triggerExecution", 0))


def _behind(progress: Any) -> int:
    return sum(int((source.get("metrics") or {}).get("recordsBehind", 0)) for source in progress["sources"])
