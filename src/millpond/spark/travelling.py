"""Classes of the user's own, on their way to the executors: as they are in the driver, whether or not an executor could
import their module. They travel in a task's closure, which only the driver makes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyspark.cloudpickle

from millpond.archive.index.registry import INDEXES
from millpond.archive.layout.registry import layout_kind
from millpond.model.definition import StreamDefinition

cloudpickle: Any = pyspark.cloudpickle  # it has no types


def packed_kinds(definition: StreamDefinition) -> bytes:
    """The index kinds and the layout of a stream that this process was given as objects; empty if there are none. For
    `bulk_tasks.know_kinds`."""
    passed, layout = INDEXES.passed(), layout_kind(definition.layout)
    kinds: list[type] = [passed[spec.kind] for spec in definition.indexes if spec.kind in passed]
    kinds += [] if layout is None else [layout]
    return _by_value(kinds) if kinds else b""


def _by_value(kinds: Sequence[type]) -> bytes:
    modules = {sys.modules[kind.__module__] for kind in kinds if kind.__module__ in sys.modules}
    chosen = [
        module
        for module in modules
        if module.__name__ != "__main__" and module.__name__ not in cloudpickle.list_registry_pickle_by_value()
    ]
    for module in chosen:
        cloudpickle.register_pickle_by_value(module)
    try:
        data: bytes = cloudpickle.dumps(list(kinds))
        return data
    finally:
        for module in chosen:
            cloudpickle.unregister_pickle_by_value(module)
