"""Where a layout put the rows of an object."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Bucket so-and-so of so many, by a model: what the object's index entry and its footer say."""

    model: str
    bucket: int
    buckets: int
