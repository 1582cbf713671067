"""A Spark session of this machine's own, for those who have none: the command line and the demonstration.

It is bound to loopback, keeps its files in a directory of the caller's, and is silent: what the JVM has to say goes to
a log file there, whose end is shown if Spark does not start. `query` turns an SQL text into Arrow, and Spark's
complaint about the text into an `InvalidInput`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from millpond.errors import InvalidInput, SparkUnavailable

if TYPE_CHECKING:
    import pyarrow as pa

LOG_FILE = "spark.log"
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
# Lines of the log that tell why Spark did not start.
_LOG_LINES_SHOWN = 8


def local_session(scratch: Path, *, cores: int | None = None, memory: str = "2g") -> SparkSession:
    """Start Spark in this process, or `SparkUnavailable` with what to do. Stop it with `session.stop()`.

    `scratch`: where Spark may keep files; it is the caller's to remove. `cores`: None means all of them."""
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise SparkUnavailable(
            "Spark needs Java, and there is none", hint="install Java 17, e.g. openjdk-17-jre-headless"
        )
    scratch.mkdir(parents=True, exist_ok=True)
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    config: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j}",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.execution.arrow.pyspark.enabled": True,
        "spark.sql.python.filterPushdown.enabled": True,
        "spark.sql.session.timeZone": "UTC",
        # As many as there are cores here, not the 200 of a cluster: each costs a task.
        "spark.sql.shuffle.partitions": cores or os.cpu_count() or 2,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log = scratch / LOG_FILE
    try:
        with _stderr_to(log):
            builder = SparkSession.builder.master(f"local[{cores or '*'}]").appName("millpond")
            return builder.config(map=config).getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        said = log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:] if log.exists() else []
        raise SparkUnavailable(
            "\n".join([f"Spark did not start: {error}", *said]), hint="millpond doctor --spark looks for the reason"
        ) from error


def query(spark: SparkSession, text: str, limit: int | None = None) -> pa.Table:
    """The result of an SQL query; `InvalidInput` with Spark's reason if it cannot be run."""
    with _refused():
        frame = spark.sql(text)
        return (frame if limit is None else frame.limit(limit)).toArrow()


def run(spark: SparkSession, text: str) -> None:
    """Run an SQL query to its end, and let its rows go; `InvalidInput` with Spark's reason if it cannot be run."""
    with _refused():
        spark.sql(text).write.format("noop").mode("overwrite").save()


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except (AnalysisException, ParseException) as error:
        reason = str(error).strip().split("\n\nJVM stacktrace")[0]
        raise InvalidInput(
            reason, hint="a stream or a data set is a view: grid/meters is grid_meters; SHOW VIEWS lists them"
        ) from None


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Whatever is started here writes its errors to a file, for as long as it lives."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
