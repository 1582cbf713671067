"""What a pond shows to its doors and to Spark, as protocols: those who serve it never import it.

A query is answered from one `Snapshot` per stream, taken once, in the driver, when Spark optimises the query: objects
of one Delta version up to the boundary, and offset ranges from there to the heads. From then on nothing about the
query is open: whoever reads a live range names its offsets (`LiveTicket`), so the node keeps no state per query, and a
retry, a second scan or a slow task reads the same records, also if they have settled meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from millpond.model.definition import StreamDefinition
from millpond.model.query_note import QueryNote

if TYPE_CHECKING:
    from millpond.query.snapshot import Snapshot


class Door(Protocol):
    """Where executors fetch live records. Stays open until its pond closes."""

    @property
    def location(self) -> str:
        """A Flight location, e.g. `grpc://127.0.0.1:41234`."""
        ...

    @property
    def token(self) -> str:
        """What a caller must show. A secret: never in messages, plans or logs. Empty if nothing is asked for."""
        ...

    @property
    def tls(self) -> Mapping[str, bytes]:
        """Certificates, as Flight's `connect` takes them; for a door with TLS that the system does not trust."""
        ...


class ServedStream(Protocol):
    """One stream, as Spark sees it. Thread-safe."""

    @property
    def name(self) -> str: ...

    @property
    def pond_id(self) -> str:
        """Which pond it is in: two nodes may have theirs under the same path."""
        ...

    @property
    def definition(self) -> StreamDefinition:
        """As it is now; `StreamNotFound` once it was dropped."""
        ...

    def snapshot(self) -> Snapshot:
        """What is there now. Called once per stream and query, in the middle of Spark's planning: be quick."""
        ...

    def note_query(self, note: QueryNote) -> None:
        """Put on record what a query asked of it, soon. Neither waits nor raises."""
        ...

    def door(self) -> Door:
        """The door to this stream's node, opened by the first call."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a listing of streams depends on has changed; "closed", of no name, is the last of all."""

    kind: Literal["created", "altered", "truncated", "dropped", "closed"]
    name: str


class ServedPond(Protocol):
    """A pond, as Spark sees it. Thread-safe."""

    def served_streams(self) -> Sequence[ServedStream]:
        """The streams that users see, in the order of their ids. The pond's own are not among them."""
        ...

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` after each change, in any thread, and in the order of changes; it must not raise. Returns
        how to stop it. Settling is no change here: a query finds the newest objects by itself."""
        ...


class ServedDataset(Protocol):
    """A data set, as Spark's views see it. Thread-safe."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str:
        """Tells it from one of the same name that was dropped."""
        ...

    @property
    def types(self) -> int:
        """Another number when its columns have other types."""
        ...

    def to_spark(self, spark: Any) -> Any:
        """A DataFrame of it."""
        ...


@runtime_checkable
class ServesDatasets(Protocol):
    """A pond that has data sets as well."""

    def served_datasets(self) -> Sequence[ServedDataset]:
        """All of them."""
        ...
