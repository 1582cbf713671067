"""`format("millpond")` in Spark: what `java/PondProvider.java` asks of us when a stream is loaded, and
`java/PondWriter.java` when one is written to.

One function serves a whole JVM, whatever its sessions: each question says from which session it comes.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millpond.errors import MillpondError
from millpond.model.schema import stored_schema
from millpond.spark.files import files_relation, write_files
from millpond.spark.functions import register_functions
from millpond.spark.jvm import Callback, session_of
from millpond.spark.planner import planner_of
from millpond.spark.ponds import keep_stream, open_stream
from millpond.spark.schema import spark_schema
from millpond.spark.sink import StreamSink
from millpond.spark.source import StreamSource
from millpond.spark.source_options import WHERE, check_names, read_options, read_where
from millpond.spark.workshop import Java
from millpond.spark.write_options import read_write_options
from millpond.spark.writer import write_stream

logger = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Make `format("millpond")` known to this Spark, for reading and writing streams, also as they grow, and the
    functions of places (`st_near`) to this session. Attaching a pond does it, too; once per session is enough."""
    planner_of(spark).jvm.serve(Callback(answer))
    register_functions(spark)


def answer(question: str, asking: Java) -> Any:
    """An answer, or a text that begins with "!": why there is none."""
    try:
        spark, options = session_of(asking[0]), _options(asking[1])
        match question:
            case "schema":
                return _schema(options)
            case "source":
                return _source(spark, options)
            case "write":
                write = write_files if _names_files(options) else write_stream
                write(DataFrame(asking[3], spark), options, asking[2])
                return None
            case "sink":
                sink = StreamSink(spark, read_write_options(options), asking[2], asking[3])
                return planner_of(spark).jvm.workshop.function(Callback(sink.answer))
            case "relation" if _names_files(options):
                return files_relation(spark, options)
            case "relation":
                check_names(options, WHERE)
                return planner_of(spark).relation(keep_stream(read_where(options)))
        raise AssertionError(question)
    except MillpondError as error:
        return f"!Millpond: {error} [{error.code}]"
    except Exception as error:  # an exception here would reach the user as py4j's, without its text
        logger.exception('format("millpond") could not be loaded')
        return f"!Millpond: {question}: {type(error).__name__}: {error}"


def _options(text: str) -> dict[str, str]:
    parts = text.split("\0")[:-1]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _names_files(options: dict[str, str]) -> bool:
    return any(name.lower() == "path" for name in options)


def _schema(options: dict[str, str]) -> str:
    opened = open_stream(read_options(options).where)
    try:
        return spark_schema(stored_schema(opened.stream.definition.schema)).json()
    finally:
        opened.close()


def _source(spark: SparkSession, options: dict[str, str]) -> Java:
    chosen = read_options(options)
    planner = planner_of(spark)
    source = StreamSource(planner, open_stream(chosen.where), chosen)
    return planner.jvm.workshop.function(Callback(source.answer))
