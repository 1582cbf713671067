"""Run by test_copy.py in a process of its own, as the driver of a streaming copy that is killed: from one stream of a
served pond to another. Prints a line when the query has begun; ends by itself only if it is told to finish."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import millpond.spark


def main(url: str, source: str, target: str, checkpoint: str, java_options: str, mode: str) -> None:
    config: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options,
        "spark.sql.shuffle.partitions": 2,
        # A driver that is killed while it writes its first offsets leaves a file without a name. Spark takes it for
        # another query's data and does not start again; the sink knows by the query's id what has been written.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": False,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    spark = SparkSession.builder.master("local[2]").appName("millpond copy").config(map=config).getOrCreate()
    millpond.spark.register(spark)
    frame = (
        spark.readStream.format("millpond")
        .options(pond=url, stream=source, maxRecordsPerTrigger=100, group="copy")
        .load()
        .select("n", "city")
    )
    writer = (
        frame.writeStream.format("millpond").options(pond=url, stream=target).option("checkpointLocation", checkpoint)
    )
    if mode == "finish":
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    query = writer.start()
    print("begun", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
