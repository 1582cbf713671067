"""`millpond token`: made once, shown once, taken back; beside an open pond, and without a word of a secret."""

from __future__ import annotations

import json

import millpond as package
from millpond.pond.tokens import TokenGate
from tests.cli.conftest import Commands


def test_a_token_goes_to_stdout_and_the_talk_to_stderr(pond: Commands) -> None:
    said = pond("token", "create", "meters", "--right", "write", "--prefix", "grid")
    (token,) = said.out.splitlines()
    caller = TokenGate(str(pond.path)).authenticate(token)
    assert caller.name == "meters"
    assert caller.may("write", "grid/meters")
    assert not caller.may("read", "grid/meters")
    assert not caller.may("write", "lab/probes")
    assert token not in said.talk
    assert token.split("_", 2)[2] not in said.talk
    assert "write on grid" in said.talk
    assert "from now on" in said.talk
    assert "from now on" not in pond("token", "create", "second", "--right", "read").talk


def test_as_json_it_is_one_object(pond: Commands) -> None:
    made = pond("token", "create", "ops", "--right", "admin", "--right", "read", "--json").one
    assert made["rights"] == ["read", "admin"]
    assert made["prefixes"] == [""]
    assert made["token"].startswith(f"mp_{made['id']}_")
    assert TokenGate(str(pond.path)).authenticate(made["token"]).may("admin")


def test_the_list_shows_no_secret(pond: Commands) -> None:
    assert "no tokens" in pond("token", "list").talk
    made = pond("token", "create", "ops", "--right", "read", "--json").one
    secret = made["token"].split("_", 2)[2]
    for said in (pond("token", "list"), pond("token", "list", "--json"), pond("token", "list", "--verbose")):
        assert made["id"] in said.out
        assert secret not in said.out + said.talk
    assert pond("token", "list", "--json").one == {key: made[key] for key in made if key != "token"}


def test_a_token_is_revoked_by_name_or_id(pond: Commands) -> None:
    first = pond("token", "create", "a", "--right", "read", "--json").one
    pond("token", "create", "b", "--right", "read")
    assert pond("token", "revoke", first["id"], "--json").one == {"revoked": first["id"], "name": "a", "left": 1}
    said = pond("token", "revoke", "b")
    assert "0 left" in said.talk
    assert "--tokens off" in said.talk
    assert pond("token", "revoke", "b", "--json", code=3).error["code"] == "not-found"


def test_a_whole_token_where_a_name_belongs_is_not_repeated(pond: Commands) -> None:
    token = pond("token", "create", "a", "--right", "read").out.strip()
    said = pond("token", "revoke", token, "--verbose", code=3)
    assert token not in said.talk + said.out


def test_it_works_while_the_pond_is_open(pond: Commands) -> None:
    with package.open(pond.path, background=False):
        pond("token", "create", "a", "--right", "read")
        assert pond("streams", "--json", code=4).error["code"] == "pond-locked"
        assert [json.loads(line)["name"] for line in pond("token", "list", "--json").out.splitlines()] == ["a"]


def test_mistakes_are_told(pond: Commands, millpond: Commands) -> None:
    assert "own" in pond("token", "create", "a", "--right", "own", "--json", code=2).error["message"]
    assert "right" in pond("token", "create", "a", code=2).talk
    assert "two words" in pond("token", "create", "two words", "--right", "read", code=2).talk
    pond("token", "create", "a", "--right", "read")
    assert "'a'" in pond("token", "create", "a", "--right", "read", code=2).talk


def test_no_pond_no_tokens(millpond: Commands) -> None:
    assert "is not a pond" in millpond("token", "create", "a", "--right", "read", code=2).talk
    assert not millpond.path.exists()


def test_every_command_of_it_has_an_example(millpond: Commands) -> None:
    for command in ("create", "list", "revoke"):
        assert f"millpond token {command}" in millpond("token", command, "--help").out.split("Example")[1]
