"""How the server's process takes memory from the system, and gives it back.

The C library gives threads heaps of their own (arenas), up to eight per core, and what a thread has freed stays in its
heap. gRPC answers in ever other threads, so each heap ends up as large as the largest answer: hundreds of megabytes in
which nothing is. With few heaps, what one thread has freed is what the next one takes.
"""

from __future__ import annotations

import ctypes
import os

# glibc's number of the option.
_M_ARENA_MAX = -8


def share_heaps() -> bool:
    """As many heaps as threads can run at once, and no more. To be called early: heaps that are there stay. False where
    the C library has no such thing, or whoever started the process has chosen already."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's; others have no arenas
    if mallopt is None or "MALLOC_ARENA_MAX" in os.environ:
        return False
    return bool(mallopt(_M_ARENA_MAX, max(2, os.cpu_count() or 2)))
