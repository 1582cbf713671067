"""The Spark session of a driver on the standalone cluster that test_cluster.py starts."""

from __future__ import annotations

from pyspark.sql import SparkSession


def cluster_session(master: str, java_options: str) -> SparkSession:
    """Two executors of one core, and all traffic on loopback."""
    config: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": java_options,
        "spark.executor.memory": "512m",
        "spark.executor.cores": 1,
        "spark.cores.max": 2,
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    return SparkSession.builder.master(master).appName("millpond cluster test").config(map=config).getOrCreate()
