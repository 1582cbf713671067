"""The command `put` on a served pond, when the answer to a batch is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.cli.exits import Exit
from tests.cli.conftest import Commands
from tests.client.conftest import NUMBERS, SECRET, Served
from tests.client.proxy import Proxy


@pytest.mark.parametrize("producer", [(), ("--producer", "import")])
def test_it_does_not_say_that_nothing_was_kept(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, producer: tuple[str, ...]
) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    submit = stream.submit_batch
    commands = Commands(tmp_path)
    commands.environment["MILLPOND_TOKEN"] = SECRET
    with Proxy(served.port) as proxy:

        def submit_and_lose_the_answer(rows: Any, told: Any, **options: Any) -> object:
            def lose(*answer: Any) -> None:
                proxy.cut()
                told(*answer)

            return submit(rows, lose, **options)

        monkeypatch.setattr(stream, "submit_batch", submit_and_lose_the_answer)
        where = f"grpc://127.0.0.1:{proxy.port}"
        said = commands(
            *("put", "numbers", "--pond", where, *producer), input='{"n": 1}\n{"n": 2}\n', code=Exit.UNAVAILABLE
        )
    assert stream.count() == 2
    assert "the next batch, 2 rows, may or may not have been kept" in said.talk
    assert "--producer" in said.talk
    assert "nothing was kept" not in said.talk
