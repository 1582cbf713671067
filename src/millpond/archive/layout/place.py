"""Where a layout put the rows of an object."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Bucket so-and-so of so many, by a model: what the object's index entry and its footer say."""

    model: str
    bucket: int
    buckets: int


def adapted(newest: str, suited: str) -> str:
    """What a model is called that stands in for the newest one, for rows that this one does not know."""
    return newest if suited == newest else f"{newest}+{suited}"


def stands_for(name: str | None, newest: str) -> bool:
    """Whether what entries call their model is the newest one, or stands in for it."""
    return name is not None and name.partition("+")[0] == newest
