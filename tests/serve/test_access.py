"""Who may do what over REST: every route asks, nobody is let in by default, and no secret ever shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import millpond
from millpond.pond.tokens import TokenGate
from millpond.serve.group_handlers import GROUP_HANDLERS
from millpond.serve.handlers import HANDLERS
from millpond.serve.routes import ROUTES, Route
from millpond.wire.access import RIGHTS
from millpond.wire.requests import CreateToken
from tests.serving import Served, serving

SECRET = "planted-4f1c9b7e"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for tokens, with streams in two places."""
    pond: Path = tmp_path_factory.mktemp("closed") / "pond"
    millpond.open(pond).close()
    boss = TokenGate(str(pond)).create(CreateToken("boss", RIGHTS, ("",))).token
    with serving(pond, "--log-level", "debug", token=boss) as running:
        for name in ("grid/meters", "web/hooks"):
            running.create(name, schema="vid string", keys=["vid"])
        yield running
        assert running.stop() == 0


def token(closed: Served, name: str, rights: tuple[str, ...], *prefixes: str) -> dict[str, str]:
    with closed.client() as boss:
        made = boss.post("/v1/tokens", json={"name": name, "rights": rights, "prefixes": prefixes or ("",)})
        assert made.status_code == 201, made.text
        return {"authorization": f"Bearer {made.json()['token']}"}


def path_of(route: Route, stream: str = "grid/meters") -> str:
    found = route.path.replace("{name}", stream)
    return found.replace("{id}", "nobody").replace("{group}", "nobodys").replace("{instance}", "nobody")


def asked(client: httpx.Client, route: Route, headers: dict[str, str], stream: str = "grid/meters") -> httpx.Response:
    """A request that is right in every way but, perhaps, who sends it. What would change something only looks."""
    query = {"preview": "true"} if route.handler in ("drop", "settle") else {}
    query |= {"key": "x"} if route.handler == "get" else {}
    query |= {"epoch": "1"} if route.handler == "leave_group" else {}
    body = {
        "append": {"vid": "x"},
        "create": {"schema": "vid string"},
        "alter": {"add": "a int"},
        "create_token": {"name": "again"},
        "report_pipeline": {"name": "hourly"},
        "reset_group": {"to": "latest"},
        "join_group": {},
        "seek_group": {"epoch": 1, "to": "latest"},
        "poll_group": {"epoch": 1},
        "renew_member": {"epoch": 1},
        "commit_group": {"epoch": 1, "number": 1},
        "abort_group": {"epoch": 1, "number": 1},
        "transaction": {"outputs": [{"stream": stream, "records": [{"vid": "x"}]}]},
    }
    content = json.dumps(body[route.handler]).encode() if route.handler in body else b""
    headers = headers | {"content-type": "application/json"}
    return client.request(route.method, path_of(route, stream), params=query, content=content, headers=headers)


def test_every_route_has_a_handler() -> None:
    assert {route.handler for route in ROUTES} == {*HANDLERS, *GROUP_HANDLERS}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_asks_who_calls(closed: Served, route: Route) -> None:
    with httpx.Client(base_url=closed.url, trust_env=False) as client:
        for shown in ({}, {"authorization": "Bearer mp_0000000000_nothing"}, {"authorization": "Basic YTpi"}):
            answer = asked(client, route, shown)
            if route.right is None:
                assert answer.status_code == 200
            else:
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert answer.json()["code"] == "unauthenticated"


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.right in RIGHTS], ids=lambda route: f"{route.method} {route.path}"
)
def test_every_route_takes_the_right_that_it_names(closed: Served, route: Route) -> None:
    """All rights but the one; the one on another prefix; and the one itself."""
    assert route.right is not None
    label = f"{route.method}-{route.handler}"
    others = tuple(right for right in RIGHTS if right != route.right)
    lacking = token(closed, f"lacking-{label}", others)
    elsewhere = token(closed, f"elsewhere-{label}", RIGHTS, "web")
    having = token(closed, f"having-{label}", (route.right,), *(["grid"] if route.of_stream else []))
    with httpx.Client(base_url=closed.url, trust_env=False) as client:
        for headers in (lacking, elsewhere):
            answer = asked(client, route, headers)
            assert answer.status_code == 403, answer.text
            assert answer.json()["code"] == "forbidden"
        answer = asked(client, route, having)
        # There is no such token, group or member: whoever is told that was let in.
        known = (404, 409) if {"{id}", "{group}"} & set(route.path.split("/")) else ()
        # Nor has the stream places or a layout.
        known += (400,) if route.handler in ("draw_map", "analyse", "relayout") else ()
        assert answer.status_code in (200, 201, 204, *known), answer.text


def test_a_list_shows_only_what_a_caller_may_see(closed: Served) -> None:
    headers = token(closed, "grid-only", ("read",), "grid")
    with httpx.Client(base_url=closed.url, trust_env=False, headers=headers) as client:
        assert [stream["name"] for stream in client.get("/v1/streams").json()] == ["grid/meters"]
        about = client.get("/v1").json()
        assert (about["caller"], about["grants"]) == ("grid-only", [["grid", ["read"]]])


def test_a_revoked_token_is_refused_within_a_second(closed: Served) -> None:
    headers = token(closed, "short-lived", ("read",))
    with closed.client() as boss, httpx.Client(base_url=closed.url, trust_env=False, headers=headers) as client:
        assert client.get("/v1").status_code == 200
        assert boss.delete("/v1/tokens/short-lived").status_code == 200
        assert client.get("/v1").status_code == 401


def test_tokens_are_made_listed_and_revoked_over_rest(closed: Served) -> None:
    with closed.client() as boss:
        made = boss.post("/v1/tokens", json={"name": "sensor", "rights": ["write"], "prefixes": ["grid"]})
        assert made.status_code == 201
        secret = made.json()["token"]
        listed = boss.get("/v1/tokens")
        assert "sensor" in [each["name"] for each in listed.json()]
        assert secret_part(secret) not in listed.text
        with httpx.Client(base_url=closed.url, trust_env=False, headers={"authorization": f"Bearer {secret}"}) as it:
            assert it.post("/v1/streams/grid/meters/records", json={"vid": "s"}).status_code == 200
            assert it.get("/v1/streams/grid/meters/records").status_code == 403
        assert boss.delete(f"/v1/tokens/{made.json()['info']['id']}").status_code == 200
        assert boss.delete("/v1/tokens/sensor").status_code == 404


def secret_part(token: str) -> str:
    """Of `mp_<id>_<secret>`: the secret may have underscores of its own."""
    return token.split("_", 2)[2]


def test_a_secret_shows_nowhere(closed: Served) -> None:
    """A planted secret is sent in every place where one might be: no answer, log line or metric has it."""
    running = closed
    said: list[str] = []
    shown = [
        {"authorization": f"Bearer {SECRET}"},
        {"authorization": f"Bearer mp_0123456789_{SECRET}"},
        {"authorization": SECRET},
        {"cookie": f"token={SECRET}"},
        {"proxy-authorization": f"Bearer {SECRET}"},
    ]
    with httpx.Client(base_url=running.url, trust_env=False) as client, running.client() as boss:
        for headers in shown:
            for route in ROUTES:
                answer = asked(client, route, headers)
                said.append(answer.text + str(answer.headers))
        boss.put("/v1/streams/web/raw", json={})
        boss.post("/v1/streams/web/raw/records", content=b"x", headers={"cookie": SECRET, "x-fine": "yes"})
        said.append(boss.get("/v1/streams/web/raw/records").text)
        assert "x-fine" in said[-1]
        said.append(boss.get("/metrics").text)
        said.append(boss.get("/v1/status").text)
    everything = "\n".join([*said, *running.log])
    assert len(running.log) > 10
    for secret in (SECRET, running.token or "", secret_part(running.token or "")):
        assert secret
        assert secret not in everything


def test_a_transaction_takes_the_right_on_every_stream_it_touches(closed: Served) -> None:
    outputs = [{"stream": name, "records": [{"vid": "x"}]} for name in ("grid/meters", "web/hooks")]
    one, none = token(closed, "one", ("read", "write"), "grid"), token(closed, "none", ("read", "admin"))
    reader = token(closed, "writer-of-all", ("write",))
    with httpx.Client(base_url=closed.url, trust_env=False) as client:

        def ask(headers: dict[str, str], **body: object) -> httpx.Response:
            return client.post("/v1/transactions", json=body, headers=headers)

        before = client.get("/v1/streams/grid/meters/count", headers=one).json()["count"]
        assert ask(one, outputs=outputs).status_code == 403
        assert ask(none, outputs=outputs[:1]).status_code == 403
        member = {"stream": "grid/meters", "group": "g", "instance": "i", "epoch": 1, "number": 1}
        assert ask(reader, outputs=outputs, commit=member).status_code == 403
        assert client.get("/v1/streams/grid/meters/count", headers=one).json()["count"] == before
        assert ask(reader, outputs=outputs).status_code == 200
        assert client.get("/v1/streams/grid/meters/count", headers=one).json()["count"] == before + 1


def test_the_list_of_groups_shows_only_what_a_caller_may_read(closed: Served) -> None:
    for_grid, for_web = token(closed, "grid-groups", ("read",), "grid"), token(closed, "web-groups", ("read",), "web")
    with httpx.Client(base_url=closed.url, trust_env=False) as client:
        made = client.post("/v1/streams/grid/meters/groups/seen/members", json={}, headers=for_grid)
        assert made.status_code == 201
        assert "seen" in [each["group"] for each in client.get("/v1/groups", headers=for_grid).json()]
        assert client.get("/v1/groups", headers=for_web).json() == []
