"""The Spark session that figures are measured in: two cores, no web page, nothing on the terminal but errors."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "2",
}


def spark_session(more: Mapping[str, str] | None = None) -> SparkSession:
    """A new one, which the caller stops; `more` settings besides."""
    spark = SparkSession.builder.master("local[2]").config(map={**SETTINGS, **(more or {})}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
