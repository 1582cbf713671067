"""Millpond: a record is sent once, acknowledged when it is safe, readable at once, and settles once into an open table.

    import millpond, pyarrow as pa

    with millpond.open("./pond") as pond:
        meters = pond.create_stream("grid/meters", schema=pa.schema([("vid", pa.string()), ("temp", pa.float64())]))
        meters.append({"vid": "m-1", "temp": 21.5})
        meters.scan("temp > 20")

Names are imported when they are first used: `import millpond` is quick, and Spark is imported only by who uses it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond import errors, spark
    from millpond.archive.index.bloom import Bloom
    from millpond.archive.index.boxes import Boxes
    from millpond.archive.index.kind import IndexKind
    from millpond.archive.index.range import MinMax
    from millpond.archive.index.values import Values
    from millpond.archive.layout.grid import Grid
    from millpond.archive.layout.kdtree import KdTree
    from millpond.archive.layout.layout import Layout
    from millpond.archive.settle import SettleReport
    from millpond.client.connect import connect
    from millpond.consume.consumer import Consumer
    from millpond.errors import MillpondError
    from millpond.ingest.producer import Producer
    from millpond.log.engine import Ack
    from millpond.model.definition import Settle, StreamDefinition
    from millpond.model.offsets import OffsetRange
    from millpond.model.units import Bytes, Seconds
    from millpond.pond.opening import open_pond as open
    from millpond.pond.pond import Pond
    from millpond.pond.stream import Stream
    from millpond.query import ObjectMap, QueryReport, Snapshot, StreamReader
    from millpond.spark.pipelines.declare import pipeline, sql_pipeline
    from millpond.wire.dataset import Dataset

__version__ = "0.1.0"

# Public name -> the module it lives in, and its name there.
_HOMES = {
    "Ack": ("millpond.log.engine", "Ack"),
    "Consumer": ("millpond.consume.consumer", "Consumer"),
    "Bloom": ("millpond.archive.index.bloom", "Bloom"),
    "Boxes": ("millpond.archive.index.boxes", "Boxes"),
    "Bytes": ("millpond.model.units", "Bytes"),
    "Grid": ("millpond.archive.layout.grid", "Grid"),
    "KdTree": ("millpond.archive.layout.kdtree", "KdTree"),
    "Layout": ("millpond.archive.layout.layout", "Layout"),
    "IndexKind": ("millpond.archive.index.kind", "IndexKind"),
    "MinMax": ("millpond.archive.index.range", "MinMax"),
    "Dataset": ("millpond.wire.dataset", "Dataset"),
    "MillpondError": ("millpond.errors", "MillpondError"),
    "OffsetRange": ("millpond.model.offsets", "OffsetRange"),
    "Pond": ("millpond.pond.pond", "Pond"),
    "Producer": ("millpond.ingest.producer", "Producer"),
    "ObjectMap": ("millpond.query", "ObjectMap"),
    "QueryReport": ("millpond.query", "QueryReport"),
    "Seconds": ("millpond.model.units", "Seconds"),
    "Settle": ("millpond.model.definition", "Settle"),
    "SettleReport": ("millpond.archive.settle", "SettleReport"),
    "Snapshot": ("millpond.query", "Snapshot"),
    "Stream": ("millpond.pond.stream", "Stream"),
    "StreamDefinition": ("millpond.model.definition", "StreamDefinition"),
    "StreamReader": ("millpond.query", "StreamReader"),
    "Values": ("millpond.archive.index.values", "Values"),
    "connect": ("millpond.client.connect", "connect"),
    "errors": ("millpond.errors", ""),
    "open": ("millpond.pond.opening", "open_pond"),
    "pipeline": ("millpond.spark.pipelines.declare", "pipeline"),
    "spark": ("millpond.spark", ""),
    "sql_pipeline": ("millpond.spark.pipelines.declare", "sql_pipeline"),
}

__all__ = [
    "Ack",
    "Bloom",
    "Boxes",
    "Bytes",
    "Consumer",
    "Dataset",
    "Grid",
    "IndexKind",
    "KdTree",
    "Layout",
    "MillpondError",
    "MinMax",
    "ObjectMap",
    "OffsetRange",
    "Pond",
    "Producer",
    "QueryReport",
    "Seconds",
    "Settle",
    "SettleReport",
    "Snapshot",
    "Stream",
    "StreamDefinition",
    "StreamReader",
    "Values",
    "connect",
    "errors",
    "open",
    "pipeline",
    "spark",
    "sql_pipeline",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'millpond' has no attribute {name!r}")
    module, inner = _HOMES[name]
    found = importlib.import_module(module)
    return getattr(found, inner) if inner else found


def __dir__() -> list[str]:
    return sorted(__all__)
