"""The names that the Spark room leans on, one by one, and what is said when one is missing."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.sql import SparkSession

from millpond.errors import SparkUnavailable
from millpond.spark import jvm, workshop


@pytest.mark.parametrize("name", sorted(workshop.NAMES))
def test_spark_has(spark: SparkSession, name: str) -> None:
    assert workshop.missing_names(spark, {name: workshop.NAMES[name]}) == []


def test_what_is_missing_is_named(spark: SparkSession) -> None:
    wanted = {"org.apache.spark.Gone": (), "org.apache.spark.rdd.RDD": ("count", "levitate")}
    assert workshop.missing_names(spark, wanted) == ["org.apache.spark.Gone", "org.apache.spark.rdd.RDD.levitate"]


def test_a_planner_that_has_changed_is_one_clear_error(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workshop, "java_source", lambda name: "class Broken extends org.apache.spark.Gone {}")
    monkeypatch.setitem(workshop.NAMES, "org.apache.spark.Gone", ())
    with pytest.raises(SparkUnavailable, match=r"org\.apache\.spark\.Gone") as caught:
        workshop._compile(spark, spark.sparkContext._gateway, ["Broken"])
    assert "pip install" in caught.value.hint


def test_another_version_of_spark_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "5.0.1")
    with pytest.raises(SparkUnavailable, match=r"pyspark 5\.0\.1"):
        jvm.Jvm(spark)


def test_a_session_without_a_jvm_is_refused() -> None:
    class Connected:
        """As a Spark Connect session: the same face, no gateway behind it."""

    with pytest.raises(SparkUnavailable, match="Spark Connect"):
        jvm.Jvm(Connected())  # type: ignore[arg-type]


def test_every_java_source_is_compiled_and_shipped() -> None:
    from importlib.resources import files

    shipped = {path.name for path in files("millpond.spark").joinpath("java").iterdir()}
    assert shipped == {f"{name}.java" for name in (*workshop.SOURCES, *workshop.FOUND_BY_NAME)}


def test_the_workshop_is_compiled_once(spark: SparkSession) -> None:
    assert jvm.Jvm(spark).workshop is jvm.Jvm(spark).workshop


def test_a_socket_that_py4j_cannot_wait_for_is_refused_instead_of_hanging() -> None:
    class Gateway:
        class _callback_server:
            class server_socket:
                fileno = staticmethod(lambda: 1_024)

    with pytest.raises(SparkUnavailable, match="too many open files"):
        workshop._check_callbacks(Gateway)
