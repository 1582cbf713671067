"""Work on the archive that takes long, when its pond is closed: no change comes after the close."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import PondClosed
from millpond.pond.upkeep import Upkeep
from tests.pond.test_relayout import LAYOUT, PLACES, places


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pond"


def settled(pond: millpond.Pond) -> millpond.Stream:
    stream = pond.create_stream("grid/places", PLACES)
    for seed in range(3):
        stream.append(places(200, seed))
        stream.settle()
    return pond.alter_stream("grid/places", layout=LAYOUT)


def test_a_closed_pond_is_left_alone(path: Path) -> None:
    with millpond.open(path, background=False) as pond:
        stream = settled(pond)
        ticket = stream.bulk.begin_load("job")
        assert ticket is not None
    work: dict[str, Callable[[], Any]] = {
        "relayout": lambda: stream.relayout(object_bytes_min="0B"),
        "rebuild": lambda: stream.rebuild_indexes(everything=True),
        "vacuum": stream.vacuum,
        "preview": lambda: stream.vacuum(preview=True),
        "analyse": stream.analyse,
        "load": lambda: stream.bulk.begin_load("job"),
        "commit": lambda: stream.bulk.commit_load(ticket.load, pa.table({})),
    }
    with millpond.open(path, background=False) as pond:
        version = pond.stream("grid/places").status().version
        for call in work.values():
            with pytest.raises(PondClosed, match="is closed"):
                call()
        assert pond.stream("grid/places").snapshot().settled.version == version


@pytest.mark.parametrize("work", ["relayout", "rebuild"])
def test_a_close_gives_up_what_is_under_way(path: Path, work: str) -> None:
    """The close comes when the first step is done; there is no second."""
    pond = millpond.open(path, background=False)
    stream = pond.create_stream("grid/places", PLACES, layout=LAYOUT)
    stream.append(places(200))
    stream.settle()
    stream.append(places(200, 1))
    stream.settle()
    before = stream.status().version

    if work == "relayout":
        units = stream.relayouting.rewrite

        def rewrite(ticket: Any, planned: Any) -> Any:
            for unit, reports in units(ticket, planned):
                pond.close()
                yield unit, reports

        stream.relayouting.rewrite = rewrite  # type: ignore[method-assign]
        with pytest.raises(PondClosed):
            stream.relayout(object_bytes_min="0B")
        steps = 0
    else:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("millpond.archive.reindex._COMMIT_OBJECTS", 1)
            with pytest.raises(PondClosed):
                stream.rebuild_indexes(everything=True, progress=lambda done, total: pond.close())
        steps = 1
    with millpond.open(path, background=False) as again:
        assert again.stream("grid/places").status().version == before + steps
        assert not again.verify().findings


def test_a_close_waits_for_the_step_under_way() -> None:
    upkeep, inside, go_on = Upkeep("p"), threading.Event(), threading.Event()
    seen: list[str] = []

    def step() -> None:
        with upkeep.step():
            inside.set()
            go_on.wait(30)
            seen.append("step")

    def close() -> None:
        upkeep.close()
        seen.append("closed")

    threads = [threading.Thread(target=step), threading.Thread(target=close)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    while True:  # until the close has begun: it lets no other step in
        try:
            with upkeep.step():
                pass
        except PondClosed:
            break
    assert seen == []
    go_on.set()
    for thread in threads:
        thread.join()
    assert seen == ["step", "closed"]
