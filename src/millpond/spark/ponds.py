"""From the options of a format to a stream: a served pond is connected to, a directory names a pond that this process
has open. A directory that nobody has open here is not opened: a pond belongs to one process, and that one serves it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millpond.client.address import is_url
from millpond.client.connect import connect
from millpond.client.pond import RemotePond
from millpond.client.served import StreamForSpark
from millpond.errors import InvalidValue, Unavailable
from millpond.pond.opening import open_here
from millpond.spark.source_options import Where
from millpond.wire.served import ServedStream

if TYPE_CHECKING:
    from millpond.client.stream import RemoteStream
    from millpond.pond.pond import Pond
    from millpond.pond.stream import Stream

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenStream:
    """A stream, and what is let go of when it is not needed any more: a connection, if it was made for it."""

    pond: Pond | RemotePond
    stream: Stream | RemoteStream
    served: ServedStream
    """The stream as Spark plans with it."""
    closing: contextlib.ExitStack

    def close(self) -> None:
        self.closing.close()

    def starts(self, start: object) -> dict[int, int]:
        """The offsets at which a read from `start` begins."""
        reader = self.stream.read(start, limit=0)  # type: ignore[arg-type]
        with contextlib.closing(reader):
            return reader.position


def open_stream(where: Where) -> OpenStream:
    """The stream that the options mean; close it when it is not needed any more."""
    with contextlib.ExitStack() as closing:
        if is_url(where.pond):
            remote = closing.enter_context(
                connect(where.pond, where.token, ca=where.ca, certificate=where.certificate, key=where.key)
            )
            stream = remote.stream(where.stream)
            return OpenStream(remote, stream, StreamForSpark(stream), closing.pop_all())
        pond = open_here(where.pond)
        if pond is None:
            raise InvalidValue(
                f"no pond is open in this process at {where.pond}",
                hint="open it here first with millpond.open, or serve it and give its URL",
            )
        local = pond.stream(where.stream)
        return OpenStream(pond, local, local, closing.pop_all())


# Connections for frames, which have no end that we are told of: one for each address and caller.
_kept: dict[Where, RemotePond] = {}
_lock = threading.Lock()


def keep_stream(where: Where) -> ServedStream:
    """As `open_stream`, for as long as this process lives."""
    if not is_url(where.pond):
        return open_stream(where).served
    address = replace(where, stream="")
    with _lock:
        known = _kept.get(address)
        try:
            if known is not None and known.node().pond == known.id:
                return StreamForSpark(known.stream(where.stream))
        except Unavailable as error:
            logger.warning("the connection for Spark is made anew: %s", error.message)
        if known is not None:
            known.close()
        opened = open_stream(where)
        assert isinstance(opened.pond, RemotePond)
        _kept[address] = opened.pond
        return opened.served
