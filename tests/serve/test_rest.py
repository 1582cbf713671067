"""The REST door: streams, records in and out in every form, places, previews, and one shape for errors."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.serving import Served

ARROW = "application/vnd.apache.arrow.stream"
ROWS = [{"vid": "a", "city": "Nice", "temp": 1.5}, {"vid": "b", "city": "Ulm", "temp": None}]


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as asking:
        yield asking


@pytest.fixture
def stream(client: httpx.Client) -> str:
    """The path of a stream of the test's own."""
    path = f"/v1/streams/test/{uuid.uuid4().hex}/meters"
    made = client.put(path, json={"schema": "vid string not null, city string, temp double", "keys": ["vid", "city"]})
    assert made.status_code == 201
    return path


@pytest.fixture
def raw(client: httpx.Client) -> str:
    path = f"/v1/streams/test/{uuid.uuid4().hex}/events"
    assert client.put(path, json={}).status_code == 201
    return path


def read(client: httpx.Client, stream: str, **query: Any) -> list[dict[str, Any]]:
    found = client.get(f"{stream}/records", params=query)
    assert found.status_code == 200, found.text
    records: list[dict[str, Any]] = found.json()["records"]
    return records


def plain(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if not name.startswith("_")} for record in records]


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert set(found) == {"type", "title", "status", "detail", "code", "fix"}
    assert (found["status"], found["code"], found["type"]) == (status, code, f"urn:millpond:error:{code}")
    assert found["detail"]
    assert found["fix"]
    return found


# Streams.


def test_a_stream_is_created_described_altered_and_dropped(client: httpx.Client, stream: str) -> None:
    name = stream.removeprefix("/v1/streams/")
    described = client.get(stream).json()
    assert (described["name"], described["schema"]) == (name, "vid string NOT NULL, city string, temp double")
    assert described["keys"] == ["vid", "city"]
    assert name in [each["name"] for each in client.get("/v1/streams").json()]
    altered = client.patch(stream, json={"add": "humidity double"})
    assert altered.json()["schema"].endswith("temp double, humidity double")
    client.post(f"{stream}/records", json=ROWS)
    planned = client.delete(stream, params={"preview": "true"}).json()
    assert (planned["rows_live"], planned["done"]) == (2, False)
    assert client.get(stream).status_code == 200
    assert client.delete(stream).json()["done"] is True
    problem(client.get(stream), 404, "stream-not-found")


def test_how_long_records_are_kept_is_altered(client: httpx.Client, stream: str) -> None:
    assert client.get(stream).json()["ttl_seconds"] is None
    assert client.patch(stream, json={"ttl": "30d"}).json()["ttl_seconds"] == 30 * 86_400
    both = client.patch(stream, json={"add": "humidity double", "ttl": "1us"}).json()
    assert (both["ttl_seconds"], both["schema"].endswith("humidity double")) == (1e-06, True)
    client.post(f"{stream}/records", json=ROWS)
    assert client.get(f"{stream}/count").json() == {"count": 0}
    assert client.patch(stream, json={"add": "wind double"}).json()["ttl_seconds"] == 1e-06, "as it was"
    assert client.patch(stream, json={"ttl": None}).json()["ttl_seconds"] is None
    problem(client.patch(stream, json={"ttl": "0s"}), 400, "invalid-value")
    problem(client.patch(stream, json={}), 400, "invalid-value")


def test_a_stream_leaves_out_what_its_filter_does_not_let_through(client: httpx.Client) -> None:
    where = "/v1/streams/sieved"
    made = client.put(where, json={"schema": "vid string, temp double", "keep": "temp > 0", "only": ["vid"]})
    assert (made.json()["keep"], made.json()["schema"]) == ("temp > 0", "vid string")
    one = client.post(f"{where}/records", json={"vid": "a", "temp": -1}).json()
    assert one == {"ranges": {}, "durability": "disk", "duplicate": False, "filtered": 1}
    kept = client.post(f"{where}/records", json={"vid": "b", "temp": 1}).json()
    assert kept == {"ranges": {"0": {"start": 0, "stop": 1}}, "durability": "disk", "duplicate": False, "filtered": 0}
    lines = b'{"vid": "c", "temp": 2}\n{"vid": "d", "temp": -2}\n'
    told = client.post(f"{where}/records", content=lines, headers={"content-type": "application/x-ndjson"}).json()
    assert (told["ranges"], told["filtered"]) == ({"0": {"start": 1, "stop": 2}}, 1)
    told = client.post(
        f"{where}/records", content=b"vid,temp\ne,3\nf,-3\n", headers={"content-type": "text/csv"}
    ).json()
    assert told["filtered"] == 1
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"vid": "g", "temp": -4}}
    media = {"content-type": "application/cloudevents+json"}
    assert client.post(f"{where}/records", content=json.dumps(event), headers=media).json()["filtered"] == 1
    assert [row["vid"] for row in read(client, where)] == ["b", "c", "e"]
    problem(
        client.put("/v1/streams/other", json={"schema": "vid string", "keep": "temp > 0"}), 400, "invalid-predicate"
    )


def test_creating_again_is_the_same_stream_or_a_conflict(client: httpx.Client, stream: str) -> None:
    again = client.put(stream, json={"schema": "vid string not null, city string, temp double"})
    assert again.status_code == 200
    found = problem(client.put(stream, json={"schema": "vid bigint"}), 409, "stream-exists")
    assert "vid" in found["detail"]


def test_a_name_that_ends_in_a_verb_is_written_with_an_escaped_slash(client: httpx.Client) -> None:
    assert client.put("/v1/streams/odd%2Frecords", json={}).status_code == 201
    assert client.get("/v1/streams/odd%2Frecords").json()["name"] == "odd/records"
    assert client.post("/v1/streams/odd%2Frecords/records", content=b"x").status_code == 200
    assert len(read(client, "/v1/streams/odd%2Frecords")) == 1
    problem(client.get("/v1/streams/odd/records"), 404, "stream-not-found")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"schema": "vid strange"}, "invalid-schema"),
        ({"schema": [{"name": "a", "type": "int"}], "keys": ["b"]}, "invalid-schema"),
        ({"schema": "a int", "streamlets": 0}, "invalid-input"),
        ({"schema": "a int", "settle": {"every": "soon"}}, "invalid-value"),
        ({"shema": "a int"}, "invalid-input"),
        ([], "invalid-input"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(client: httpx.Client, body: Any, code: str) -> None:
    problem(client.put("/v1/streams/test/impossible", json=body), 400, code)
    assert client.get("/v1/streams/test/impossible").status_code == 404


# Records in.


def arrow_stream(rows: list[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/json", json.dumps(ROWS).encode()),
        ("application/json; charset=utf-8", json.dumps(ROWS).encode()),
        ("application/x-ndjson", b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)),
        ("application/jsonl", b"\n".join(json.dumps(row).encode() for row in ROWS)),
        ("text/csv", b"vid,city,temp\na,Nice,1.5\nb,Ulm,\n"),
        (ARROW, arrow_stream(ROWS)),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_records_come_in_every_form(client: httpx.Client, stream: str, media: str, body: bytes, zipped: bool) -> None:
    headers = {"content-type": media} | ({"content-encoding": "gzip"} if zipped else {})
    answer = client.post(f"{stream}/records", content=gzip.compress(body) if zipped else body, headers=headers)
    assert answer.status_code == 200, answer.text
    told = {"ranges": {"0": {"start": 0, "stop": 2}}, "durability": "disk", "duplicate": False, "filtered": 0}
    assert answer.json() == told
    assert plain(read(client, stream)) == ROWS


def test_single_objects_are_acknowledged_one_by_one(client: httpx.Client, stream: str) -> None:
    acks = [client.post(f"{stream}/records", json=row).json() for row in ROWS]
    assert [ack["ranges"]["0"]["start"] for ack in acks] == [0, 1]
    assert plain(read(client, stream)) == ROWS


@pytest.mark.parametrize(
    ("media", "body", "status", "code"),
    [
        ("application/json", b'{"vid": 7}', 422, "invalid-record"),
        ("application/json", b'{"city": "Nice"}', 422, "invalid-record"),
        ("application/json", b'{"vid": "a", "what": 1}', 422, "invalid-record"),
        ("application/json", b'{"vid": "a"', 422, "invalid-record"),
        ("application/json", b"", 422, "invalid-record"),
        ("application/json", b'[{"vid": "a"}, {"vid": null}]', 422, "invalid-record"),
        ("application/x-ndjson", b'{"vid": "a"}\n{"vid": "b", "temp": "warm"}\n', 422, "invalid-record"),
        ("text/csv", b"vid,what\na,b\n", 422, "invalid-record"),
        (ARROW, b"\xff\xff\xff\xffnot arrow", 422, "invalid-record"),
        ("application/pdf", b"%PDF", 415, "unsupported-media-type"),
        ("application/json", b'{"vid": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", 413, "too-large"),
    ],
)
def test_what_does_not_fit_is_refused_whole(
    client: httpx.Client, stream: str, media: str, body: bytes, status: int, code: str
) -> None:
    problem(client.post(f"{stream}/records", content=body, headers={"content-type": media}), status, code)
    assert read(client, stream) == []


def test_a_broken_row_is_named_by_its_line(client: httpx.Client, stream: str) -> None:
    body = b'{"vid": "a"}\n{"vid": "b", "temp": "warm"}\n'
    answer = client.post(f"{stream}/records", content=body, headers={"content-type": "application/x-ndjson"})
    detail = answer.json()["detail"]
    assert "line 2" in detail
    assert "temp" in detail
    assert "warm" in detail


def test_a_raw_stream_takes_any_body_with_its_headers(client: httpx.Client, raw: str) -> None:
    headers = {"content-type": "application/json", "x-github-event": "push", "authorization": "Bearer mp_no_no"}
    assert client.post(f"{raw}/records", content=b'{"a": 1}', headers=headers).status_code == 200
    assert client.post(f"{raw}/records", content=b"\xff\x00", headers={"content-type": "image/png"}).status_code == 200
    first, second = read(client, raw)
    assert first["body"] == '{"a": 1}'
    assert first["headers"]["x-github-event"] == "push"
    assert first["headers"]["content-type"] == "application/json"
    assert not {"authorization", "host", "content-length"} & set(first["headers"])
    assert "body" not in second
    assert second["body_base64"] == "/wA="


def test_a_key_makes_a_retry_safe(client: httpx.Client, stream: str) -> None:
    headers = {"idempotency-key": "order-17"}
    first = client.post(f"{stream}/records", json=ROWS, headers=headers).json()
    again = client.post(f"{stream}/records", json=ROWS, headers=headers).json()
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["ranges"] == again["ranges"]
    assert len(read(client, stream)) == 2


def test_producers_number_their_appends(client: httpx.Client, stream: str) -> None:
    def send(number: int) -> httpx.Response:
        headers = {"millpond-producer": "p1", "millpond-sequence": str(number)}
        return client.post(f"{stream}/records", json=ROWS[0], headers=headers)

    for number in range(40):
        assert send(number).json()["duplicate"] is False
    assert send(39).json()["duplicate"] is True
    problem(send(0), 409, "stale-sequence")
    assert len(read(client, stream)) == 40
    problem(client.post(f"{stream}/records", json=ROWS[0], headers={"millpond-producer": "p1"}), 400, "invalid-input")
    bad = {"millpond-producer": "p1", "millpond-sequence": "-1"}
    problem(client.post(f"{stream}/records", json=ROWS[0], headers=bad), 400, "invalid-input")


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_a_request_may_ask_for_another_durability(client: httpx.Client, stream: str, durability: str) -> None:
    answer = client.post(f"{stream}/records", json=ROWS[0], params={"durability": durability})
    assert answer.json()["durability"] == durability


# CloudEvents.

EVENT = {"specversion": "1.0", "id": "1", "source": "/meters", "type": "reading", "time": "2026-01-31T12:00:00Z"}


def test_a_cloud_event_is_the_same_record_in_every_mode(client: httpx.Client, raw: str) -> None:
    data = {"vid": "a"}
    binary = {f"ce-{name}": value for name, value in EVENT.items()} | {"content-type": "application/json"}
    sent = [
        client.post(f"{raw}/records", content=json.dumps(data, separators=(",", ":")), headers=binary),
        client.post(
            f"{raw}/records",
            content=json.dumps(EVENT | {"data": data, "datacontenttype": "application/json"}),
            headers={"content-type": "application/cloudevents+json; charset=utf-8"},
        ),
        client.post(
            f"{raw}/records",
            content=json.dumps([EVENT | {"data": data, "datacontenttype": "application/json"}] * 2),
            headers={"content-type": "application/cloudevents-batch+json"},
        ),
    ]
    assert [answer.status_code for answer in sent] == [200] * 3
    found = plain(read(client, raw))
    assert len(found) == 4
    for record in found:
        assert record["time"] == "2026-01-31T12:00:00.000000Z"
        assert record["body"] == '{"vid":"a"}'
        assert {name: value for name, value in record["headers"].items() if name.startswith("ce-")} == {
            "ce-specversion": "1.0",
            "ce-id": "1",
            "ce-source": "/meters",
            "ce-type": "reading",
        }


def test_a_cloud_event_fills_the_columns_of_a_stream(client: httpx.Client) -> None:
    path = f"/v1/streams/test/{uuid.uuid4().hex}"
    client.put(path, json={"schema": "vid string, temp double, ce_id string, ce_time timestamp"})
    event = EVENT | {"data": {"vid": "a", "temp": 1.5}}
    answer = client.post(
        f"{path}/records", content=json.dumps(event), headers={"content-type": "application/cloudevents+json"}
    )
    assert answer.status_code == 200, answer.text
    assert plain(read(client, path)) == [
        {"vid": "a", "temp": 1.5, "ce_id": "1", "ce_time": "2026-01-31T12:00:00.000000Z"}
    ]


@pytest.mark.parametrize("missing", ["id", "source", "type"])
def test_a_cloud_event_without_its_attributes_is_refused(client: httpx.Client, raw: str, missing: str) -> None:
    event = {name: value for name, value in EVENT.items() if name != missing}
    answer = client.post(
        f"{raw}/records", content=json.dumps(event), headers={"content-type": "application/cloudevents+json"}
    )
    assert missing in problem(answer, 422, "invalid-record")["detail"]
    binary = {f"ce-{name}": value for name, value in event.items()}
    problem(client.post(f"{raw}/records", content=b"x", headers=binary), 422, "invalid-record")
    assert read(client, raw) == []


# Records out.


def test_records_go_out_in_every_form(client: httpx.Client, stream: str) -> None:
    client.post(f"{stream}/records", json=ROWS)
    query = {"columns": "vid,city,temp"}
    lines = client.get(f"{stream}/records", params=query, headers={"accept": "application/x-ndjson"})
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line) for line in lines.text.splitlines()] == ROWS
    csv = client.get(f"{stream}/records", params=query | {"format": "csv"})
    assert csv.text.splitlines() == ['"vid","city","temp"', '"a","Nice",1.5', '"b","Ulm",']
    arrow = client.get(f"{stream}/records", params=query | {"format": "arrow"})
    assert pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all().to_pylist() == ROWS
    for form in ("json", "ndjson", "csv", "arrow"):
        assert client.get(f"{stream}/records", params={"format": form}).headers["millpond-next"] == "g1,0:2"
    problem(client.get(f"{stream}/records", headers={"accept": "image/png"}), 406, "not-acceptable")


def test_pages_go_on_where_the_last_one_ended(client: httpx.Client) -> None:
    path = f"/v1/streams/test/{uuid.uuid4().hex}"
    client.put(path, json={"schema": "n bigint", "keys": ["n"], "streamlets": 3})
    client.post(f"{path}/records", json=[{"n": n} for n in range(50)])
    client.post(f"{path}/settle")
    client.post(f"{path}/records", json=[{"n": n} for n in range(50, 100)])
    found: list[int] = []
    start = "earliest"
    for _ in range(30):
        page = client.get(f"{path}/records", params={"start": start, "limit": 7}).json()
        found += [record["n"] for record in page["records"]]
        start = page["next"]
    assert sorted(found) == list(range(100))
    assert client.get(f"{path}/records", params={"start": start}).json()["records"] == []


def test_a_read_begins_at_an_offset_a_time_or_a_condition(client: httpx.Client, stream: str) -> None:
    for n in range(6):
        client.post(f"{stream}/records", json={"vid": f"v{n}", "temp": n})
    assert [record["vid"] for record in read(client, stream, start="4")] == ["v4", "v5"]
    assert [record["vid"] for record in read(client, stream, start="0:5")] == ["v5"]
    assert read(client, stream, start="latest") == []
    moment = read(client, stream)[3]["_ingest_time"]
    assert [record["vid"] for record in read(client, stream, start=moment)][-3:] == ["v3", "v4", "v5"]
    assert [record["vid"] for record in read(client, stream, where="temp >= 4")] == ["v4", "v5"]
    problem(client.get(f"{stream}/records", params={"start": "7"}), 400, "invalid-value")
    problem(client.get(f"{stream}/records", params={"start": "soon"}), 400, "invalid-value")
    problem(client.get(f"{stream}/records", params={"where": "temp >"}), 400, "invalid-predicate")
    problem(client.get(f"{stream}/records", params={"columns": "vid,no"}), 400, "invalid-value")
    problem(client.get(f"{stream}/records", params={"limitt": "1"}), 400, "invalid-input")
    problem(client.get(f"{stream}/records", params={"limit": "many"}), 400, "invalid-input")


def test_a_map_of_objects(client: httpx.Client, stream: str) -> None:
    problem(client.get(f"{stream}/map"), 400, "invalid-value")
    problem(client.get(f"{stream}/map", params={"axes": "temp,city"}), 400, "invalid-value")
    places = f"{stream}/places"
    client.put(places, json={"schema": "lat double, lon double"})
    client.post(f"{places}/records", json=[{"lat": 43.5, "lon": 7}, {"lat": 44, "lon": 8}])
    client.post(f"{places}/settle")
    drawn = client.get(f"{places}/map", params={"where": "lon > 7.5", "axes": "lon,lat"}).json()
    assert (drawn["boxes"], drawn["read"]) == ([[7.0, 43.5, 8.0, 44.0]], [True])
    assert (drawn["asked_x"], drawn["asked_y"]) == ([7.5, None], [None, None])


def test_scan_get_count_explain_segments_and_status(client: httpx.Client, stream: str) -> None:
    client.post(f"{stream}/records", json=[{"vid": f"v{n % 3}", "city": "Nice", "temp": n} for n in range(9)])
    plan = client.post(f"{stream}/settle", params={"preview": "true"}).json()["plan"]
    assert (plan["rows"], plan["ranges"]) == (9, {"0": {"start": 0, "stop": 9}})
    assert client.post(f"{stream}/settle").json()["settled"]["rows"] == 9
    assert client.post(f"{stream}/settle").json()["settled"] is None
    client.post(f"{stream}/records", json={"vid": "v1", "city": "Ulm", "temp": 99})
    scanned = client.get(f"{stream}/scan", params={"where": "temp > 5", "columns": "temp"}).json()["records"]
    assert sorted(record["temp"] for record in scanned) == [6, 7, 8, 99]
    assert len(client.get(f"{stream}/scan", params={"format": "ndjson"}).text.splitlines()) == 10
    newest = client.get(f"{stream}/get", params={"key": "v1", "limit": "2"}).json()["records"]
    assert [record["temp"] for record in newest] == [99, 7]
    assert len(client.get(f"{stream}/get", params={"key": "Ulm", "by": "city"}).json()["records"]) == 1
    assert client.get(f"{stream}/count", params={"where": "city = 'Nice'"}).json() == {"count": 9}
    assert client.get(f"{stream}/explain", params={"where": "temp > 50"}).json()["objects_read"] == 0
    segments = client.get(f"{stream}/segments").json()
    assert {segment["state"] for segment in segments} == {"settled", "active"}
    one = client.get(f"{stream}/segments", params={"id": segments[0]["id"], "columns": "temp"}).json()["records"]
    assert len(one) == 9
    status = client.get(f"{stream}/status").json()
    assert (status["rows_live"], status["rows_settled"]) == (1, 9)
    problem(client.get(f"{stream}/get"), 400, "invalid-input")


# Followed.


def test_a_followed_stream_goes_on_as_records_arrive(served: Served, client: httpx.Client, stream: str) -> None:
    client.post(f"{stream}/records", json={"vid": "v0"})
    query = {"follow": "true", "start": "earliest", "columns": "vid"}
    with client.stream("GET", f"{stream}/records", params=query) as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"vid": "v0"}
        with served.client() as other:
            for n in range(1, 4):
                other.post(f"{stream}/records", json={"vid": f"v{n}"})
                assert json.loads(next(lines)) == {"vid": f"v{n}"}


def test_server_sent_events_go_on_where_they_were_cut(client: httpx.Client, stream: str) -> None:
    client.post(f"{stream}/records", json=[{"vid": f"v{n}"} for n in range(5)])
    query = {"follow": "true", "format": "sse", "columns": "vid"}

    def events(headers: dict[str, str], count: int) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        with client.stream("GET", f"{stream}/records", params=query, headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            at = ""
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    at = line.removeprefix("id: ")
                if line.startswith("data: "):
                    found.append((at, json.loads(line.removeprefix("data: "))))
                    if len(found) == count:
                        return found
        raise AssertionError("it ended")

    first = events({}, 2)
    assert [record for _, record in first] == [{"vid": "v0"}, {"vid": "v1"}]
    rest = events({"last-event-id": first[-1][0]}, 3)
    assert [record for _, record in rest] == [{"vid": "v2"}, {"vid": "v3"}, {"vid": "v4"}]


def test_a_truncation_shows_first_what_goes_and_old_places_are_refused(client: httpx.Client, stream: str) -> None:
    client.post(f"{stream}/records", json=[{"vid": f"v{n}"} for n in range(5)])
    kept = client.get(f"{stream}/records").json()["next"]
    assert kept == "g1,0:5"
    plan = client.post(f"{stream}/truncate", params={"preview": "true"}).json()
    assert (plan["rows_live"], plan["generation"], plan["done"]) == (5, 2, False)
    assert client.get(f"{stream}/count").json() == {"count": 5}
    assert client.post(f"{stream}/truncate").json() == plan | {"done": True}
    assert client.get(f"{stream}/count").json() == {"count": 0}
    problem(client.get(f"{stream}/records", params={"start": kept}), 410, "truncated")
    client.post(f"{stream}/records", json={"vid": "new"})
    page = client.get(f"{stream}/records", params={"columns": "vid"}).json()
    assert page == {"records": [{"vid": "new"}], "next": "g2,0:1"}


def test_server_sent_events_go_over_to_a_new_generation(served: Served, client: httpx.Client, stream: str) -> None:
    """Those that listen meanwhile, and those whose connection was lost."""
    client.post(f"{stream}/records", json=[{"vid": "old-0"}, {"vid": "old-1"}])
    query = {"follow": "true", "format": "sse", "columns": "vid"}
    with client.stream("GET", f"{stream}/records", params=query) as answer, served.client() as other:
        lines = (line for line in answer.iter_lines() if line.startswith(("id: ", "data: ")))
        assert [next(lines) for _ in range(4)][2] == "id: g1,0:2"
        other.post(f"{stream}/truncate")
        other.post(f"{stream}/records", json={"vid": "new"})
        assert [next(lines), next(lines)] == ["id: g2,0:1", 'data: {"vid":"new"}']
    with client.stream("GET", f"{stream}/records", params=query, headers={"last-event-id": "g1,0:2"}) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("id: "))
        assert next(lines) == "id: g2,0:1"
    problem(client.get(f"{stream}/records", params=query | {"start": "g1,0:2"}), 410, "truncated")


def test_followers_that_leave_are_forgotten(served: Served, client: httpx.Client, stream: str) -> None:
    """Each of them would hold a thread; there is room for 200."""
    for _ in range(220):
        with client.stream("GET", f"{stream}/records", params={"follow": "true", "start": "latest"}) as answer:
            assert answer.status_code == 200
    done = threading.Event()
    for _ in range(100):
        answer = client.get(f"{stream}/count")
        if answer.status_code == 200:
            done.set()
            break
    assert done.is_set()
    with client.stream("GET", f"{stream}/records", params={"follow": "true", "start": "earliest"}) as answer:
        client_lines = answer.iter_lines()
        with served.client() as other:
            other.post(f"{stream}/records", json={"vid": "last"})
        assert json.loads(next(client_lines))["vid"] == "last"


# The door.


def test_unknown_routes_and_methods_are_problems(client: httpx.Client) -> None:
    problem(client.get("/v2"), 404, "not-found")
    problem(client.get("/v1/streams/"), 404, "not-found")
    answer = client.put("/v1/status")
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET"
    problem(client.get("/v1/streams/a%FFb"), 404, "not-found")
    problem(client.get("/v1/streams/..%2F..%2Fetc"), 400, "invalid-name")


def test_other_hosts_and_origins_are_refused(client: httpx.Client, stream: str) -> None:
    problem(client.get("/v1", headers={"host": "evil.example"}), 403, "forbidden")
    evil = {"origin": "https://evil.example"}
    problem(client.get("/v1", headers=evil), 403, "forbidden")
    problem(client.post(f"{stream}/records", json=ROWS[0], headers=evil), 403, "forbidden")
    assert read(client, stream) == []
    own = {"origin": str(client.base_url).rstrip("/")}
    assert client.post(f"{stream}/records", json=ROWS[0], headers=own).status_code == 200


def test_health_and_pages_need_nothing(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok", "reasons": []}
    assert client.get("/readyz").json() == {"status": "ready", "reasons": []}
    document = client.get("/openapi.json")
    assert document.json()["openapi"] == "3.1.0"
    again = client.get("/openapi.json", headers={"if-none-match": document.headers["etag"]})
    assert again.status_code == 304
    docs = client.get("/docs")
    assert "default-src 'self'" in docs.headers["content-security-policy"]
    assert "/v1/streams/{name}/records" in docs.text
    assert "<html" in client.get("/").text
    metrics = client.get("/metrics").text
    assert "millpond_" in metrics


def spoken(served: Served, sent: bytes) -> bytes:
    """What the server says to these bytes before it closes or pauses."""
    with socket.create_connection(("127.0.0.1", served.rest_port), timeout=30) as connection:
        connection.sendall(sent)
        return connection.recv(65_536)


def test_a_body_over_the_bound_is_refused_before_it_is_sent(served: Served, stream: str) -> None:
    head = f"POST {stream}/records HTTP/1.1\r\nhost: localhost\r\ncontent-length: 65000000\r\n\r\n"
    assert spoken(served, head.encode()).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n"])
def test_what_is_not_http_is_answered_in_the_same_shape(served: Served, sent: bytes) -> None:
    answer = spoken(served, sent)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "invalid-input"


def test_a_head_without_an_end_is_cut_off(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.rest_port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        answer = b""
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"x-more: " + b"x" * 10_000 + b"\r\n")
            answer = connection.recv(65_536)
        assert answer[:13] in (b"", b"HTTP/1.1 400 ")


def test_streamlets_are_merged_by_time_and_ids_never_pass_what_is_held_back(client: httpx.Client) -> None:
    path = f"/v1/streams/lab/merged-{time.time_ns()}"
    body = {"schema": "n int, at timestamp", "event_time": "at", "streamlets": 2}
    assert client.put(path, json=body).status_code == 201
    for n in (3, 1, 2, 0):  # appends take turns: 3 and 2 are in one streamlet, 1 and 0 in the other
        event = {"n": n, "at": f"2026-01-31T12:00:0{n}Z"}
        assert client.post(f"{path}/records", json=event).status_code == 200
    page = client.get(f"{path}/records", params={"merge_within": "5s"}).json()
    assert [record["n"] for record in page["records"]] == [0, 1, 2, 3]
    assert page["next"] == "g1,0:2,1:2"
    part = client.get(f"{path}/records", params={"merge_within": "5s", "limit": 1}).json()
    assert ([record["n"] for record in part["records"]], part["next"]) == ([0], "g1,0:0,1:0")
    assert client.get(f"{path}/records", params={"merge_within": "soon"}).status_code == 400
    query: dict[str, Any] = {"merge_within": "1s", "follow": "true", "format": "sse", "limit": 4, "columns": "n"}
    with client.stream("GET", f"{path}/records", params=query) as events:
        lines = [line for line in events.iter_lines() if line]
    assert [line for line in lines if line.startswith("data")] == [f'data: {{"n":{n}}}' for n in range(4)]
    ids = [line for line in lines if line.startswith("id")]
    assert ids == ["id: g1,0:0,1:0"] * 3 + ["id: g1,0:2,1:2"]
