"""Cutting connections that gRPC does not let go of.

Flight's shutdown waits until every call has ended, and a handler that waits for its client ends when the client does
something. gRPC would cancel such calls after a deadline, but Flight gives it none. What is left is to end the
connections underneath: gRPC then ends their calls as if the clients had gone.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

logger = logging.getLogger(__name__)

# Where Linux lists the open files of a process. Elsewhere nothing is cut.
_FILES = "/proc/self/fd"
_Address = tuple[Any, ...]


def cut_connections(port: int) -> int:
    """End every connection that was accepted on a port of this process; how many there were."""
    return _cut_where(lambda here, there: here[1] == port)


def cut_peer(peer: str) -> int:
    """End the connection of one caller, named as gRPC does: `ipv4:127.0.0.1:41234`, `ipv6:[::1]:41234`."""
    address, _, port = unquote(peer).partition(":")[2].rpartition(":")
    wanted = address.strip("[]"), port
    # gRPC listens for both kinds of addresses, so those of the older kind are written as newer ones.
    return _cut_where(lambda here, there: (there[0].removeprefix("::ffff:"), str(there[1])) == wanted)


def _cut_where(wanted: Callable[[_Address, _Address], bool]) -> int:
    numbers = [int(number) for number in os.listdir(_FILES)] if os.path.isdir(_FILES) else []
    cut = sum(_cut(number, wanted) for number in numbers)
    logger.info("cut %d connections", cut)
    return cut


def _cut(number: int, wanted: Callable[[_Address, _Address], bool]) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False  # a copy of a file would be left open, and keep its lock
        # Of a copy, so that closing it leaves gRPC's own alone.
        with socket.socket(fileno=os.dup(number)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            # The listening one has no peer, and raises.
            if not wanted(connection.getsockname(), connection.getpeername()):
                return False
            connection.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:
        return False  # no socket, or gone meanwhile
