"""One connection to a node: requests out, answers back as the values that an embedded pond returns, until closed."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa

from millpond.client.notes import QueryNotes
from millpond.errors import PondClosed, Unavailable
from millpond.flight.follower import Follower
from millpond.flight.link import FlightLink
from millpond.wire.bulk_requests import CommitLoad, CommitStaged
from millpond.wire.dataset_requests import ChangeDataset, DropDataset
from millpond.wire.desk import Batches
from millpond.wire.relayout_requests import Analyse, BeginRelayout, CommitRelayout, Relayout
from millpond.wire.requests import Call, Drop, Fetch, Read, RebuildIndexes, Settle, Truncate, Vacuum, Verify

# Work at the node that takes as long as there is data, and how long that may be.
LONG = (
    Settle,
    Verify,
    Drop,
    Truncate,
    Vacuum,
    RebuildIndexes,
    CommitLoad,
    CommitStaged,
    Analyse,
    Relayout,
    BeginRelayout,
    CommitRelayout,
    ChangeDataset,
    DropDataset,
)
LONG_SECONDS = 3_600.0


# A question whose failure took longer than this is not asked again.
AGAIN_SECONDS = 1.0

T = TypeVar("T")


class Closable(Protocol):
    def close(self) -> None: ...


class Connection:
    """Thread-safe. `shown` is how the node is called in messages; `tls` as Flight's `connect` takes it.

    Questions and short streams share one link. What lasts, a producer or a follower, has one of its own (`another`),
    so that whatever happens to it holds up nobody else, and a new attempt is a new connection."""

    def __init__(
        self, shown: str, location: str, token: str | None, tls: dict[str, bytes], timeout_seconds: float
    ) -> None:
        self.shown, self.location = shown, location
        self._token, self.tls, self.timeout_seconds = token, tls, timeout_seconds
        self._link = self._linked()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._ending: weakref.WeakSet[Closable] = weakref.WeakSet()
        self.notes = QueryNotes(self)

    @property
    def token(self) -> str:
        return self._token or ""

    @property
    def link(self) -> FlightLink:
        """The link, if it is still to be used."""
        self._check_open()
        return self._link

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise PondClosed(f"the connection to {self.shown} is closed", hint="connect again")

    def another(self) -> FlightLink:
        """A link for one purpose. Who asks for it closes it."""
        self._check_open()
        return self._linked()

    def _linked(self) -> FlightLink:
        return FlightLink(
            self.location,
            self._token,
            tls_roots=self.tls.get("tls_root_certs"),
            certificate=self.tls.get("cert_chain"),
            key=self.tls.get("private_key"),
            timeout_seconds=self.timeout_seconds,
        )

    def ask(self, request: Call, kind: Any, *, once: bool = False) -> Any:
        """The answer, of the kind that the request's class names. `once`: whoever asks must know of every attempt."""
        if request.right in (None, "read") and not once:
            answer = self._twice(lambda: self.link.call(request))
        else:
            answer = self.link.call(request, LONG_SECONDS if isinstance(request, LONG) else None)
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"{self.shown} answered what is not understood: {error}", hint="are both ends of the same version?"
            ) from error

    def fetch(self, request: Fetch) -> Batches:
        return self._twice(lambda: self.link.fetch(request))

    def follow(self, request: Read) -> Follower:
        return self._twice(lambda: self.link.follow(request))

    def _twice(self, question: Callable[[], T]) -> T:
        """What changes nothing is asked again if there was no answer: a connection that nobody has used for a while
        may have been cut, which only the next question finds out. Not if that took long: the caller waits."""
        began = time.monotonic()
        try:
            return question()
        except PondClosed:
            raise
        except Unavailable:
            if time.monotonic() - began > AGAIN_SECONDS:
                raise
            return question()

    def table(self, request: Fetch) -> pa.Table:
        """All of it."""
        schema, batches = self.fetch(request)
        return pa.Table.from_batches(list(batches), schema)

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def ends(self, what: Closable) -> None:
        """`what` is closed with the connection, if it is still there then."""
        with self._lock:
            self._ending.add(what)

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            with self._lock:
                ending = list(self._ending)
            for what in ending:
                what.close()
            self._link.close()
