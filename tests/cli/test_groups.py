"""Consumer groups on the command line: groups, group reset, group delete, consume, replay."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

import millpond as library
from tests.cli.conftest import Commands, readings, rows


@pytest.fixture
def filled(pond: Commands) -> Commands:
    """A pond whose stream `grid/meters` has a hundred records."""
    pond("put", "grid/meters", input=readings(100))
    return pond


def test_what_is_consumed_is_written_once(filled: Commands) -> None:
    first = filled("consume", "grid/meters", "--group", "billing", "--limit", "30")
    second = filled("consume", "grid/meters", "--group", "billing", "--wait", "0s")
    assert len(first.several) == 30
    assert "30 records of grid/meters for billing" in first.talk
    found = rows(first, ["_streamlet", "_offset"]) + rows(second, ["_streamlet", "_offset"])
    assert len(found) == len(set(found)) == 100
    assert filled("consume", "grid/meters", "--group", "billing", "--wait", "0s").out == ""
    assert len(filled("consume", "grid/meters", "--group", "other", "--wait", "0s").several) == 100


def test_consumed_records_have_a_form(filled: Commands) -> None:
    said = filled("consume", "grid/meters", "--group", "g", "--limit", "2", "--format", "csv")
    assert said.out.splitlines()[0].startswith('"vid","city"')
    assert len(said.out.splitlines()) == 3
    assert filled("consume", "grid/meters", "--group", "g", "--format", "table", "--json", code=2).error["code"] == (
        "invalid-value"
    )


def test_consumers_start_where_they_are_told_and_share_as_they_are_told(filled: Commands) -> None:
    assert filled("consume", "grid/meters", "--group", "late", "--from", "latest", "--wait", "0s").out == ""
    dealt = filled(
        *("consume", "grid/meters", "--group", "towns", "--strategy", "hash", "--by", "city", "--wait", "0s")
    )
    assert len(dealt.several) == 100
    conflict = filled("consume", "grid/meters", "--group", "towns", "--json", code=2).error
    assert conflict["code"] == "group-conflict"
    wrong = filled("consume", "grid/meters", "--group", "x", "--strategy", "luck", "--json", code=2).error
    assert wrong["code"] == "invalid-value"
    assert filled("consume", "nothing", "--group", "x", "--json", code=3).error["code"] == "stream-not-found"


def test_what_nobody_took_is_not_committed(pond: Commands) -> None:
    """A reader that leaves in the middle of a batch, which is larger than a pipe holds."""
    pond("put", "grid/meters", input=readings(20_000))
    running = pond.start("consume", "grid/meters", "--group", "pipe", stdin=subprocess.DEVNULL, bufsize=0)
    assert running.stdout is not None
    assert running.stdout.read(1) == b"{"
    running.stdout.close()
    assert running.wait(60) == 0
    assert running.stderr is not None
    running.stderr.close()
    assert pond("groups", "grid/meters", "--json").one["lag_total"] == 20_000


def test_ctrl_c_ends_a_consumer_that_follows(filled: Commands) -> None:
    running = filled.start("consume", "grid/meters", "--group", "follow", "--follow")
    assert running.stdout is not None
    lines = [running.stdout.readline() for _ in range(100)]
    running.send_signal(signal.SIGINT)
    assert running.wait(60) in (0, 130)
    for pipe in (running.stdin, running.stdout, running.stderr):
        assert pipe is not None
        pipe.close()
    assert len({(json.loads(line)["_streamlet"], json.loads(line)["_offset"]) for line in lines}) == 100


def test_groups_are_listed_with_their_lag(filled: Commands) -> None:
    assert "no consumer groups yet" in filled("groups").talk
    filled("consume", "grid/meters", "--group", "billing", "--limit", "30")
    (group,) = filled("groups", "--json").several
    assert (group["stream"], group["group"], group["strategy"]) == ("grid/meters", "billing", "fifo")
    assert (group["lag_total"], group["members"]) == (70, [])
    assert sum(group["positions"].values()) == 30
    text = filled("groups", "grid/meters").out
    assert "billing" in text
    assert " 70 " in text
    assert filled("groups", "nothing", "--json", code=3).error["code"] == "stream-not-found"


def test_a_reset_says_first_what_it_will_do(filled: Commands) -> None:
    filled("consume", "grid/meters", "--group", "billing", "--wait", "0s")
    plan = filled("group", "reset", "grid/meters", "billing", "--to", "earliest", "--preview", "--json").one
    assert (plan["preview"], plan["again"], plan["skipped"]) == (True, 100, 0)
    text = filled("group", "reset", "grid/meters", "billing", "--to", "earliest", "--preview").out
    assert "would go to 0:0,1:0" in text
    assert "100 records would be processed again" in text
    refused = filled("group", "reset", "grid/meters", "billing", "--to", "earliest", input="n\n", code=2)
    assert "100 records would be processed again" in refused.talk
    assert filled("groups", "--json").one["lag_total"] == 0
    done = filled("group", "reset", "grid/meters", "billing", "--to", "0:3,1:5", "--yes", "--json").one
    assert (done["preview"], done["after"]) == (False, {"0": 3, "1": 5})
    assert filled("groups", "--json").one["positions"] == {"0": 3, "1": 5}
    asked = filled("group", "reset", "grid/meters", "billing", "--to", "latest", input="y\n")
    assert "92 records to be skipped" in asked.out
    assert (
        "which is where it stands"
        in filled("group", "reset", "grid/meters", "billing", "--to", "latest", "--preview").out
    )


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        (("billing", "--to", "0:1000,1:0", "--yes"), 2, "invalid-value"),
        (("billing", "--to", "yesterday", "--yes"), 2, "invalid-value"),
        (("billing", "--to", "latest", "--yes", "--preview"), 2, "invalid-value"),
        (("nobody", "--to", "latest", "--yes"), 3, "group-not-found"),
    ],
)
def test_a_reset_to_nowhere_is_refused(filled: Commands, words: tuple[str, ...], code: int, name: str) -> None:
    filled("consume", "grid/meters", "--group", "billing", "--limit", "1")
    assert filled("group", "reset", "grid/meters", *words, "--json", code=code).error["code"] == name


def test_a_group_is_deleted(filled: Commands) -> None:
    filled("consume", "grid/meters", "--group", "billing", "--limit", "30")
    assert "forgets group billing" in filled("group", "delete", "grid/meters", "billing", "--preview").out
    assert len(filled("groups", "--json").several) == 1
    assert filled("group", "delete", "grid/meters", "billing", "--yes", "--json").one["preview"] is False
    assert filled("groups", "--json").several == []
    assert len(filled("consume", "grid/meters", "--group", "billing", "--wait", "0s").several) == 100


def test_dead_letters_are_sent_back_once(filled: Commands) -> None:
    assert filled("replay", "grid/meters", "--json").one == {"stream": "grid/meters", "records": 0, "waiting": 0}
    with library.open(filled.path) as pond, pond.consumer("grid/meters", group="billing") as consumer:

        def bill(batch: object) -> None:
            if any(vid == "m-3" for vid in batch.column("vid").to_pylist()):  # type: ignore[attr-defined]
                raise ValueError("no such meter")

        consumer.process(bill, attempts=1, timeout="0s")
    letters = filled("cat", "grid/meters/dead", "--columns", "reason,text").several
    assert len(letters) == 10
    assert all("no such meter" in letter["reason"] for letter in letters)
    assert filled("groups", "grid/meters", "--json").one["dead"] == 10
    assert filled("replay", "grid/meters", "--limit", "4", "--json").one["waiting"] == 6
    assert "6 records sent back to grid/meters, 0 are waiting" in filled("replay", "grid/meters").out
    assert len(filled("cat", "grid/meters").several) == 110


def test_help_has_examples() -> None:
    for words in (["consume"], ["groups"], ["replay"], ["group", "reset"], ["group", "delete"]):
        done = subprocess.run(
            [sys.executable, "-m", "millpond", *words, "--help"], capture_output=True, text=True, check=True
        )
        assert f"millpond {' '.join(words)}" in done.stdout.partition("Example")[2]
