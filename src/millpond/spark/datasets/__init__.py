"""Data sets through Spark: files that others wrote are indexed by a Spark job, and read through the index.

resolve     (`reading`)   what Spark finds at a path: files, partitions, schema, and everything that decides how
                          files are read
describe    (`describing`) a job in which each file is read whole by one task, which describes it
query       (`source`)    a relation of Spark's own format, whose files are listed anew for every query and ruled
                          out by their entries
"""

from __future__ import annotations

from millpond.spark.datasets.indexing import add_index, create, drop_index, rebuild, refresh
from millpond.spark.datasets.reading import active_session
from millpond.spark.datasets.source import dataset_frame

__all__ = ["active_session", "add_index", "create", "dataset_frame", "drop_index", "rebuild", "refresh"]
