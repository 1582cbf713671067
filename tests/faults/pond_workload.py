"""A fixed workload on a whole pond, and the runs around it: into a crash, and what must hold afterwards.

It appends in all forms and durabilities, retries, settles, merges, alters, truncates, drops, makes anew, closes and
reopens.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import deltalake

from millpond.errors import MillpondError
from millpond.storage import LocalStorage
from millpond.testing import Crash, FaultyStorage
from millpond.testing.pond_driver import PondDriver
from millpond.testing.pond_model import Attempt, PondModel

# As small as allowed; only appends at `disk`, syncs and settles make anything durable.
SETTINGS = {"journal_file_bytes": 64_000, "segment_bytes": 64_000, "flush_seconds": 3_600.0, "disk_reserve_bytes": 0}
METERS, ALARMS, NOTES = "grid/meters", "grid/alarms", "notes"


def driver(root: Path, storage: object, model: PondModel | None = None, *, tolerant: bool = False) -> PondDriver:
    return PondDriver(root / "pond", storage, model, tolerant=tolerant, **SETTINGS)  # type: ignore[arg-type]


def newest_with_producer(drive: PondDriver, name: str) -> Attempt | None:
    stream = drive.model.streams.get(name)
    known = [attempt for attempt in stream.attempts if attempt.producer] if stream else []
    return known[-1] if known else None


def retry(drive: PondDriver, name: str) -> None:
    attempt = newest_with_producer(drive, name)
    if attempt is not None:
        drive.send(name, attempt)


def run(drive: PondDriver) -> None:
    """All of it. A crash goes through; then the threads of the pond are ended."""
    try:
        drive.open()
        _first(drive)
        drive.close()
        drive.open()
        _second(drive)
        drive.close()
        drive.open()
        _third(drive)
        drive.close()
    finally:
        drive.abandon()


def _first(drive: PondDriver) -> None:
    drive.create(METERS, streamlets=3)
    drive.create(ALARMS, durability="os")
    drive.append(METERS, 1, form="dict")
    drive.append(METERS, 12, form="batch")
    drive.append(ALARMS, 2)
    drive.append(ALARMS, 1, durability="memory")
    drive.append(METERS, 3, producer="p", sequence=1)
    drive.settle(METERS)
    drive.append(METERS, 4, form="pandas")
    retry(drive, METERS)
    drive.append(METERS, 40, form="table", filling="x" * 2_000)
    drive.settle(ALARMS)
    drive.settle(METERS)
    drive.create(NOTES, durability="memory", streamlets=2, settle=None)
    drive.append(NOTES, 5)


def _second(drive: PondDriver) -> None:
    drive.append(METERS, 2, durability="os")
    drive.alter(METERS)
    drive.append(METERS, 6, producer="p", sequence=2)
    drive.settle(METERS)
    retry(drive, METERS)
    drive.compact(METERS)
    drive.append(ALARMS, 3, durability="disk")
    drive.append(NOTES, 2, producer="n", sequence=1, durability="disk")
    drive.truncate(NOTES)
    retry(drive, NOTES)
    drive.drop(ALARMS)
    drive.append(NOTES, 1, form="dict", durability="disk")
    drive.checkpoint(METERS)
    drive.append(METERS, 30, form="batch", filling="y" * 3_000, durability="memory")
    drive.append(METERS, 30, form="batch", filling="y" * 3_000)


def _third(drive: PondDriver) -> None:
    drive.create(ALARMS)
    drive.append(ALARMS, 2)
    drive.settle(METERS)
    drive.compact(METERS)
    drive.settle(ALARMS)
    drive.append(METERS, 2, producer="p", sequence=3)
    drive.truncate(METERS)
    retry(drive, METERS)
    drive.append(METERS, 3)
    drive.settle(METERS)
    drive.append(METERS, 2)
    drive.truncate(METERS)
    drive.append(METERS, 1, form="dict")
    drive.truncate(ALARMS)


def fresh(root: Path) -> None:
    for left in root.parent.glob(f"{root.name}*"):
        shutil.rmtree(left)
    root.mkdir(parents=True)


def crash(root: Path, number: int, *, after: bool, seed: int = 0) -> tuple[FaultyStorage, PondModel]:
    """Run the workload in a fresh root into a crash at a durable step."""
    fresh(root)
    storage = FaultyStorage(LocalStorage(), seed, root=root)
    storage.crash_at(number, after=after)
    drive = driver(root, storage)
    # The thread that died may be one of the pond's own; then the caller's meets an error at its next call.
    with contextlib.suppress(Crash, MillpondError):
        run(drive)
    assert storage.crashed is not None, f"the workload has no durable step {number}"
    assert storage.crashed.durable_number == number
    return storage, drive.model


def check_and_go_on(root: Path, model: PondModel, *, thorough: bool = True) -> None:
    """What must be there is; the pond works on: appends, retries, settles; and a foreign reader sees the same."""
    drive = driver(root, LocalStorage(), model)
    try:
        drive.open()
        drive.check()
        if METERS not in model.streams:
            drive.create(METERS, streamlets=3)
        drive.append(METERS, 3)
        for name in list(model.streams):
            retry(drive, name)
        drive.settle(METERS)
        drive.append(METERS, 1, form="dict")
        drive.check()
        check_foreign(drive, METERS)
        findings = [f for f in drive.pond.stream(METERS).archive.verify() if f.severity == "error"]
        assert not findings, findings
        drive.close()
        if thorough:
            drive.open()
            drive.check()
            drive.close()
    finally:
        drive.abandon()


def check_foreign(drive: PondDriver, name: str) -> None:
    """B1: deltalake's own reader finds exactly the settled records, each once."""
    stream = drive.pond.stream(name)
    snapshot = stream.snapshot()
    table = deltalake.DeltaTable(stream.archive.root).to_pyarrow_table()
    ids = table.column("id").to_pylist()
    assert len(ids) == len(set(ids)) == sum(snapshot.boundary.values())
