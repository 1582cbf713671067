"""I3, I5: a crash at any step, with or without a power cut, leaves exactly the old or exactly the new state.

The workload creates the table, settles into one and several partitions, moves the boundary without rows, compacts, adds
a column, checkpoints and goes on. Each of its durable steps is crashed before and after; each such crash is followed by
every kind of power cut (some of the combinations in `make test`, all of them in `make fault`); each call fails once.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import MillpondError, SettleFailed
from millpond.model.definition import StreamDefinition
from millpond.model.spec import Spec, parse_spec
from millpond.storage import LocalStorage, Storage
from millpond.testing import VARIANTS, Crash, FaultyStorage, Step, Variant
from tests.archive.crash_points import crash_points
from tests.archive.settled_stream import (
    DAY_MICROS,
    MIDNIGHT,
    SCHEMA,
    SettledStream,
    define,
    expected,
    read_all,
    records,
)

LAYOUT = parse_spec("kdtree:n,vid,buckets=3")
WIDER = pa.schema([*SCHEMA, pa.field("note", pa.string())])


class Workload:
    """Knows at any moment which boundary was promised and which one was being committed."""

    def __init__(self, root: Path, storage: Storage, layout: Spec | None = None) -> None:
        self.layout = layout
        self.promised: dict[int, int] = {}
        self.tried: dict[int, int] = {}
        self.root = root
        self.storage = storage

    def run(self) -> None:
        stream = SettledStream(self.root, self.define(SCHEMA), self.storage)
        self.settle(stream, {0: 6, 1: 3})
        self.settle(stream, {0: 9, 1: 3})
        self.settle(stream, {0: 9, 1: 7})
        stream.archive.compact(least_objects=2)
        stream.archive.checkpoint()
        self.settle(stream, {0: 12, 1: 9})
        stream.archive.alter(stream.definition.altered(WIDER))
        self.settle(stream, {0: 15, 1: 11})
        stream.archive.compact(least_objects=2)
        stream.archive.checkpoint()
        self.settle(stream, {0: 16, 1: 11})

    def define(self, schema: pa.Schema) -> StreamDefinition:
        return define(schema=schema, partition_seconds=86_400, event_time="at", layout=self.layout)

    def settle(self, stream: SettledStream, stop: dict[int, int]) -> None:
        """A day's records per three offsets, so that settles have one to three partitions."""
        self.tried = stop
        start = stream.boundary
        batches = [
            records(streamlet, offset, offset + 1, at=MIDNIGHT + offset // 3 * DAY_MICROS)
            for streamlet in stop
            for offset in range(start.get(streamlet, 0), stop[streamlet])
        ]
        stream.archive.settle(start, stop, batches)
        self.promised = stop


def expected_rows(boundary: dict[int, int]) -> pa.Table:
    batches = [
        records(streamlet, offset, offset + 1, at=MIDNIGHT + offset // 3 * DAY_MICROS)
        for streamlet, stop in sorted(boundary.items())
        for offset in range(stop)
    ]
    return pa.Table.from_batches(batches, expected({}).schema).combine_chunks()


def check_and_go_on(work: Workload, storage: Storage | None = None) -> None:
    """The archive opens, holds the old or the new state, verifies, and settles the rest."""
    stream = SettledStream(work.root, work.define(WIDER), storage)
    boundary = stream.boundary
    assert boundary in (work.promised, work.tried), f"promised {work.promised}, tried {work.tried}"
    seen = read_all(stream.archive.snapshot()).drop_columns(["note"])
    assert seen.equals(expected_rows(boundary))
    errors = [finding for finding in stream.archive.verify() if finding.severity == "error"]
    assert not errors
    goes_on = Workload(work.root, LocalStorage())
    goes_on.settle(stream, {0: 20, 1: 13})
    assert read_all(stream.reopen()).drop_columns(["note"]).equals(expected_rows({0: 20, 1: 13}))


def clean_steps(root: Path, layout: Spec | None = None) -> list[Step]:
    storage = FaultyStorage(LocalStorage(), root=root)
    Workload(root, storage, layout).run()
    assert storage.disk is not None
    storage.disk.close()
    return storage.steps


@pytest.fixture
def root(quick_path: Path) -> Path:
    return renew(quick_path / "root")


def renew(root: Path) -> Path:
    for left in root.parent.glob(f"{root.name}*"):
        shutil.rmtree(left)
    root.mkdir()
    return root


def crashed(
    root: Path, number: int, *, after: bool, seed: int = 0, layout: Spec | None = None
) -> tuple[FaultyStorage, Workload]:
    storage = FaultyStorage(LocalStorage(), seed, root=root)
    work = Workload(root, storage, layout)
    storage.crash_at(number, after=after)
    with pytest.raises(Crash):
        work.run()
    assert storage.crashed is not None
    return storage, work


def crash_everywhere(root: Path, *, each: bool, layout: Spec | None = None) -> None:
    steps = clean_steps(renew(root), layout)
    hit = set()
    for number, after in crash_points(steps, each=each):
        storage, work = crashed(renew(root), number, after=after, layout=layout)
        check_and_go_on(work, storage.restarted())
        hit.add(str(storage.crashed))
    # Objects are written by two threads: which of their steps has which number differs from run to run.
    missed = {str(step) for step in steps if step.durable} - hit
    assert all(name.endswith("/b#-#.parquet") for name in missed), missed
    assert any(name.endswith("/b#-#.parquet") for name in hit)


def cut_power_everywhere(root: Path, *, each: bool, layout: Spec | None = None) -> None:
    variants = itertools.cycle(VARIANTS)
    for number, after in crash_points(clean_steps(renew(root), layout), each=each):
        for variant in itertools.islice(variants, len(VARIANTS) if each else 1):
            storage, work = crashed(renew(root), number, after=after, seed=number, layout=layout)
            storage.power_cut(variant, seed=number)
            check_and_go_on(work)


def test_the_workload_passes_every_kind_of_durable_step(root: Path) -> None:
    places = {str(step) for step in clean_steps(root) if step.durable}
    stream = "grid.meters-#"
    for needed in (
        f"sync {stream}/g#/#.#/b#-#.parquet",
        f"sync_directory {stream}/g#/#.#",
        f"sync {stream}/_index/#.parquet",
        f"sync_directory {stream}/_index",
        f"sync_file {stream}/_delta_log/#.json",
        f"sync_directory {stream}/_delta_log",
        f"sync_file {stream}/_delta_log/#.checkpoint.parquet",
        f"rename {stream}/_index/_last_checkpoint",
        f"remove {stream}/_index/#.parquet",
    ):
        assert needed in places, f"{needed} is not among {sorted(places)}"


def test_a_crash_at_any_step_leaves_the_old_or_the_new_state(root: Path) -> None:
    """I5: each durable step is crashed before and after."""
    crash_everywhere(root, each=False)


def test_a_power_cut_at_any_step_leaves_the_old_or_the_new_state(root: Path) -> None:
    """I5: what was not synced may be gone, torn, or garbage; what was promised is there."""
    cut_power_everywhere(root, each=False)


def test_a_crash_while_models_are_written(root: Path) -> None:
    """With a layout: a model is there or not, whole or torn, and the records are as they were promised."""
    steps = clean_steps(root, LAYOUT)
    models = [step for step in steps if step.durable and "_layout" in step.path]
    assert {step.kind for step in models} >= {"create", "write", "sync", "sync_directory"}
    for step, variant in zip(models, itertools.cycle(VARIANTS)):
        for cut in (False, True):
            storage, work = crashed(renew(root), step.durable_number, after=False, layout=LAYOUT)
            if cut:
                storage.power_cut(variant, seed=step.durable_number)
            check_and_go_on(work, None if cut else storage.restarted())


@pytest.mark.long
@pytest.mark.parametrize("layout", [None, LAYOUT])
def test_a_crash_at_each_single_step(root: Path, layout: Spec | None) -> None:
    crash_everywhere(root, each=True, layout=layout)


@pytest.mark.long
def test_every_power_cut_at_each_single_step(root: Path) -> None:
    cut_power_everywhere(root, each=True)


@pytest.mark.long
def test_power_cuts_at_each_step_with_a_layout(root: Path) -> None:
    cut_power_everywhere(root, each=False, layout=LAYOUT)


def test_an_error_in_any_call_leaves_the_old_or_the_new_state(root: Path) -> None:
    """K7: a failing disk fails the settle, never the records; afterwards settling works again."""
    total = len(clean_steps(renew(root)))
    for number in range(1, total + 1, 5):
        storage = FaultyStorage(LocalStorage(), number, root=renew(root))
        work = Workload(root, storage)
        storage.fail(at=number)
        with contextlib.suppress(OSError, MillpondError):
            work.run()
        storage.power_cut(Variant.STRICT if number % 2 else Variant.GARBAGE, number)
        check_and_go_on(work)


def test_a_full_disk_fails_the_settle_and_leaves_no_objects_behind(root: Path) -> None:
    storage = FaultyStorage(LocalStorage(), root=root)
    work = Workload(root, storage)
    stream = SettledStream(root, define(event_time="at"), storage)
    work.settle(stream, {0: 6, 1: 3})
    before = sorted(path for path in Path(stream.root).rglob("*.parquet"))
    storage.limit_room(3_000, under=stream.root)
    with pytest.raises(SettleFailed, match="No space left"):
        work.settle(stream, {0: 12, 1: 9})
    assert sorted(path for path in Path(stream.root).rglob("*.parquet")) == before
    storage.heal()
    work.settle(stream, {0: 12, 1: 9})
    assert read_all(stream.archive.snapshot()).equals(expected_rows({0: 12, 1: 9}))
