"""The other end of the Flight door, for code that has Millpond: requests go out, answers and errors come back as what
they were. Nothing is tried twice here; who is away is `Unavailable`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import TracebackType

import msgspec
import pyarrow as pa
from pyarrow import flight

from millpond.errors import InvalidValue, PondClosed
from millpond.flight.errors import raised_as_ours
from millpond.flight.follower import Follower
from millpond.flight.messages import encode_request
from millpond.flight.patience import within
from millpond.flight.put import Put
from millpond.log.engine import Ack
from millpond.wire.desk import Batches
from millpond.wire.requests import Append, Call, Fetch, Read
from millpond.wire.ticket import LiveTicket, encode_ticket

# Puts that are kept open for the next append. More only hold threads at both ends.
_KEPT_MAX = 8
# How long one is kept that nobody uses. It holds one of the node's places, which others may need.
_KEPT_SECONDS = 10.0
_CHANNEL = [
    # gRPC's own pauses between attempts to connect. Its defaults go up to two minutes, in which a node that is back
    # again would still seem to be away; how often to try is for callers to say.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Each link has a connection of its own. gRPC would share one among all links to a node: a connection that hangs
    # would then hang for every link, also for one that is made to get away from it.
    ("grpc.use_local_subchannel_pool", 1),
    # A connection that lets nothing through is given up, and what hangs on it ends. A node takes it ill to be asked
    # more often than every five minutes.
    ("grpc.keepalive_time_ms", 320_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
]


class FlightLink:
    """To one node. Thread-safe. Connects when something is first asked."""

    def __init__(
        self,
        location: str,
        token: str | None = None,
        *,
        tls_roots: bytes | None = None,
        certificate: bytes | None = None,
        key: bytes | None = None,
        timeout_seconds: float = 60,
    ) -> None:
        """`tls_roots`: whom to trust, where it is not who the system trusts. `certificate` and `key`: who we are, for
        mutual TLS. All as PEM. `timeout_seconds`: how long an answer may take."""
        self._location, self._timeout_seconds = location, timeout_seconds
        self._headers = [(b"authorization", f"Bearer {token}".encode())] if token is not None else []
        self._asking = self._options(timeout_seconds)
        self._streaming = self._options(None)  # a time-out would be one for the whole stream
        try:
            self._client = flight.FlightClient(
                location,
                tls_root_certs=tls_roots,
                cert_chain=certificate,
                private_key=key,
                generic_options=_CHANNEL,
            )
        except (pa.ArrowException, ValueError) as error:
            raise InvalidValue(
                f"not a Flight location: {location!r} ({error})", hint="grpc://host:port, or grpc+tls://host:port"
            ) from None
        self._lock = threading.Lock()
        self._kept: list[tuple[Append, Put, float]] = []  # and since when; the longest first
        self._sweeping: threading.Thread | None = None
        self._closed = False
        self._closing = threading.Event()

    def _options(self, timeout_seconds: float | None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout_seconds, headers=self._headers)

    @property
    def location(self) -> str:
        return self._location

    def call(self, request: Call, timeout_seconds: float | None = None) -> bytes:
        """The answer, as JSON; `wire.answers` and the request's class say of what. `timeout_seconds`: if not the
        link's."""
        self._refuse_closed()
        name = str(request.__struct_config__.tag)
        with raised_as_ours(self._location):
            action = flight.Action(name, encode_request(request))
            asking = self._asking if timeout_seconds is None else self._options(timeout_seconds)
            (result,) = self._client.do_action(action, asking)
            answer: bytes = result.body.to_pybytes()
            return answer

    def fetch(self, request: Fetch | LiveTicket | Read) -> Batches:
        """The batches that a request gives. What is wrong with it is raised here, what goes wrong later on the way."""
        self._refuse_closed()
        ticket = encode_ticket(request) if isinstance(request, LiveTicket) else encode_request(request)
        with raised_as_ours(self._location):
            reader = within(
                self._timeout_seconds,
                self._location,
                lambda: self._client.do_get(flight.Ticket(ticket), self._streaming),
                lambda late: late.cancel(),
            )
            try:
                schema = within(self._timeout_seconds, self._location, lambda: reader.schema)
            except BaseException:
                reader.cancel()
                raise
            return Batches(schema, self._batches(reader))

    def _batches(self, reader: flight.FlightStreamReader) -> Iterator[pa.RecordBatch]:
        ended = False
        try:
            with raised_as_ours(self._location):
                for chunk in reader:
                    yield chunk.data
                ended = True
        finally:
            if not ended:
                reader.cancel()

    def flight_info(self, stream: str) -> flight.FlightInfo:
        """A stream's schema and size, and a ticket per streamlet for all that is there of it now."""
        self._refuse_closed()
        with raised_as_ours(self._location):
            return self._client.get_flight_info(flight.FlightDescriptor.for_path(stream), self._asking)

    def append(self, request: Append, batch: pa.RecordBatch) -> Ack:
        """Append one batch, and wait for its acknowledgement. An `Unavailable` leaves open whether it was kept: with a
        producer and a sequence it may be sent again."""
        key = msgspec.structs.replace(request, sequence=None)
        put = self._take_put(key, batch.schema) or self.put(request)
        try:
            within(self._timeout_seconds, self._location, lambda: put.write(batch, request.sequence))
            ack = put.next_ack(self._timeout_seconds)
        except BaseException:
            put.abandon()
            raise
        if request.stage is None:
            self._keep(key, put)
        else:  # nobody puts to the same stage again
            put.abandon()
        return ack

    def put(self, request: Append) -> Put:
        """Many batches, in order, without waiting for each."""
        self._refuse_closed()
        return Put(self._client, self._location, request, self._streaming, self._timeout_seconds)

    def follow(self, request: Read, *, window_bytes: int = 16_000_000) -> Follower:
        """Batches as they are pushed; about `window_bytes` are on the way, or wait here, at once."""
        self._refuse_closed()
        return Follower(self._client, self._location, request, self._streaming, window_bytes, self._timeout_seconds)

    # Puts that wait for the next append.

    def _take_put(self, key: Append, schema: pa.Schema) -> Put | None:
        with self._lock:
            self._kept = [each for each in self._kept if each[1].usable]
            for index, (kept, put, _) in reversed(list(enumerate(self._kept))):
                if kept == key and put.schema is not None and put.schema.equals(schema, check_metadata=True):
                    del self._kept[index]
                    return put if put.usable else None
        return None

    def _keep(self, key: Append, put: Put) -> None:
        with self._lock:
            spare = put
            if not self._closed:
                self._kept.append((key, put, time.monotonic()))
                if self._sweeping is None:
                    self._sweeping = threading.Thread(target=self._sweep, name="millpond-kept", daemon=True)
                    self._sweeping.start()
                if len(self._kept) <= _KEPT_MAX:
                    return
                spare = self._kept.pop(0)[1]
        spare.abandon()

    def _sweep(self) -> None:
        """In a thread of its own, while there are any: let go of those that nobody has used for long."""
        while True:
            with self._lock:
                if not self._kept:
                    self._sweeping = None
                    return
                left = self._kept[0][2] + _KEPT_SECONDS - time.monotonic()
                idle = self._kept.pop(0)[1] if left <= 0 else None
            if idle is not None:
                idle.abandon()
            else:
                self._closing.wait(left)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise PondClosed(f"the link to {self._location} is closed", hint="connect again")

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            kept, self._kept = self._kept, []
        self._closing.set()
        for _, put, _ in kept:
            put.abandon()
        self._client.close()

    def __enter__(self) -> FlightLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Flight link to {self._location}>"
