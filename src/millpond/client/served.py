"""A connected stream, as Spark sees it: snapshots whose objects can be read from here, and the door of its node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millpond.errors import Unavailable
from millpond.model.definition import StreamDefinition
from millpond.model.query_note import QueryNote
from millpond.query.snapshot import Snapshot

if TYPE_CHECKING:
    from millpond.client.stream import RemoteStream


@dataclass(frozen=True)
class RemoteDoor:
    """The node's Flight door, for executors, with the caller's own token."""

    location: str
    token: str = field(repr=False)
    tls: Mapping[str, bytes] = field(default_factory=dict, repr=False)


class StreamForSpark:
    """A `ServedStream`. Thread-safe."""

    def __init__(self, stream: RemoteStream) -> None:
        self._stream = stream

    @property
    def name(self) -> str:
        return self._stream.name

    @property
    def pond_id(self) -> str:
        return self._stream.pond_id

    @property
    def definition(self) -> StreamDefinition:
        return self._stream.definition

    def snapshot(self) -> Snapshot:
        """What is there now, if Spark can read it: it opens objects itself, under the path that the node has."""
        found = self._stream.snapshot()
        root = found.settled.root
        if len(found.settled.objects) and not os.path.isdir(root):
            raise Unavailable(
                f"the settled records of {self.name} are in {root} on the node, which is no directory here",
                hint="mount it here under the same path, or run Spark on the node; scan() reads it through the node",
            )
        return found

    def note_query(self, note: QueryNote) -> None:
        """Put on record what a query asked of it, soon. Neither waits nor raises."""
        self._stream.note_query(note)

    def door(self) -> RemoteDoor:
        return self._stream.door()
