"""From the options of a format to a stream: a served pond is connected to, a directory names a pond that this process
has open. A directory that nobody has open here is not opened: a pond belongs to one process, and that one serves it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.client.address import is_url
from millpond.client.connect import connect
from millpond.client.served import StreamForSpark
from millpond.errors import InvalidValue
from millpond.pond.opening import open_here
from millpond.spark.source_options import Where
from millpond.wire.served import ServedStream

if TYPE_CHECKING:
    from millpond.client.pond import RemotePond
    from millpond.client.stream import RemoteStream
    from millpond.pond.pond import Pond
    from millpond.pond.stream import Stream


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
    """The stream that the options mean."""
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
