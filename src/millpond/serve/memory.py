"""How the server's process takes memory from the system, and gives it back.

The C library gives threads heaps of their own (arenas), up to eight per core, and what a thread has freed stays in its
heap. gRPC answers in ever other threads, so each heap ends up as large as the largest answer: hundreds of megabytes in
which nothing is. With few heaps, what one thread has freed is what the next one takes.

Arrow's own pool (mimalloc) keeps what was freed for the thread that took it, and only that thread can give it back. The
C library's heap is given back by whichever thread asks (`log.keeper.release_unused`). A server lives for long and
decodes in many threads, so it takes its batches from there.
"""

from __future__ import annotations

import ctypes
import os

# glibc's numbers of the options.
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3
# What is larger has pages of its own, which go back to the system when it is freed. Left alone, glibc raises this to
# 32 MB, and decoded row groups leave holes in the heaps that small things keep open.
_OWN_PAGES_BYTES = 2 << 20


def save_memory() -> None:
    """To be called before anything else is loaded that starts threads: heaps that are there stay. What whoever started
    the process has chosen, by glibc's and Arrow's own variables, holds."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's; others have no arenas
    if mallopt is not None and not any(name.startswith("MALLOC_") for name in os.environ):
        # As many heaps as threads can run at once, and no more.
        mallopt(_M_ARENA_MAX, max(2, os.cpu_count() or 2))
        mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_BYTES)
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        import pyarrow as pa  # which starts threads

        pa.set_memory_pool(pa.system_memory_pool())
