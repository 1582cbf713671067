"""Filters named in a session's configuration: `millpond.filters`, "module:function" each, separated by commas.

Only the driver's own configuration is looked at: what a program sets for itself it could as well have called. A name
that leads nowhere is a filter that fails: every object is read, and the query's report says why.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession

from millpond.archive.index.filters import Filter
from millpond.errors import InvalidValue
from millpond.model.predicate import Predicate

CONF = "millpond.filters"


def configured_filters(spark: SparkSession) -> tuple[Filter, ...]:
    """Those of the session, as it is set now."""
    text = spark.conf.get(CONF, "") or ""
    return tuple(_found(name.strip()) for name in text.split(",") if name.strip())


@cache
def _found(name: str) -> Filter:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        if not callable(found):
            raise InvalidValue(f"{name} is no function", hint="a filter takes a predicate and a table")
    except (Exception, SystemExit) as error:  # importing runs code of the user's
        return _Missing(name, error)
    return found  # type: ignore[no-any-return]


class _Missing:
    """Stands for a filter that cannot be had."""

    def __init__(self, name: str, why: BaseException) -> None:
        self._why = why
        self.__module__, _, self.__qualname__ = name.partition(":")

    def __call__(self, predicate: Predicate, objects: pa.Table) -> NoReturn:
        raise self._why
