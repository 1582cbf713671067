"""Pipelines: Spark jobs from streams to streams, declared as plain functions or SQL, and run until they are stopped."""

from __future__ import annotations

from millpond.spark.pipelines.declare import Pipeline, load_file, pipeline, sql_pipeline
from millpond.spark.pipelines.place import Checkpoints, PondAccess
from millpond.spark.pipelines.runner import Runner

__all__ = ["Checkpoints", "Pipeline", "PondAccess", "Runner", "load_file", "pipeline", "sql_pipeline"]
