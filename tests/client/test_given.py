"""What callers give is taken or refused by a connected stream as by an embedded one, and never by a library's error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from millpond.errors import InvalidInput, InvalidValue
from tests.client.conftest import NUMBERS, Served

TAKEN: dict[str, Callable[[Any], Any]] = {
    "limit of a read": lambda stream: sum(batch.num_rows for batch in stream.read(limit=np.int64(2))),
    "limit of a scan": lambda stream: stream.scan(limit=np.int32(2)).num_rows,
    "no limit to speak of": lambda stream: stream.scan(limit=2**63 - 1).num_rows,
    "rows of a batch": lambda stream: [batch.num_rows for batch in stream.read(batch_rows=np.int64(2))],
    "a streamlet": lambda stream: sum(batch.num_rows for batch in stream.read({np.int64(0): 1})),
    "a sequence": lambda stream: stream.append({"n": 9}, producer="p", sequence=np.int64(1)).ranges[0].start,
}
REFUSED: dict[str, Callable[[Any], Any]] = {
    "a streamlet as text": lambda stream: stream.read({"0": 3}),
    "an offset of numpy's": lambda stream: stream.read({0: np.int64(1)}),
    "an offset as text": lambda stream: stream.read({0: "1"}),
    "an offset beyond all": lambda stream: stream.read({0: 2**70}),
    "a start of numpy's": lambda stream: stream.read(np.int64(1)),
    "a start beyond all": lambda stream: stream.read(2**70),
    "a sequence below 0": lambda stream: stream.append({"n": 9}, producer="p", sequence=-1),
    "a sequence beyond all": lambda stream: stream.append({"n": 9}, producer="p", sequence=2**70),
    "a sequence as text": lambda stream: stream.append({"n": 9}, producer="p", sequence="1"),
    "a column without a name": lambda stream: stream.scan(columns=[""]),
    "a column of no kind": lambda stream: stream.read(columns=["x" * 300]),
    "a limit below 0": lambda stream: stream.scan(limit=np.int64(-1)),
}


@pytest.mark.parametrize("what", TAKEN)
def test_both_take(served: Served, what: str) -> None:
    streams = [served.pond.create_stream(name, NUMBERS) for name in ("here", "there")]
    for stream in streams:
        stream.append([{"n": n} for n in range(3)])
    assert TAKEN[what](served.connect().stream("there")) == TAKEN[what](streams[0])


@pytest.mark.parametrize("what", REFUSED)
def test_both_refuse(served: Served, what: str) -> None:
    embedded = served.pond.create_stream("numbers", NUMBERS)
    embedded.append([{"n": n} for n in range(3)])
    for stream in (embedded, served.connect().stream("numbers")):
        with pytest.raises(InvalidValue):
            REFUSED[what](stream)
    assert embedded.count() == 3


@pytest.mark.parametrize(
    "use",
    [
        lambda stream: stream.scan("text = '\ud800'"),
        lambda stream: stream.count("text = '\ud800'"),
        lambda stream: stream.scan(columns=["\ud800"]),
        lambda stream: stream.read("\ud800"),
        lambda stream: stream.read("\ud800", follow=True),
        lambda stream: stream.append({"n": 9}, producer="\ud800", sequence=1),
        lambda stream: list(stream.read_segment("\ud800")),
    ],
)
def test_half_a_character_is_refused_by_our_own_words(served: Served, use: Callable[[Any], Any]) -> None:
    served.pond.create_stream("numbers", NUMBERS).append({"n": 1})
    with pytest.raises(InvalidInput):
        use(served.connect().stream("numbers"))
