"""Loads into a stream with a layout, and the first model that they give it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millpond.archive.layout.arranging import Arranging
from millpond.archive.layout.thinning import Thinning
from millpond.archive.load import SAMPLE, LoadWriter
from millpond.errors import InvalidInput
from millpond.storage import LocalStorage
from tests.archive.bucketed import laid_out, places
from tests.archive.settled_stream import SCHEMA, SettledStream, records


def _load(stream: SettledStream, parts: Sequence[pa.RecordBatch], *, model: bool = True, least: int = 0) -> None:
    """What the tasks of a job do, one part each."""
    load = stream.archive.begin_load(stream.clock.now_micros())
    stored, layout = stream.archive.model(), stream.archive.layout
    assert load is not None
    assert layout is not None
    reports = []
    for task, part in enumerate(parts):
        known = stored.model if stored is not None and model else None
        arranging = Arranging(layout, known, object_bytes_min=least)
        with LoadWriter(
            LocalStorage(), stream.root, stream.definition, load, task, 20, object_bytes=1 << 20, arranging=arranging
        ) as writer:
            writer.add(part)
            report = writer.finish()
        assert report is not None
        reports.append(report)
    stream.archive.commit_load(load, pa.concat_tables(reports, promote_options="default"))


def _own(start: int, stop: int) -> pa.RecordBatch:
    return records(0, start, stop).select(SCHEMA.names)


def test_loads_apply_the_model(tmp_path: Path) -> None:
    stream = laid_out(tmp_path)
    stream.settle_to({0: 2_000})
    stored = stream.archive.model()
    _load(stream, [_own(0, 2_000), _own(2_000, 3_000)])
    assert stored is not None
    loaded = places(stream.archive.snapshot())[16:]
    assert {model for model, _, _ in loaded} == {stored.model.id}
    assert len({bucket for _, bucket, _ in loaded}) == 16
    assert stream.archive.model() == stored
    assert sum(stream.archive.snapshot().objects.rows) == 5_000


def test_a_load_gives_a_stream_its_first_model(tmp_path: Path) -> None:
    """Tasks lay out by models of their own, and report samples: the stream's model is of all of them."""
    stream = laid_out(tmp_path)
    _load(stream, [_own(0, 2_000), _own(50_000, 52_000)])
    snapshot, stored = stream.archive.snapshot(), stream.archive.model()
    assert set(places(snapshot)) == {(None, None, None)}
    assert len(snapshot.objects) == 32
    assert stored is not None
    assert 2_000 < stored.model.rows <= 4_096
    whole = pa.Table.from_batches([_own(0, 2_000), _own(50_000, 52_000)])
    assert np.bincount(stored.model.assign(whole)).max() < 500
    _load(stream, [_own(0, 2_000)])
    assert {model for model, _, _ in places(stream.archive.snapshot())[32:]} == {stored.model.id}


def test_a_report_with_a_sample_that_is_none(tmp_path: Path) -> None:
    stream = laid_out(tmp_path)
    load, layout = stream.archive.begin_load(1), stream.archive.layout
    assert load is not None
    assert layout is not None
    with LoadWriter(
        LocalStorage(), stream.root, stream.definition, load, 0, 20, object_bytes=1 << 20, arranging=Arranging(layout)
    ) as writer:
        writer.add(_own(0, 100))
        report = writer.finish()
    assert report is not None
    at = report.schema.get_field_index(SAMPLE)
    bad = report.set_column(at, SAMPLE, pa.array([b"nonsense"] * report.num_rows, pa.binary()))
    with pytest.raises(InvalidInput, match="sample"):
        stream.archive.commit_load(load, bad)
    assert len(stream.archive.snapshot().objects) == 0


def test_a_sample_of_unknown_many_rows_is_even() -> None:
    schema = pa.schema([("x", pa.int64())])
    thinning = Thinning(schema, 1_000)
    for start in range(0, 100_000, 7_000):
        thinning.add(pa.RecordBatch.from_arrays([pa.array(range(start, start + 7_000))], schema=schema))
    found = thinning.sample().column("x").to_numpy()
    assert 400 <= len(found) <= 1_000
    assert len(set(found.tolist())) == len(found)
    assert abs(found.mean() - 52_500) < 5_000
