"""What every test may use: a directory for a pond, one Spark session, and hypothesis profiles.

The Spark session is started by the first test that asks for it and shared by all of them, because a start takes
seconds. So a test leaves it as it found it: it drops the views it made and restores the settings it changed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.together import SPARK, place_of, scheduler, unit_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
ROOT = TESTS.parent
# A test asks little of each plan and makes many: compiling them well takes longer than running them, on the same cores.
JAVA_OPTIONS = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile=file:{TESTS / 'log4j2.properties'}"

# No deadlines: two busy cores make any single example slow now and then, and that proves nothing.
settings.register_profile(
    "ci",
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long", parent=settings.get_profile("ci"), max_examples=2_000, stateful_step_count=80, derandomize=False
)
settings.load_profile(os.environ.get("MILLPOND_HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so do its children: then none could be tested on it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever uses the session is marked `spark`, so that `-m "not spark"` is the quick half of the suite."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") and unit_of(item.nodeid) not in SPARK:
            raise pytest.UsageError(f"{item.nodeid} uses Spark: enter its file in tests/together.py")
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where several workers share the tests, each gets what belongs together."""
    return scheduler(config, log)


@pytest.fixture
def pond_dir(tmp_path: Path) -> Path:
    """Where a test may open a pond. It does not exist yet: opening creates it."""
    return tmp_path / "pond"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two cores, its files under pytest's temporary directory, its ports on loopback only."""
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    config: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.execution.arrow.pyspark.enabled": True,
        "spark.sql.python.filterPushdown.enabled": True,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        # Workers unpickle functions of test modules by importing them.
        environment.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        builder = SparkSession.builder.master("local[2]").appName("millpond tests").config(map=config)
        session = builder.getOrCreate()
        yield session
        session.stop()
