"""The layout of one stream and its models: what writers ask for when they lay out rows.

A layout that this process does not know is none, and said so once: rows are then stored as they come.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from millpond.archive.layout.arranging import Arranging
from millpond.archive.layout.layout import Layout, Model
from millpond.archive.layout.model_file import ModelFiles, StoredModel
from millpond.archive.layout.registry import make_layout
from millpond.clock import Clock
from millpond.errors import InvalidValue
from millpond.model.definition import StreamDefinition
from millpond.model.spec import Spec
from millpond.storage.protocol import Storage

_LOG = logging.getLogger(__name__)


class StreamModels:
    """Not thread-safe, but for `layout`: used under the archive's writer lock."""

    def __init__(self, storage: Storage, root: str, clock: Clock) -> None:
        self._files = ModelFiles(storage, root)
        self._clock = clock
        self._unknown: set[Spec] = set()

    def layout(self, definition: StreamDefinition) -> Layout | None:
        """The stream's; None if it has none, or one that this process does not know."""
        spec = definition.layout
        if spec is None:
            return None
        try:
            return make_layout(spec)
        except InvalidValue as error:
            if spec not in self._unknown:
                self._unknown.add(spec)
                _LOG.warning("%s: rows are stored as they come: %s", definition.name, error.message)
            return None

    def newest(self, definition: StreamDefinition) -> StoredModel | None:
        """The model that counts for the stream's layout; None if there is none yet."""
        layout = self.layout(definition)
        return None if layout is None else self._files.newest(layout)

    def put(self, definition: StreamDefinition, model: Model) -> StoredModel:
        """From here on this model counts, for what is written next. `InvalidValue` if the stream has no layout."""
        layout = self.layout(definition)
        if layout is None:
            raise InvalidValue(f"{definition.name} has no layout", hint='alter_stream(name, layout=KdTree("lat"))')
        return self._files.put(layout, model, self._clock.now_micros())

    def arranging(self, definition: StreamDefinition, object_bytes_min: int) -> Arranging | None:
        """How a writer in this process lays out rows; None: as they come."""
        layout, known = self.layout(definition), self.newest(definition)
        if layout is None:
            return None
        return Arranging(
            layout,
            None if known is None else known.model,
            object_bytes_min=object_bytes_min,
            keep=lambda model: self._files.put(layout, model, self._clock.now_micros()),
            adapt=True,
        )

    def learn(self, definition: StreamDefinition, sample: pa.Table | None) -> None:
        """A stream that was loaded before it had a model gets its first one from what the tasks saw."""
        layout = self.layout(definition)
        if layout is None or sample is None or not sample.num_rows or self._files.newest(layout) is not None:
            return
        try:
            self._files.put(layout, layout.fit(sample), self._clock.now_micros())
        except Exception as error:
            # What was loaded is there and complete; the next block of the stream gives it a model.
            _LOG.warning("%s has no model from what was loaded: %s", definition.name, error)
