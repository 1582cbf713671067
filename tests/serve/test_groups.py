"""Consumer groups, transactions and dead letters over REST, against a real server."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from millpond.serve.matching import match
from millpond.wire.group_requests import RECEIPTS
from tests.serving import Served, serving, wait_until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path: Path = tmp_path_factory.mktemp("groups") / "pond"
    with serving(path) as running:
        yield running
        assert running.stop() == 0
        assert running.complaints() == []


class Rest:
    """A client with a stream of its own."""

    def __init__(self, client: httpx.Client, name: str) -> None:
        self.client, self.name = client, name
        self.stream = f"/v1/streams/{name}"

    def call(self, method: str, path: str, body: Any = None, status: int = 200, **query: Any) -> Any:
        answer = self.client.request(method, path, json=body, params=query)
        assert answer.status_code == status, answer.text
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
        return answer.json() if answer.content else None

    def append(self, count: int, start: int = 0) -> None:
        rows = [{"vid": f"m-{n % 5}", "n": n} for n in range(start, start + count)]
        self.call("POST", f"{self.stream}/records", rows)

    def join(self, group: str = "g", **body: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.call("POST", f"{self.stream}/groups/{group}/members", body, 201)
        return found

    def member(self, member: dict[str, Any], verb: str, status: int = 200, **body: Any) -> Any:
        path = f"{self.stream}/groups/{member['group']}/members/{member['instance']}/{verb}"
        return self.call("POST", path, {"epoch": member["epoch"], **body}, status)

    def poll(self, member: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.member(member, "poll", **body)["deliveries"]
        return found

    def group(self, group: str = "g") -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"{self.stream}/groups/{group}")
        return found


@pytest.fixture
def rest(served: Served) -> Iterator[Rest]:
    with served.client() as client:
        found = Rest(client, f"t/{uuid.uuid4().hex}")
        found.call("PUT", found.stream, {"schema": "vid string, n bigint", "keys": ["vid"]}, 201)
        yield found


def numbers(deliveries: list[dict[str, Any]]) -> list[int]:
    return [record["n"] for delivery in deliveries for record in delivery["records"]]


def done(deliveries: list[dict[str, Any]]) -> list[dict[str, int]]:
    return [{"number": delivery["receipt"]["number"]} for delivery in deliveries]


def test_a_group_is_joined_polled_and_committed(rest: Rest) -> None:
    rest.append(10)
    member = rest.join(instance="one", lease="20s")
    assert (member["stream"], member["group"], member["instance"]) == (rest.name, "g", "one")
    first = rest.poll(member, max_records=4)
    assert numbers(first) == [0, 1, 2, 3]
    assert first[0]["receipt"]["start"] == 0
    assert {"_streamlet", "_offset", "_ingest_time", "vid", "n"} == set(first[0]["records"][0])
    assert rest.member(member, "commit", number=1, done=done(first)) == {
        "number": 1, "committed": True, "duplicate": False, "acks": [],
    }  # fmt: skip
    assert rest.member(member, "commit", number=1, done=done(first))["duplicate"] is True
    status = rest.group()
    assert (status["lag"], status["positions"], status["heads"]) == ({"0": 6}, {"0": 4}, {"0": 10})
    assert [each["instance"] for each in status["members"]] == ["one"]
    assert [each["group"] for each in rest.call("GET", f"{rest.stream}/groups")] == ["g"]
    assert (rest.name, "g") in {(each["stream"], each["group"]) for each in rest.call("GET", "/v1/groups")}


def test_what_is_given_up_or_left_is_handed_out_again(rest: Rest) -> None:
    rest.append(6)
    member = rest.join(instance="one")
    assert numbers(rest.poll(member)) == [0, 1, 2, 3, 4, 5]
    assert rest.member(member, "abort", number=1)["committed"] is False
    assert rest.member(member, "commit", 409, number=1)["code"] == "transaction-over"
    again = rest.poll(member, max_records=2)
    assert numbers(again) == [0, 1]
    path = f"{rest.stream}/groups/g/members/one"
    rest.call("DELETE", path, status=204, epoch=member["epoch"])
    rest.call("DELETE", path, status=204, epoch=member["epoch"])
    assert rest.member(member, "renew", 409)["code"] == "fenced"
    other = rest.join()
    assert other["instance"]
    assert sorted(numbers(rest.poll(other))) == [0, 1, 2, 3, 4, 5]
    assert rest.member(other, "renew", 204) is None


def test_a_delivery_whose_answer_was_lost_is_given_again(rest: Rest) -> None:
    rest.append(3)
    member = rest.join()
    lost = rest.poll(member, after=0)
    assert rest.poll(member, after=0) == lost
    assert rest.poll(member, after=lost[-1]["receipt"]["number"]) == []


def test_deliveries_come_in_three_forms(rest: Rest) -> None:
    rest.append(4)
    member = rest.join()
    path = f"{rest.stream}/groups/g/members/{member['instance']}/poll"
    body = {"epoch": member["epoch"], "max_records": 2}
    lines = rest.client.post(path, json=body, headers={"accept": "application/x-ndjson"})
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert numbers([json.loads(line) for line in lines.text.splitlines()]) == [0, 1]
    arrow = rest.client.post(path, json=body, params={"format": "arrow"})
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.column("n").to_pylist() == [2, 3]
    (receipt,) = json.loads(table.schema.metadata[RECEIPTS])
    assert (receipt["start"], receipt["stop"]) == (2, 4)
    assert rest.client.post(path, json=body, headers={"accept": "text/csv"}).status_code == 406
    empty = rest.client.post(path, json=body, params={"format": "arrow"})
    assert pa.ipc.open_stream(empty.content).read_all().num_rows == 0


def test_a_poll_waits_for_records_and_lets_others_be_served(rest: Rest) -> None:
    member = rest.join()
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.extend(rest.poll(member, wait_seconds=10)))
    waiting.start()
    assert rest.call("GET", "/healthz")["status"] == "ok"
    rest.append(1)
    waiting.join(60)
    assert numbers(found) == [0]


def test_many_polls_wait_without_taking_the_threads_of_calls(served: Served, tmp_path: Path) -> None:
    """A node with one thread for calls answers while others wait for records."""
    with serving(tmp_path / "pond", "--calls-max", "1") as small, small.client() as client:
        rest = Rest(client, "s")
        rest.call("PUT", rest.stream, {"schema": "vid string, n bigint"}, 201)
        members = [rest.join(instance=f"i-{number}") for number in range(3)]
        waiting = [
            threading.Thread(target=rest.poll, args=(member,), kwargs={"wait_seconds": 10}) for member in members
        ]
        for thread in waiting:
            thread.start()
        wait_until(lambda: len(rest.group()["members"]) == 3, "a call is answered meanwhile")
        assert any(thread.is_alive() for thread in waiting)
        rest.append(30)
        for thread in waiting:
            thread.join(60)
        assert small.stop() == 0


def test_members_share_and_zombies_are_refused(rest: Rest) -> None:
    rest.append(40)
    one = rest.join(strategy="hash", by="vid", instance="one")
    two = rest.join(strategy="hash", by="vid", instance="two")
    conflict = rest.call("POST", f"{rest.stream}/groups/g/members", {"strategy": "fifo"}, 409)
    assert conflict["code"] == "group-conflict"
    wait_until(lambda: rest.poll(one) or rest.poll(two), "somebody has something")
    rest.join(strategy="hash", by="vid", instance="one")  # takes the place of the first
    refused = rest.member(one, "poll", 409)
    assert refused["code"] == "fenced"
    assert "another consumer joined as 'one'" in refused["detail"]
    assert refused["fix"]


def test_a_reset_is_previewed_unless_it_is_told_otherwise(rest: Rest) -> None:
    rest.append(8)
    member = rest.join()
    rest.member(member, "commit", number=1, done=done(rest.poll(member)))
    reset = f"{rest.stream}/groups/g/reset"
    plan = rest.call("POST", reset, {"to": "earliest"})
    assert (plan["preview"], plan["again"], plan["after"], plan["expelled"]) == (
        True, 8, {"0": 0}, [member["instance"]],
    )  # fmt: skip
    assert rest.group()["lag"] == {"0": 0}
    assert rest.call("POST", reset, {"to": {"0": 3}}, preview="false")["preview"] is False
    assert rest.group()["lag"] == {"0": 5}
    assert rest.member(member, "poll", 409)["code"] == "fenced"
    assert rest.call("POST", reset, {"to": 9}, 400)["code"] == "invalid-value"
    assert rest.call("POST", reset, {"to": "2026-01-31T00:00:00Z"})["again"] == 3
    nobody = rest.call("POST", f"{rest.stream}/groups/nobody/reset", {"to": 0}, 404)
    assert nobody["code"] == "group-not-found"


def test_a_member_seeks_and_a_group_is_deleted(rest: Rest) -> None:
    rest.append(5)
    member = rest.join()
    rest.poll(member)
    assert rest.member(member, "seek", to=2)["after"] == {"0": 2}
    assert numbers(rest.poll(member)) == [2, 3, 4]
    path = f"{rest.stream}/groups/g"
    assert rest.call("DELETE", path, preview="true")["preview"] is True
    assert rest.call("DELETE", path)["preview"] is False
    assert rest.call("GET", path, status=404)["code"] == "group-not-found"
    assert rest.call("GET", f"{rest.stream}/groups") == []
    assert rest.call("GET", "/v1/streams/no/where/groups", status=404)["code"] == "stream-not-found"


def test_a_transaction_moves_a_group_and_appends_to_several_streams(rest: Rest) -> None:
    rest.append(4)
    for name in ("a", "b"):
        rest.call("PUT", f"{rest.stream}-{name}", {"schema": "vid string, price decimal(10,2), at timestamp"}, 201)
    member = rest.join()
    found = rest.poll(member)
    body = {
        "outputs": [
            {"stream": f"{rest.name}-a", "records": [{"vid": "x", "price": 1.10, "at": "2026-01-31T12:00:00Z"}]},
            {"stream": f"{rest.name}-b", "records": [{"vid": "y"}, {"vid": "z"}]},
        ],
        "commit": {
            "stream": rest.name, "group": "g", "instance": member["instance"], "epoch": member["epoch"],
            "number": 1, "done": done(found),
        },
    }  # fmt: skip
    answer = rest.call("POST", "/v1/transactions", body)
    assert (answer["number"], answer["duplicate"]) == (1, False)
    assert [ack["ranges"] for ack in answer["acks"]] == [
        {"0": {"start": 0, "stop": 1}}, {"0": {"start": 0, "stop": 2}},
    ]  # fmt: skip
    assert rest.call("POST", "/v1/transactions", body)["duplicate"] is True
    assert rest.group()["lag"] == {"0": 0}
    (kept,) = rest.call("GET", f"{rest.stream}-a/records")["records"]
    assert (kept["vid"], kept["price"], kept["at"]) == ("x", "1.10", "2026-01-31T12:00:00.000000Z")
    assert rest.call("GET", f"{rest.stream}-b/count")["count"] == 2


def test_a_transaction_that_does_not_fit_leaves_nothing(rest: Rest) -> None:
    rest.append(2)
    member = rest.join()
    found = rest.poll(member)
    good = {"stream": rest.name, "records": [{"vid": "x", "n": 1}]}
    commit = {
        "stream": rest.name, "group": "g", "instance": member["instance"], "epoch": member["epoch"],
        "number": 1, "done": done(found),
    }  # fmt: skip
    for bad, status, code in (
        ({"stream": rest.name, "records": [{"vid": 5}]}, 422, "invalid-record"),
        ({"stream": "no/where", "records": []}, 404, "stream-not-found"),
        ({"stream": rest.name, "records": "x"}, 422, "invalid-record"),
    ):
        problem = rest.call("POST", "/v1/transactions", {"outputs": [good, bad], "commit": commit}, status)
        assert problem["code"] == code
    assert rest.call("POST", "/v1/transactions", {"outputs": [good], "commit": commit | {"epoch": 10**9}}, 409)[
        "code"
    ] == ("fenced")
    assert rest.call("POST", "/v1/transactions", {}, 400)["code"] == "invalid-input"
    assert rest.call("GET", f"{rest.stream}/count")["count"] == 2
    assert rest.group()["lag"] == {"0": 2}


def test_a_transaction_without_a_member_happens_once_by_its_key(rest: Rest) -> None:
    rest.call("PUT", f"{rest.stream}-a", {"schema": "vid string"}, 201)
    body = {
        "outputs": [
            {"stream": rest.name, "records": [{"vid": "x", "n": 1}]},
            {"stream": f"{rest.name}-a", "records": [{"vid": "y"}]},
        ]
    }
    key = {"idempotency-key": "once"}
    first, second = (rest.client.post("/v1/transactions", json=body, headers=key).json() for _ in range(2))
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["number"] is None
    assert rest.call("GET", f"{rest.stream}/count")["count"] == 1
    assert rest.call("GET", f"{rest.stream}-a/count")["count"] == 1
    rest.call("POST", "/v1/transactions", body)
    assert rest.call("GET", f"{rest.stream}-a/count")["count"] == 2


def test_dead_letters_are_kept_and_sent_back(rest: Rest) -> None:
    assert rest.call("POST", f"{rest.stream}/replay") == {"stream": rest.name, "records": 0, "waiting": 0}
    rest.append(3)
    member = rest.join()
    found = rest.poll(member)
    number = found[0]["receipt"]["number"]
    dead = [{"number": number, "offset": 1, "attempts": 3, "reason": "no such meter"}]
    rest.member(member, "commit", number=1, done=done(found), dead=dead)
    (letter,) = rest.call("GET", f"{rest.stream}/dead/records")["records"]
    assert (letter["group"], letter["offset"], letter["reason"]) == ("g", 1, "no such meter")
    assert rest.group()["dead"] == 1
    assert rest.call("POST", f"{rest.stream}/replay", group="g", limit=5)["records"] == 1
    assert numbers(rest.poll(member)) == [1]


def test_names_in_paths_are_told_from_words() -> None:
    for path, handler, names in (
        ("/v1/streams/a/b/groups/g", "describe_group", ("a/b", "g", "")),
        ("/v1/streams/a/groups/groups", "describe_group", ("a", "groups", "")),
        ("/v1/streams/a%2Fgroups%2Fb/groups/g", "describe_group", ("a/groups/b", "g", "")),
        ("/v1/streams/a/groups/b/c", "describe", ("a/groups/b/c", "", "")),
        ("/v1/streams/a/groups/b%2Fc", "describe_group", ("a", "b/c", "")),
    ):
        found = match("GET", path.encode())
        assert (found.route.handler, (found.name, found.group, found.instance)) == (handler, names)
    found = match("POST", b"/v1/streams/a/groups/reset/members/poll/poll")
    assert (found.route.handler, found.group, found.instance) == ("poll_group", "reset", "poll")


def test_a_stream_that_has_the_name_of_dead_letters_and_no_letters_is_told_apart(rest: Rest) -> None:
    """Anybody may make one: what is in it is refused, and the node does not fail."""
    dead = f"{rest.stream}/dead"
    rest.call("PUT", dead, {"schema": "record binary, n bigint"}, 201)
    rest.call("POST", f"{dead}/records", {"n": 1, "record": "no letter"})
    answer = rest.call("POST", f"{rest.stream}/replay", status=400)
    assert answer["code"] == "invalid-value"
    assert "no dead letter" in answer["detail"]


def test_a_member_with_a_name_that_none_can_have_is_refused(rest: Rest) -> None:
    answer = rest.call("DELETE", f"{rest.stream}/groups/g/members/{'x' * 300}", status=400, epoch=0)
    assert answer["code"] == "invalid-value"
