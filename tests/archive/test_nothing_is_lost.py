"""F5, with everything at once: a skipped object holds no matching row, whatever the indexes, the layout, the clause.

Rows of every oddity lie in many small objects of streams with and without a layout, with every kind of index. A clause
is read as text, decided by the stream's index, and compared with its evaluation on all rows.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millpond
from millpond.archive.index.entries import BYTES, PATH, ROWS
from millpond.archive.index.pruning import prune
from millpond.archive.object_index import ObjectIndex
from millpond.model.evaluate import mask
from millpond.model.schema import stored_schema
from millpond.model.stats import Stats
from millpond.query.sql import parse_where
from millpond.testing.odd_rows import SCHEMA, odd_rows
from millpond.testing.where_clauses import where_clauses
from tests.odd_streams import INDEXES, LAYOUTS, settled_stream

# Clauses that one example holds: drawing them is quick beside what hypothesis does around an example.
AT_ONCE = 20


class Settled(NamedTuple):
    """A stream's objects, as the index knows them and as they are."""

    index: ObjectIndex
    rows: pa.RecordBatch
    owners: npt.NDArray[np.int64]
    skipped_by: Counter[str]

    def check(self, clause: str) -> int:
        """The number of objects that were skipped; fails if one of them holds a row of the clause."""
        predicate = parse_where(clause, self.rows.schema)
        wanted = np.asarray(mask(self.rows, predicate))
        pruning = self.index.prune(predicate)
        # Where ranges rule an object out, no index is asked about it: so they are asked once more, without any ranges.
        unranged = Stats(pa.nulls(len(self.index), pa.int64()), {})
        alone = prune(predicate, unranged, self.rows.schema, self.index.indexes)
        for how in (pruning, alone):
            lost = wanted & ~how.keep[self.owners]
            assert not lost.any(), f"{clause}\nloses {self.rows.filter(pa.array(lost)).slice(0, 3).to_pylist()}"
            assert not how.failures, f"{clause}: {how.failures}"
        self.skipped_by.update(alone.skipped_by)
        return int(np.count_nonzero(~pruning.keep))


def settled(path: Path, layout: str, seed: int, blocks: int = 12, rows: int = 48) -> Settled:
    with millpond.open(str(path), background=False) as pond:
        snapshot = settled_stream(pond, layout, odd_rows(seed, blocks, rows)).snapshot().settled
        tables = [pq.ParquetFile(Path(snapshot.root) / path).read() for path in snapshot.objects.paths]
        owners = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        schema = stored_schema(SCHEMA)
        whole = pa.concat_tables([table.select(schema.names).cast(schema) for table in tables])
        assert len(whole) == blocks * rows
        # Filters are read from the disk when they are asked for.
        return Settled(snapshot.objects, whole.combine_chunks().to_batches()[0], owners, Counter())


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def odd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Settled:
    return settled(tmp_path_factory.mktemp("odd") / "pond", request.param, seed=11)


def run(odd: Settled, clauses: int, *, all_kinds: bool = True) -> None:
    skipped = asked = 0

    @settings(
        max_examples=clauses // AT_ONCE,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(st.lists(where_clauses(), min_size=AT_ONCE, max_size=AT_ONCE))
    def check(several: list[str]) -> None:
        nonlocal skipped, asked
        for clause in several:
            skipped += odd.check(clause)
            asked += len(odd.index)

    check()
    assert skipped > asked / 10, "hardly anything was skipped; this proved nothing"
    if not all_kinds:
        return
    used = {name for name in odd.skipped_by if "(" in name}
    assert {kind.spec.key for kind in INDEXES if kind.name != "minmax"} <= used, (
        f"some were of no use: {odd.skipped_by}"
    )


def test_no_row_is_lost(odd: Settled) -> None:
    run(odd, 700)


def test_no_row_is_lost_where_entries_have_holes(odd: Settled) -> None:
    """Whatever is missing of an entry, as after damage or from an older writer, the object is read."""
    dice = np.random.default_rng(3)
    entries = odd.index.entries
    columns = [
        column if name in (PATH, BYTES, ROWS) else pc.if_else(pa.array(dice.random(len(odd.index)) < 0.7), column, None)
        for name, column in zip(entries.schema.names, entries.columns, strict=True)
    ]
    holed = pa.table(columns, schema=entries.schema)
    index = ObjectIndex(holed, odd.rows.schema, odd.index._indexes, odd.index._blobs)
    run(odd._replace(index=index, skipped_by=Counter()), 100, all_kinds=False)


@pytest.mark.long
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_no_row_is_lost_at_length(tmp_path: Path, layout: str) -> None:
    """200,000 clauses over all layouts, with other rows every 4,800."""
    for seed in range(14):
        run(settled(tmp_path / str(seed), layout, seed), 4_800)
