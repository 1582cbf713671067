"""Streaming queries for tests: run one until it has read what is there, and look at what each batch held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import millpond

Rows = list[tuple[Any, ...]]


@dataclass
class Reading:
    """A query over one stream, with a checkpoint of its own that outlives its runs. `batches` are what it was given, by
    number; a batch that is run again replaces what it gave before."""

    spark: SparkSession
    pond: str
    stream: str
    checkpoint: Path
    columns: tuple[str, ...] = ("n",)
    batches: dict[int, Rows] = field(default_factory=dict)
    during: Callable[[DataFrame, int], None] | None = None

    def load(self, **options: object) -> DataFrame:
        reader = self.spark.readStream.format("millpond").option("pond", self.pond).option("stream", self.stream)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def start(self, frame: DataFrame | None = None, *, all_now: bool = False, **options: object) -> StreamingQuery:
        millpond.spark.register(self.spark)
        frame = self.load(**options) if frame is None else frame
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if all_now else writer).start()

    def _take(self, frame: DataFrame, number: int) -> None:
        if self.during is not None:
            self.during(frame, number)
        self.batches[number] = [tuple(row) for row in frame.select(*self.columns).collect()]

    def run(self, frame: DataFrame | None = None, **options: object) -> None:
        """Read what is there, and stop."""
        query = self.start(frame, all_now=True, **options)
        query.awaitTermination()

    @property
    def rows(self) -> Rows:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def numbers(self) -> list[int]:
        """The first column of every record, in order."""
        return sorted(row[0] for row in self.rows)
