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

logger = logging.getLogger(__name__)

# Where Linux lists the open files of a process. Elsewhere nothing is cut.
_FILES = "/proc/self/fd"


def cut_connections(port: int) -> int:
    """End every connection that was accepted on a port of this process; how many there were."""
    cut = 0
    for number in os.listdir(_FILES) if os.path.isdir(_FILES) else ():
        if _cut(int(number), port):
            cut += 1
    logger.info("cut %d connections to port %d", cut, port)
    return cut


def _cut(number: int, port: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False  # a copy of a file would be left open, and keep its lock
        # Of a copy, so that closing it leaves gRPC's own alone.
        with socket.socket(fileno=os.dup(number)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.getsockname()[1] != port:
                return False
            connection.getpeername()  # the listening one has no peer
            connection.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:
        return False  # no socket, or gone meanwhile
