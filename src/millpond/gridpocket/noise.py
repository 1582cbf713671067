"""Chance that needs no state: a number is drawn from a seed, what it is for, and where it is, and from nothing else.

Any executor can make any row by itself, in any order, and all agree. The hash is splitmix64's finaliser, which is what
seeds other generators; it has no weak bits, and numpy runs it over whole arrays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_UNIT = 2.0**-53


def mixed(seed: int, purpose: int, numbers: npt.ArrayLike) -> Hashes:
    """A hash for each of the numbers; other purposes give others."""
    start = np.uint64((seed * 0xD6E8FEB86659FD93 + (purpose + 1) * _GOLDEN) & _MASK)
    found: Hashes = np.asarray(numbers).astype(np.uint64) * np.uint64(_GOLDEN)
    found += start
    found ^= found >> np.uint64(30)
    found *= _FIRST
    found ^= found >> np.uint64(27)
    found *= _SECOND
    found ^= found >> np.uint64(31)
    return found


def uniform(seed: int, purpose: int, numbers: npt.ArrayLike) -> Floats:
    """Evenly in [0, 1)."""
    found: Floats = (mixed(seed, purpose, numbers) >> np.uint64(11)).astype(np.float64) * _UNIT
    return found


def normal(seed: int, purpose: int, numbers: npt.ArrayLike) -> Floats:
    """Around 0 with a deviation of 1: Box and Muller's transform of two uniform ones."""
    hashes = mixed(seed, purpose, numbers)
    first = ((hashes >> np.uint64(32)).astype(np.float64) + 1.0) * 2.0**-32
    second = (hashes & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-32
    found: Floats = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * np.pi * second)
    return found
