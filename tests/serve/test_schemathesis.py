"""Everything that the OpenAPI document allows, and more, asked of a real server: no 5xx, no undocumented answer.

All checks and all phases of schemathesis; `schemathesis.toml` says which refusals are right, and why. The first run
asks about any stream, and drops those that are there; the second knows one stream, and shows a token.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.conftest import fill
from tests.serving import Served, serving

CONFIG = Path(__file__).parent / "schemathesis.toml"
SEED = 1
# How long an answer may take. None takes a second; the machine may be busy.
ANSWER_SECONDS = 30
# A stream of raw events takes any bytes; whoever asks finds such a stream, or makes one.
ASKED_OF_ANY_STREAM = """
[[operations]]
include-operation-id = "append"
checks.negative_data_rejection.expected-statuses = ["2xx", "400", "404", "406", "409", "415", "422"]
"""
ASKED_OF_ONE_STREAM = """
[[operations]]
include-path-regex = "^/v1/streams/"
parameters = {{ "path.name" = "{name}", "path.group" = "asked", "path.instance" = "asker" }}
"""


def ask(served: Served, scratch: Path, examples: int, seed: int, *options: str, config: str = "") -> None:
    """Run schemathesis against a server; its report is what is shown if anything is wrong."""
    settings = scratch / "schemathesis.toml"
    settings.write_text(CONFIG.read_text() + config)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run"]
    command += [f"{served.url}/openapi.json", "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"]
    command += ["--max-examples", str(examples), "--seed", str(seed), "--request-timeout", str(ANSWER_SECONDS)]
    done = subprocess.run([*command, "--no-color", *options], cwd=scratch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert served.stop() == 0
    assert served.complaints() == []


def ask_about_anything(scratch: Path, examples: int, seed: int) -> None:
    with serving(scratch / "pond", "--tokens", "off") as served:
        fill(served)
        ask(served, scratch, examples, seed, config=ASKED_OF_ANY_STREAM)


def ask_with_a_token(scratch: Path, examples: int, seed: int) -> None:
    with serving(scratch / "pond", "--tokens", "auto") as served:
        rights = {"name": "asker", "rights": ["read", "write", "admin"]}
        with served.client() as client:
            served.token = client.post("/v1/tokens", json=rights).raise_for_status().json()["token"]
        fill(served)
        # A member whose epoch is the first: a number that whoever asks tries as well.
        with served.client() as client:
            joined = client.post(
                "/v1/streams/grid/meters/groups/asked/members", json={"instance": "asker", "lease": "1h"}
            )
            assert joined.raise_for_status().json()["epoch"] == 1
        # Whoever asks would drop the stream, end the group, and take back the token it shows: the other run does.
        gone = ("drop", "truncate", "revoke_token", "delete_group", "leave_group", "join_group", "reset_group")
        spared = [word for each in gone for word in ("--exclude-operation-id", each)]
        header = ["-H", f"Authorization: Bearer {served.token}"]
        ask(served, scratch, examples, seed, *spared, *header, config=ASKED_OF_ONE_STREAM.format(name="grid/meters"))


@pytest.mark.timeout(600)
def test_every_answer_is_as_the_document_says(tmp_path: Path) -> None:
    ask_about_anything(tmp_path, examples=40, seed=SEED)


@pytest.mark.timeout(600)
def test_every_answer_to_a_holder_of_a_token_is_as_the_document_says(tmp_path: Path) -> None:
    ask_with_a_token(tmp_path, examples=30, seed=SEED)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(2, 6))
def test_very_many_answers_are_as_the_document_says(tmp_path: Path, seed: int) -> None:
    for number, run in enumerate((ask_about_anything, ask_with_a_token)):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        run(scratch, examples=1_000, seed=seed)
