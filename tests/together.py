"""Which tests one worker runs together, where several workers share the suite (`pytest -n 4`, as `make test` does).

A file goes to one worker, so that what its tests share is made once. Files that need the same costly thing, a Spark
session or a browser, go to one worker as well: a unit. The longest units come first, for the others to be done beside
them; whatever is not named here follows, file by file.

The marker `xdist_group` would say the same, but xdist 3.8 does not see it with pytest 9.2. So units are known by the
names of files, which is all that the process that distributes tests knows of them.
"""

from __future__ import annotations

from typing import Any

# Units whose tests share a Spark session.
SPARK = ("spark streaming", "spark")
# The longest first. A whole directory ends with a slash; a test belongs to the first unit that names it.
UNITS: dict[str, tuple[str, ...]] = {
    "cluster": ("tests/spark/test_cluster.py",),
    SPARK[0]: (
        "tests/cli/test_run.py",
        "tests/spark/pipelines/",
        "tests/spark/test_admission.py",
        "tests/spark/test_copy.py",
        "tests/spark/test_sink.py",
        "tests/spark/test_stream_source",
        "tests/spark/test_truncate.py",
        "tests/spark/test_ttl.py",
    ),
    SPARK[1]: (
        "tests/cli/test_demo.py",
        "tests/cli/test_demo_gridpocket.py",
        "tests/cli/test_docs.py",
        "tests/cli/test_sql.py",
        "tests/cli/test_explain.py",
        "tests/cli/test_url.py",
        "tests/client/test_spark.py",
        "tests/gridpocket/test_job.py",
        "tests/pond/test_one_table.py",
        "tests/spark/",
        "tests/test_docs.py",
    ),
    "browser": ("tests/console/",),
    "openapi": ("tests/serve/test_schemathesis.py",),
    "doors": ("tests/faults/test_doors.py",),
    "crash": ("tests/archive/test_crash.py",),
    "kill": ("tests/faults/test_kill.py",),
}


def unit_of(nodeid: str) -> str:
    """The unit of a test; a file of its own is one."""
    for unit, paths in UNITS.items():
        if nodeid.startswith(paths):
            return unit
    return nodeid.partition("::")[0]


def place_of(nodeid: str) -> int:
    """Where the unit of a test stands in line: the named ones in their order, then all others."""
    return [*UNITS, unit := unit_of(nodeid)].index(unit)


def scheduler(config: Any, log: Any) -> Any:
    """What gives units to workers, in the order in which the tests were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    # Otherwise units with many tests would come first, however short they are.
    config.option.loadscopereorder = False
    return Together(config, log)
