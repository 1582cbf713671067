"""What a power cut makes of bytes that were written and not synced.

A disk keeps what was synced. Of the rest it may keep nothing, all, or any part: the head of it, whole sectors here and
there, late pages without the early ones, or space that was allocated and never filled. Each of these is a `Variant`;
`MIXED` draws one per file. `KEPT` loses nothing: it is what a killed process leaves, and is there for comparison.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum

# What disks promise to write whole, and what the system's cache writes out at once.
SECTOR_BYTES = 512
PAGE_BYTES = 4_096


class Variant(Enum):
    """How unsynced bytes come out of a power cut."""

    STRICT = "strict"  # nothing that was not synced is there, neither names nor bytes
    EMPTY = "empty"  # names are there, without the bytes
    PART = "part"  # the unsynced bytes up to some byte
    ZEROS = "zeros"  # the length is there, the bytes are zeros
    GARBAGE = "garbage"  # the length is there, the bytes are somebody else's
    SECTORS = "sectors"  # each sector is old or new by itself
    LATER = "later"  # later pages are there, earlier ones are not
    KEPT = "kept"  # everything is there
    MIXED = "mixed"  # every name and every file draws for itself


VARIANTS = tuple(Variant)
_OF_ONE_FILE = tuple(v for v in Variant if v is not Variant.MIXED)


def surviving_bytes(durable: bytes, written: bytes, variant: Variant, rng: random.Random) -> bytes:
    """The content of a file after a power cut: `durable` was synced, `written` is what the process last saw."""
    if durable == written:
        return written
    if variant is Variant.MIXED:
        variant = rng.choice(_OF_ONE_FILE)
    grown = written[: len(durable)] == durable
    if variant in (Variant.STRICT, Variant.EMPTY):
        return durable
    if variant is Variant.KEPT:
        return written
    if not grown:  # cut short or overwritten since the sync: any sector may be the old or the new one
        length = rng.choice((len(durable), len(written)))
        return _by_pieces(durable, written, length, SECTOR_BYTES, lambda _: rng.random() < 0.5)
    length, unsynced = len(written), len(written) - len(durable)
    if variant is Variant.PART:
        return written[: len(durable) + rng.randrange(unsynced + 1)]
    if variant is Variant.ZEROS:
        kept = rng.randrange(unsynced + 1)
        return written[: len(durable) + kept] + bytes(unsynced - kept)
    if variant is Variant.GARBAGE:
        return durable + rng.randbytes(unsynced)
    if variant is Variant.SECTORS:
        return _by_pieces(durable, written, length, SECTOR_BYTES, lambda _: rng.random() < 0.5)
    # With little unsynced, sectors stand for pages, so that the order is broken all the same.
    piece = PAGE_BYTES if unsynced > 2 * PAGE_BYTES else SECTOR_BYTES
    first_new = rng.randint(len(durable) // piece + 1, max(len(durable) // piece + 1, (length - 1) // piece))
    return _by_pieces(durable, written, length, piece, lambda at: at >= first_new)


def _by_pieces(old: bytes, new: bytes, length: int, size: int, is_new: Callable[[int], bool]) -> bytes:
    """`length` bytes, piece by piece from `new` or from `old`, each with zeros beyond its end."""
    old, new = old.ljust(length, b"\0")[:length], new.ljust(length, b"\0")[:length]
    return b"".join((new if is_new(at // size) else old)[at : at + size] for at in range(0, length, size))
