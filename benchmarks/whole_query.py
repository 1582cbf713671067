"""Whole queries over the hundred thousand objects of `deciding`: decide, open what is left, read, filter.

The pond's table lists all objects, each with its index entry. Of their files only those exist that some of the queries
must read: ten thousand rows each that are true to the entry, the meters among them those that the object's Bloom filter
has. A query that wanted any other object would fail for want of its file. What is timed is `stream.scan(where=SQL)`,
from the text to the rows, and the same question to Spark SQL, from the text to `collect()`; beside it, what Spark takes
by itself if it is told which objects to read, and no others exist.
"""

from __future__ import annotations

import json
import os
import posixpath
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import millpond
from benchmarks.deciding import DAYS, DEFINITION, METERS, Query, load, query_of
from benchmarks.figures import timed
from millpond.archive.index import bloom
from millpond.archive.index.entries import BLOCKS, BYTES, DIRECTORY, PATH, ROWS
from millpond.archive.ledger import Change, Ledger
from millpond.archive.object_index import ObjectIndex
from millpond.archive.objects import encode_object
from millpond.archive.table import Added, DeltaLog
from millpond.clock import SystemClock
from millpond.model.definition import StreamDefinition
from millpond.model.hashing import hash_value
from millpond.model.schema import TIMESTAMP, stored_schema
from millpond.storage import LocalStorage

QUERIES = 20
RUNS = 5
OBJECT_ROWS = 10_000


def _main(root: str) -> None:
    objects = load(root)
    rng = np.random.default_rng(9)
    queries = [query_of(objects, rng) for _ in range(QUERIES)]
    place = os.path.join(root, "pond")
    with millpond.open(place, background=False) as pond:
        stream = pond.create_stream(DEFINITION.name, DEFINITION.schema, indexes=DEFINITION.indexes)
        definition, archive, pond_id = stream.definition, stream.archive.root, stream.pond_id
    _list(objects, _write(objects, queries, definition, archive, rng), definition, archive, pond_id, root)
    with millpond.open(place, background=False) as pond:
        stream = pond.stream(DEFINITION.name)
        first = timed(lambda: stream.scan(queries[0].sql))
        scanned = [_asked(lambda query=query: stream.scan(query.sql).num_rows) for query in queries]  # type: ignore[misc]
        assert len(stream.snapshot().settled.objects) == len(objects)
        spark = _session()
        pond.attach(spark)
        select = "SELECT * FROM bench_meters WHERE "
        spark_first = timed(lambda: spark.sql(select + queries[0].sql).collect())
        by_spark = [_asked(lambda query=query: len(spark.sql(select + query.sql).collect())) for query in queries]  # type: ignore[misc]
        alone = [_asked(_by_spark_alone(spark, stream, query)) for query in queries]
        spark.stop()
    assert [rows for _, rows in by_spark] == [rows for _, rows in scanned] == [rows for _, rows in alone]
    assert sum(rows for _, rows in scanned) >= QUERIES
    found = {
        "scan": statistics.median(seconds for seconds, _ in scanned),
        "scan_slowest": max(seconds for seconds, _ in scanned),
        "scan_first": first,
        "spark": statistics.median(seconds for seconds, _ in by_spark),
        "spark_first": spark_first,
        "spark_alone": statistics.median(seconds for seconds, _ in alone),
        "rows": statistics.median(rows for _, rows in scanned),
    }
    print(json.dumps(found))


def _asked(action: Callable[[], int]) -> tuple[float, int]:
    """The quickest of some runs, and how many rows it found."""
    rows = action()
    return min(timed(action) for _ in range(RUNS)), rows


def _by_spark_alone(spark: SparkSession, stream: millpond.Stream, query: Query) -> Callable[[], int]:
    settled = stream.snapshot().settled
    wanted = np.flatnonzero(settled.objects.prune(query.predicate).keep).tolist()
    frame = spark.read.parquet(*(posixpath.join(settled.root, settled.objects.paths[at]) for at in wanted))
    frame.createOrReplaceTempView("alone")
    return lambda: len(spark.sql(f"SELECT * FROM alone WHERE {query.sql}").collect())


def _session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "2g").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _write(
    objects: ObjectIndex, queries: list[Query], definition: StreamDefinition, archive: str, rng: np.random.Generator
) -> pa.Table:
    """Write the objects that the queries must read, and tell all entries, with what is known of those by now."""
    keep = np.logical_or.reduce([objects.prune(query.predicate).keep for query in queries])
    columns = {name: objects.entries.column(name).to_pylist() for name in (BYTES, ROWS, BLOCKS)}
    for at in np.flatnonzero(keep).tolist():
        rows = _rows(objects, at, [query for query in queries if query.at // DAYS == at // DAYS], definition, rng)
        data, facts = encode_object(rows, definition)
        path = os.path.join(archive, objects.paths[at])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        columns[BYTES][at], columns[ROWS][at], columns[BLOCKS][at] = facts.size, facts.rows, facts.checksums
    entries = objects.entries
    loads = pa.array(np.full(len(objects), definition.load_streamlet), pa.int32())
    given = {name: pa.array(values, entries.schema.field(name).type) for name, values in columns.items()}
    for name, column in {**given, "min._streamlet": loads, "max._streamlet": loads}.items():
        entries = entries.set_column(entries.schema.get_field_index(name), name, column)
    return entries


def _rows(
    objects: ObjectIndex, at: int, asked: list[Query], definition: StreamDefinition, rng: np.random.Generator
) -> pa.Table:
    """Rows that lie in the object's boxes, towns and day, of meters that its filter has. One of them is what a query
    of this area looks for, if the object can have it."""
    entry = objects.entries.slice(at, 1).to_pylist()[0]
    entries = next(found for kind, found in objects.indexes if kind.name == "bloom")
    data = entries.select(np.array([at])).blob("filter", 0)
    names = [f"m-{at // DAYS}-{number}" for number in range(METERS)]
    there = [name for name in names if bloom.may_have([data], [hash_value(name)])[0]]
    towns = entry["values(city).values"]
    boxes = np.array(entry["boxes(lat,lon).bounds"]).reshape(-1, 4)
    box = boxes[rng.integers(len(boxes), size=OBJECT_ROWS)]
    columns: dict[str, Any] = {
        "vid": rng.choice(there, OBJECT_ROWS),
        "city": rng.choice(towns, OBJECT_ROWS),
        "lat": rng.uniform(box[:, 0], box[:, 1]),
        "lon": rng.uniform(box[:, 2], box[:, 3]),
        "temp": rng.uniform(entry["min.temp"], entry["max.temp"], OBJECT_ROWS),
        "date": pa.array([entry["min.date"]] * OBJECT_ROWS, TIMESTAMP),
        "_streamlet": np.full(OBJECT_ROWS, definition.load_streamlet),
        "_offset": np.full(OBJECT_ROWS, entry["min._offset"]),
        "_ingest_time": pa.array([entry["min._ingest_time"]] * OBJECT_ROWS, TIMESTAMP),
    }
    schema = stored_schema(definition.schema)
    for number, query in enumerate(asked):
        south, north, west, east = query.box
        met = (boxes[:, 0] <= north) & (boxes[:, 1] >= south) & (boxes[:, 2] <= east) & (boxes[:, 3] >= west)
        if query.meter in there and query.city in towns and met.any():
            box = boxes[met][0]
            found = {"vid": query.meter, "city": query.city, "lat": max(box[0], south), "lon": max(box[2], west)}
            for name, value in found.items():
                columns[name][number] = value
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _list(
    objects: ObjectIndex, entries: pa.Table, definition: StreamDefinition, archive: str, pond_id: str, root: str
) -> None:
    """Let the stream's table list all of them, with one commit; the blobs of the index are where it looks for them."""
    os.makedirs(posixpath.join(archive, DIRECTORY), exist_ok=True)
    for name in os.listdir(posixpath.join(root, DIRECTORY)):
        if name.endswith(".blobs"):
            os.link(posixpath.join(root, DIRECTORY, name), posixpath.join(archive, DIRECTORY, name))
    ledger = Ledger(LocalStorage(), archive, definition, pond_id, SystemClock(), DeltaLog(archive))
    ledger.open()
    if ledger.state is None:
        ledger.create_table()
    columns = (entries.column(name).to_pylist() for name in (PATH, BYTES, ROWS))
    added = [
        Added(path, size, rows, json.dumps({"numRecords": rows})) for path, size, rows in zip(*columns, strict=True)
    ]
    ledger.commit(Change("load", {definition.load_streamlet: DAYS + 1}, added, entries=entries, load="bench"))


if __name__ == "__main__":
    _main(sys.argv[1])
