"""Files come, change and go: a query is right at once, and a refresh makes it quick again (F2, F6)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import millpond
from millpond.errors import DatasetExists, DatasetNotFound, InvalidInput
from millpond.spark import last_query
from tests.spark.conftest import session_setting
from tests.spark.datasets.conftest import files_read, numbers

HEADER = {"header": True}
SCHEMA = "n int, city string"
OLD = 1_500_000_000


@pytest.fixture
def dataset(spark: SparkSession, pond: millpond.Pond, data: Path) -> millpond.Dataset:
    for at in range(4):
        numbers(data / f"{at}.csv", 10 * at, 10 * at + 10, at_seconds=OLD + at)
    return pond.index(
        data, format="csv", name="weather", options=HEADER, schema=SCHEMA, indexes=["minmax:n"], spark=spark
    )


def plain(spark: SparkSession, data: Path) -> DataFrame:
    return spark.read.csv(str(data), schema=SCHEMA, header=True)


def test_new_changed_and_removed_files(spark: SparkSession, dataset: millpond.Dataset, data: Path) -> None:
    frame = dataset.to_spark(spark)
    assert files_read(spark, frame.where("n = 5"), plain(spark, data).where("n = 5")) == (1, 4)
    numbers(data / "new.csv", 5, 7, at_seconds=OLD)
    numbers(data / "1.csv", 3, 13, at_seconds=OLD + 9)  # other values
    (data / "2.csv").unlink()
    # The same frame: every query lists the files anew.
    assert files_read(spark, frame.where("n = 5"), plain(spark, data).where("n = 5")) == (3, 4)
    report = dataset.refresh(spark)
    assert (report.files, report.added, report.changed, report.removed, report.described) == (4, 1, 1, 1, 2)
    assert files_read(spark, frame.where("n = 35"), plain(spark, data).where("n = 35")) == (1, 4)
    assert files_read(spark, frame.where("n = 5"), plain(spark, data).where("n = 5")) == (3, 4)
    again = dataset.refresh(spark)
    assert (again.described, again.added, again.changed, again.removed) == (0, 0, 0, 0)


def test_a_file_of_the_same_size_with_another_time_is_read(
    spark: SparkSession, dataset: millpond.Dataset, data: Path
) -> None:
    before = (data / "3.csv").stat().st_size
    numbers(data / "3.csv", 80, 90, at_seconds=OLD + 3_600)
    assert (data / "3.csv").stat().st_size == before
    assert files_read(spark, dataset.to_spark(spark).where("n = 85"), plain(spark, data).where("n = 85")) == (1, 4)
    # The bounds of before say nothing any more, also not that something is not there.
    assert dataset.to_spark(spark).where("n = 35").count() == 0


def test_another_process_finds_what_was_indexed(
    spark: SparkSession, pond: millpond.Pond, dataset: millpond.Dataset, data: Path
) -> None:
    """Here the pond is opened again."""
    where, pond_path = "n >= 30", pond.path
    pond.close()
    with millpond.open(pond_path, background=False) as again:
        found = again.dataset("weather")
        assert found.status().files == 4
        assert again.dataset(str(data)) is found
        assert files_read(spark, found.to_spark(spark).where(where), plain(spark, data).where(where)) == (1, 4)


@pytest.mark.parametrize("damage", ["flipped", "removed", "cut"])
def test_damaged_entries_cost_time_only(
    spark: SparkSession, pond: millpond.Pond, dataset: millpond.Dataset, data: Path, damage: str
) -> None:
    pond.close()
    (file,) = Path(pond.path, "datasets").glob("*/_index/*.parquet")
    content = bytearray(file.read_bytes())
    if damage == "removed":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:-40])
    else:
        content[len(content) // 2] ^= 0xFF
        file.write_bytes(content)
    with millpond.open(pond.path, background=False) as again:
        found = again.dataset("weather")
        assert files_read(spark, found.to_spark(spark).where("n = 5"), plain(spark, data).where("n = 5")) == (4, 4)
        assert len(found.status().warnings) == 1
        assert found.refresh(spark).described == 4
        assert found.status().warnings == ()
        assert files_read(spark, found.to_spark(spark).where("n = 5"), plain(spark, data).where("n = 5")) == (1, 4)


def test_a_damaged_definition_is_told_and_keeps_nothing_else_from_working(
    spark: SparkSession, pond: millpond.Pond, dataset: millpond.Dataset, data: Path
) -> None:
    pond.close()
    (file,) = Path(pond.path, "datasets").glob("*/dataset.json")
    file.write_text(file.read_text().replace("minmax", "minmix"))
    with millpond.open(pond.path, background=False) as again:
        assert again.datasets() == []
        with pytest.raises(millpond.errors.Damaged, match="checksum"):
            again.dataset("weather")
        made = again.index(data, format="csv", name="other", options=HEADER, schema=SCHEMA, spark=spark)
        assert made.to_spark(spark).count() == 40


def test_indexes_are_added_dropped_and_rebuilt(spark: SparkSession, dataset: millpond.Dataset, data: Path) -> None:
    numbers(data / "lyon.csv", 0, 40, city="Lyon", at_seconds=OLD)
    dataset.refresh(spark)
    frame = dataset.to_spark(spark)
    assert files_read(spark, frame.where("city = 'Lyon'"), plain(spark, data).where("city = 'Lyon'")) == (5, 5)
    assert dataset.add_index(millpond.Values("city"), millpond.Bloom("n"), spark=spark).described == 5
    assert [spec.key for spec in dataset.indexes] == ["minmax(n)", "values(city)", "bloom(n)"]
    assert files_read(spark, frame.where("city = 'Lyon'"), plain(spark, data).where("city = 'Lyon'")) == (1, 5)
    assert last_query(spark).skipped_by.keys() <= {"city", "values(city)"}
    dataset.drop_index("values(city)")
    assert [spec.key for spec in dataset.indexes] == ["minmax(n)", "bloom(n)"]
    assert files_read(spark, frame.where("city = 'Lyon'"), plain(spark, data).where("city = 'Lyon'")) == (5, 5)
    assert files_read(spark, frame.where("n = 5"), plain(spark, data).where("n = 5")) == (2, 5)
    assert dataset.rebuild(spark).described == 5
    assert files_read(spark, frame.where("n = 5"), plain(spark, data).where("n = 5")) == (2, 5)
    with pytest.raises(InvalidInput, match=r"no index"):
        dataset.drop_index("values(city)")


def test_blooms_lie_beside_the_entries(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    """Values far apart, which no range tells apart; without the blobs everything is read."""
    for at in range(4):
        numbers(data / f"{at}.csv", 0, 0)
        (data / f"{at}.csv").write_text("n,city\n" + "".join(f"{n},x\n" for n in range(at, 40_000, 1_000)))
    made = pond.index(data, format="csv", options=HEADER, schema=SCHEMA, indexes=[millpond.Bloom("n")], spark=spark)
    assert files_read(spark, made.to_spark(spark).where("n = 1002"), plain(spark, data).where("n = 1002"))[0] < 4
    (blobs,) = Path(pond.path, "datasets").glob("*/_index/*.blobs")
    pond.close()
    blobs.unlink()
    with millpond.open(pond.path, background=False) as again:
        found = again.dataset("data").to_spark(spark)
        assert files_read(spark, found.where("n = 1002"), plain(spark, data).where("n = 1002")) == (4, 4)


def test_dropping_leaves_the_files(
    spark: SparkSession, pond: millpond.Pond, dataset: millpond.Dataset, data: Path
) -> None:
    frame = dataset.to_spark(spark)
    pond.drop_dataset("weather")
    assert sorted(path.name for path in data.iterdir()) == ["0.csv", "1.csv", "2.csv", "3.csv"]
    assert list(Path(pond.path, "datasets").iterdir()) == []
    with pytest.raises(DatasetNotFound, match="weather"):
        pond.dataset("weather")
    with pytest.raises(DatasetNotFound, match="dropped"):
        dataset.refresh(spark)
    assert frame.where("n = 5").count() == 1  # a frame outlives its index, and finds nothing to rule files out by


def test_one_name_one_data_set(spark: SparkSession, pond: millpond.Pond, dataset: millpond.Dataset, data: Path) -> None:
    with pytest.raises(DatasetExists, match="weather"):
        pond.index(data, format="csv", name="weather", spark=spark)


def test_a_stream_takes_the_view_of_a_data_set_of_its_name(
    spark: SparkSession, pond: millpond.Pond, dataset: millpond.Dataset
) -> None:
    views = pond.attach(spark)
    try:
        assert views.dataset_views == {"weather": "weather"}
        pond.create_stream("weather", pa.schema([("n", pa.int32())])).append({"n": 5})
        assert views.views == {"weather": "weather"}
        assert spark.sql("SELECT count(*) AS n FROM weather").collect()[0].n == 1
        second = views.dataset_views["weather"]
        assert spark.sql(f"SELECT count(*) AS n FROM {second} WHERE n < 10").collect()[0].n == 10
        pond.drop_stream("weather")
        assert views.dataset_views == {"weather": "weather"}
        assert spark.sql("SELECT count(*) AS n FROM weather WHERE n < 10").collect()[0].n == 10
    finally:
        views.detach()


def test_views_come_and_go_with_data_sets(
    spark: SparkSession, pond: millpond.Pond, dataset: millpond.Dataset, data: Path
) -> None:
    before = {table.name for table in spark.catalog.listTables()}
    views = pond.attach(spark)
    try:
        assert views.dataset_views == {"weather": "weather"}
        assert spark.sql("SELECT count(*) AS n FROM weather WHERE n < 10").collect()[0].n == 10
        assert last_query(spark).objects_read == 1
        stream = pond.create_stream("more/files", pa.schema([("n", pa.int32())]))
        stream.append({"n": 5})
        pond.index(data, format="csv", name="more.files", options=HEADER, schema=SCHEMA, spark=spark)
        second = views.dataset_views["more.files"]
        assert second.startswith("more_files_")
        joined = f"SELECT count(*) AS n FROM more_files s JOIN {second} d ON s.n = d.n WHERE d.n < 10"
        assert spark.sql(joined).collect()[0].n == 1
        numbers(data / "late.csv", 5, 6)
        assert spark.sql("SELECT count(*) AS n FROM weather WHERE n = 5").collect()[0].n == 2
        pond.drop_dataset("weather")
        assert "weather" not in {table.name for table in spark.catalog.listTables()}
    finally:
        views.detach()
    assert {table.name for table in spark.catalog.listTables()} == before


def test_what_a_killed_job_has_recorded_counts(
    spark: SparkSession, pond: millpond.Pond, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh in rounds of two files fails in the third round: the next one carries on."""
    for at in range(3):
        numbers(data / f"{at}.csv", 0, 5, at_seconds=OLD)
    made = pond.index(data, format="csv", options=HEADER, schema=SCHEMA, indexes=["minmax:n"], spark=spark)
    for at in range(3, 9):
        numbers(data / f"{at}.csv", 5, 9, at_seconds=OLD)
    monkeypatch.setattr("millpond.spark.datasets.indexing.ROUND_FILES", 2)
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.refresh(spark, progress=stop)
    assert seen[-1] == (4, 6)
    assert made.refresh(spark).described == 2
    assert made.status().files == 9


def nothing_below_100(predicate: object, files: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """A filter of a user's: reads the index entries of files."""
    return np.array([high is None or high >= 100 for high in files.column("max.n").to_pylist()])


def test_filters_of_the_session_are_asked_about_files(
    spark: SparkSession, dataset: millpond.Dataset, data: Path
) -> None:
    numbers(data / "new.csv", 500, 510)
    with session_setting(spark, "millpond.filters", f"{__name__}:nothing_below_100"):
        assert dataset.to_spark(spark).where("n > 20").count() == 10
    assert (last_query(spark).objects_read, last_query(spark).objects_total) == (1, 5)


def test_others_do_not_wait_for_a_job(
    spark: SparkSession, pond: millpond.Pond, dataset: millpond.Dataset, data: Path
) -> None:
    """While one data set is made, the others are there, and its name is taken."""
    seen: list[list[str]] = []

    def look(done: int, total: int) -> None:
        seen.append([each.name for each in pond.datasets()])
        with pytest.raises(DatasetExists):
            pond.index(data, format="csv", name="second", spark=spark)

    pond.index(data, format="csv", name="second", schema=SCHEMA, indexes=["minmax:n"], spark=spark, progress=look)
    assert seen[-1] == ["weather"]
    assert [each.name for each in pond.datasets()] == ["second", "weather"]
