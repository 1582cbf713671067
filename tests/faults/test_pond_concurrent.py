"""Many threads, a settler and a merger at work, and the process dies or the power goes at some step (I1, I2, I3).

Which step it is, and who is doing what then, differs from run to run: the seeds choose the step and the variant, the
system the rest. And a pond that dies again while it recovers, at every step of that.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from pathlib import Path

import pytest

import millpond
from millpond.errors import Backpressure, MillpondError
from millpond.storage import LocalStorage
from millpond.testing import VARIANTS, Crash, FaultyStorage, Variant
from millpond.testing.pond_driver import SCHEMA, make_rows
from millpond.testing.pond_model import PondModel, StreamModel
from tests.faults.pond_workload import SETTINGS, check_and_go_on, crash, driver, fresh

pytestmark = pytest.mark.timeout(1_800)

THREADS = 4
DURABILITIES = {"grid/meters": "disk", "grid/alarms": "os", "notes": "memory"}


@pytest.fixture
def root(quick_path: Path) -> Path:
    fresh(quick_path / "root")
    return quick_path / "root"


def work_until_death(root: Path, storage: FaultyStorage, model: PondModel) -> None:
    """Threads append to all streams, two more settle and merge, until the storage is dead."""
    pond = millpond.open(root / "pond", storage=storage, background=False, **SETTINGS)  # type: ignore[arg-type]
    lock = threading.Lock()
    unexpected: list[BaseException] = []
    try:
        for name, durability in DURABILITIES.items():
            model.streams[name] = StreamModel(name, durability, SCHEMA.names, 3, exists=None)  # type: ignore[arg-type]
            pond.create_stream(name, SCHEMA, keys=["id", "city"], durability=durability, streamlets=3)  # type: ignore[arg-type]
            model.streams[name].exists = True

        def guarded(step: object) -> None:
            assert callable(step)
            try:
                for n in itertools.count():
                    step(n)
            except (Crash, MillpondError) as error:
                if storage.crashed is None:
                    unexpected.append(error)
                    storage.crash()
            except BaseException as error:
                unexpected.append(error)
                storage.crash()

        def appending(thread: int) -> object:
            def step(n: int) -> None:
                name = list(DURABILITIES)[(thread + n) % 3]
                with lock:
                    rows = make_rows(model.new_ids(1 + (n * 5 + thread) % 7), "x" * (n % 5 * 100))
                    attempt = model.streams[name].sending(rows, None, f"p{thread}", n)
                attempt.tries += 1
                try:
                    attempt.acked(pond.stream(name).append(rows, producer=f"p{thread}", sequence=n))
                except Backpressure:
                    attempt.refused()

            return step

        def settling(n: int) -> None:
            name = list(DURABILITIES)[n % 3]
            stream = pond.stream(name)
            with lock:
                known = list(model.streams[name].attempts)
                promised = [attempt for attempt in known if attempt.ranges]
            stream.settle()
            for attempt in promised:
                attempt.safe = True
            if n % 4 == 3:
                stream.archive.compact(least_objects=2)

        threads = [threading.Thread(target=guarded, args=(appending(n),), daemon=True) for n in range(THREADS)]
        threads.append(threading.Thread(target=guarded, args=(settling,), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "a thread hangs"
    except (Crash, MillpondError):
        if storage.crashed is None:
            raise
    finally:
        with contextlib.suppress(Crash, MillpondError):
            pond.close()
    assert not unexpected, unexpected


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.long) for n in range(6, 300))])
def test_a_busy_pond_that_dies_keeps_its_promises(root: Path, seed: int) -> None:
    """I1, I2, I3, E7"""
    rng = random.Random(seed)
    storage, model = FaultyStorage(LocalStorage(), seed, root=root), PondModel()
    storage.crash_at(rng.randrange(20, 400), after=rng.random() < 0.5)
    work_until_death(root, storage, model)
    assert storage.crashed is not None
    if seed % 3 == 0:
        model.killed()
    else:
        variant = VARIANTS[seed % len(VARIANTS)]
        storage.power_cut(variant, seed)
        model.power_cut()
    check_and_go_on(root, model)
    assert storage.disk is not None
    storage.disk.close()


@pytest.mark.parametrize("number", [45, 120, *(pytest.param(n, marks=pytest.mark.long) for n in range(20, 260, 8))])
def test_a_pond_that_dies_again_while_it_recovers_loses_nothing(root: Path, number: int) -> None:
    """I1: at every durable step of the opening, killed or unplugged; what was promised is there in the end."""
    for at in itertools.count(1):
        storage, model = crash(root, number, after=False, seed=at)
        model.killed()
        following = storage.restarted(at)
        following.crash_at(at, after=at % 2 == 0)
        drive = driver(root, following, model)
        with contextlib.suppress(Crash, MillpondError):
            drive.open()
        died = following.crashed is not None
        variant = (None, Variant.STRICT, Variant.MIXED)[at % 3]
        if variant is None:
            following.crash()
        else:
            following.power_cut(variant, at)
            model.power_cut()
        drive.abandon()
        try:
            check_and_go_on(root, model, thorough=False)
        except BaseException as error:
            error.add_note(f"died at step {number}, then at step {at} of the recovery ({following.crashed}), {variant}")
            raise
        assert storage.disk is not None
        storage.disk.close()
        if not died:
            break
    assert at > 4
