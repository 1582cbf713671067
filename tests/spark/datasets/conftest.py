"""Files as others write them, and what plain Spark says of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import millpond
from millpond.spark import last_query


@pytest.fixture
def pond(pond_dir: Path) -> Iterator[millpond.Pond]:
    with millpond.open(str(pond_dir), background=False) as pond:
        yield pond


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where a test may put files."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def same(one: DataFrame, other: DataFrame) -> None:
    assert sorted(map(repr, one.collect())) == sorted(map(repr, other.collect()))


def files_read(spark: SparkSession, frame: DataFrame, plain: DataFrame) -> tuple[int, int]:
    """How many files a query read, of how many, after its answer was found to be Spark's own."""
    same(frame, plain)
    figures = last_query(spark)
    assert figures.undecided == 0
    return figures.objects_read, figures.objects_total


def numbers(path: Path, start: int, stop: int, *, city: str = "Nice", at_seconds: int | None = None) -> None:
    """A CSV file of n and city, as of some time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("n,city\n" + "".join(f"{n},{city}\n" for n in range(start, stop)))
    if at_seconds is not None:
        os.utime(path, (at_seconds, at_seconds))
