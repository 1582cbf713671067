"""From a declaration to a streaming query of Spark's: sources in, the user's function, the sink, a checkpoint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from millpond.errors import InvalidInput, StreamExists, StreamNotFound
from millpond.model.names import view_name
from millpond.model.schema import SYSTEM_COLUMNS, TIMESTAMP
from millpond.model.units import parse_seconds
from millpond.spark.pipelines.declare import AVAILABLE_NOW, Pipeline
from millpond.spark.pipelines.place import Checkpoints, PondAccess
from millpond.wire.pipelines import GROUP_PREFIX

if TYPE_CHECKING:
    from millpond.model.definition import StreamDefinition

FORMAT = "millpond"


def start_query(
    spark: SparkSession, access: PondAccess, checkpoints: Checkpoints, pipeline: Pipeline, *, once: bool
) -> StreamingQuery:
    """Start it. Whatever is wrong with the declaration, the function or the sink is raised before anything is
    written."""
    result = built(spark, access, pipeline)
    made_sink(access, pipeline, result.schema)
    writing = (
        result.writeStream.format(FORMAT)
        .options(**access.options)
        .option("stream", pipeline.sink)
        .option("checkpointLocation", checkpoints.of_pipeline(pipeline.name))
        .outputMode(pipeline.mode)
        .queryName(pipeline.name)
    )
    if once or pipeline.trigger == AVAILABLE_NOW:
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=f"{round(parse_seconds(pipeline.trigger) * 1000)} milliseconds").start()


def built(spark: SparkSession, access: PondAccess, pipeline: Pipeline) -> DataFrame:
    """The result of a pipeline, as a frame."""
    if pipeline.sql is not None:
        spark = spark.newSession()  # its views are of streams that grow: nobody else should find them
    frames = {name: source_frame(spark, access, pipeline, stream) for name, stream in sources_of(access, pipeline)}
    if pipeline.build is None:
        assert pipeline.sql is not None
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        result: Any = spark.sql(pipeline.sql)
    else:
        result = pipeline.build(frames[""]) if list(frames) == [""] else pipeline.build(**frames)
    if not isinstance(result, DataFrame) or not result.isStreaming:
        given = "a DataFrame that is not streaming" if isinstance(result, DataFrame) else type(result).__name__
        raise InvalidInput(f"it gives {given}", hint="give back a DataFrame that is made from the source")
    return result.drop(*SYSTEM_COLUMNS)


def sources_of(access: PondAccess, pipeline: Pipeline) -> list[tuple[str, str]]:
    """Streams by the name under which the pipeline takes them: a parameter, or a view that its SQL mentions."""
    if pipeline.sql is None:
        return list(pipeline.sources.items())
    words = {word.lower() for word in re.findall(r"\w+", pipeline.sql)}
    found = [
        (view_name(stream.name), stream.name)
        for stream in access.pond.streams()
        if view_name(stream.name).lower() in words and stream.name != pipeline.sink
    ]
    if not found:
        raise InvalidInput("its SQL names no stream of the pond", hint="a stream is a view: grid/meters is grid_meters")
    return found


def source_frame(spark: SparkSession, access: PondAccess, pipeline: Pipeline, stream: str) -> DataFrame:
    """A stream as it grows; the position of the pipeline's group follows what was processed of it."""
    reading = (
        spark.readStream.format(FORMAT)
        .options(**access.options)
        .option("stream", stream)
        .option("startingOffsets", pipeline.start)
        .option("group", GROUP_PREFIX + pipeline.name)
    )
    if pipeline.max_records is not None:
        reading = reading.option("maxRecordsPerTrigger", pipeline.max_records)
    frame = reading.load()
    event_time = access.pond.stream(stream).definition.event_time
    if pipeline.watermark is None:
        return frame
    if event_time is None:
        raise InvalidInput(f"{stream} has no event time for a watermark", hint="leave watermark out")
    return frame.withWatermark(event_time, f"{round(parse_seconds(pipeline.watermark) * 1000)} milliseconds")


def made_sink(access: PondAccess, pipeline: Pipeline, schema: StructType) -> StreamDefinition:
    """The sink; made from the result's columns if it is not there."""
    try:
        return access.pond.stream(pipeline.sink).definition
    except StreamNotFound:
        pass
    try:
        made = access.pond.create_stream(
            pipeline.sink,
            arrow_schema(schema),
            keys=pipeline.keys,
            event_time=pipeline.event_time,
            streamlets=pipeline.streamlets,
        )
        return made.definition
    except StreamExists:  # another pipeline was quicker
        return access.pond.stream(pipeline.sink).definition


def arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's columns as a stream has them: all may be null, and times are in UTC."""
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in to_arrow_schema(schema, timezone="UTC")])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    return kind
