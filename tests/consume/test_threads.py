"""Many consumers at once, in threads, with the machine's own clock: every record is copied once (C8, C10)."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import Fenced
from tests.consume.conftest import IN, OUT, SCHEMA, rows

RECORDS = 6_000
CONSUMERS = 4


@pytest.mark.parametrize("strategy", ["fifo", "round_robin", "hash"])
def test_records_are_copied_once_while_consumers_come_and_go(tmp_path: Path, strategy: Any) -> None:
    failures: list[BaseException] = []
    copied = threading.Event()

    def copy(pond: Any, number: int) -> None:
        luck = random.Random(number)
        try:
            while not copied.is_set():
                # Now and then one leaves, in good order or without what it had, and another comes.
                with pond.consumer(IN, group="copy", strategy=strategy, by=None) as consumer:
                    for _ in range(luck.randint(1, 8)):
                        run_once(consumer, luck)
        except BaseException as error:
            failures.append(error)
            copied.set()

    def run_once(consumer: Any, luck: random.Random) -> None:
        try:
            with consumer.transaction() as tx:
                for batch in consumer.poll(max_records=luck.choice((10, 100, 400)), timeout="20ms"):
                    tx.append(OUT, batch.select(["key", "n"]))
                if luck.random() < 0.1:
                    raise ZeroDivisionError
        except (ZeroDivisionError, Fenced):
            return

    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.create_stream(IN, SCHEMA, keys=["key"], streamlets=3)
        sink = pond.create_stream(OUT, SCHEMA, durability="os")
        threads = [threading.Thread(target=copy, args=(pond, number)) for number in range(CONSUMERS)]
        for thread in threads:
            thread.start()
        for start in range(0, RECORDS, 500):
            stream.append(rows(start, start + 500))
            if start % 2_000 == 0:
                stream.settle()
                pond.coordinator.compact()
        while not copied.is_set() and pond.group(IN, "copy").status().lag_total:
            pond.log.wait(sink.definition.id, pond.log.heads(sink.definition.id), 0.2)
        copied.set()
        for thread in threads:
            thread.join()
        assert not failures
        found = sink.scan(columns=["key", "n", "_offset"]).sort_by("_offset").to_pylist()
    counts = Counter(row["n"] for row in found)
    assert counts == Counter(range(RECORDS))
    if strategy == "hash":
        for key in {row["key"] for row in found}:
            mine = [row["n"] for row in found if row["key"] == key]
            assert mine == sorted(mine)
