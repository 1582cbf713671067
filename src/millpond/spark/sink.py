"""A stream as the sink of a streaming query: each micro-batch is in it exactly once.

A batch is known by its query's id, which is in the checkpoint and outlives the driver, and by its number. Both go with
the commit: into the log as a producer and its sequence, into the archive as a mark in the Delta log. So a batch that
Spark runs again, because the driver died before Spark had noted that it was done, is recognised by what it is, not by
who sends it.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millpond.archive.load import ROW_BITS, ROW_BITS_SMALL
from millpond.errors import InvalidValue, MillpondError
from millpond.spark.ponds import OpenStream, open_stream
from millpond.spark.workshop import Java
from millpond.spark.write_options import WriteOptions
from millpond.spark.writer import append, fitting, load

logger = logging.getLogger(__name__)


class StreamSink:
    """Made when a query starts. Spark asks from one thread at a time."""

    def __init__(self, spark: SparkSession, options: WriteOptions, mode: str, partitioned_by: str) -> None:
        if mode.lower() == "complete":
            raise InvalidValue(
                "outputMode 'complete' replaces what was written", hint='"append" or "update": a stream only grows'
            )
        if partitioned_by:
            raise InvalidValue(
                f"partitionBy({partitioned_by})", hint="a stream has time partitions of its own: leave it out"
            )
        self._spark, self._options = spark, options
        self._opened: OpenStream | None = None
        self._row_bits = ROW_BITS_SMALL

    def answer(self, batch: str, frame: Java) -> Any:
        """Called for each batch. A text that begins with "!" says why it is not there."""
        try:
            query, number = batch.split(" ")
            self._write(DataFrame(frame, self._spark), f"spark/{query}", int(number))
            return None
        except MillpondError as error:
            self._close()
            return f"!Millpond: {error} [{error.code}]"
        except Exception as error:  # an exception here would reach the user as py4j's, without its text
            self._close()
            logger.exception("a batch was not written")
            return f"!Millpond: the batch was not written: {type(error).__name__}: {error}"

    def _write(self, frame: DataFrame, job: str, number: int) -> None:
        if self._opened is None:
            self._opened = open_stream(self._options.where)
        bulk = self._opened.stream.bulk
        ready = fitting(frame, bulk.definition)
        if self._options.to == "log":
            append(ready, bulk, job, number)
            return
        try:
            load(ready, bulk, job, number=number, row_bits=self._row_bits)
        except Exception as error:
            if self._row_bits == ROW_BITS or "has too many rows" not in str(error):
                raise
            self._row_bits = ROW_BITS  # larger batches than most queries have: more room for each task from here on
            load(ready, bulk, job, number=number, row_bits=self._row_bits)

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
