"""What a real server shows of requests at both doors, and of the records that it pushes to followers."""

from __future__ import annotations

import json

import httpx
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import flight

from tests.serving import Served

RECORDS = "/v1/streams/{name}/records"


class Page:
    """The samples of `/metrics`, by name and labels."""

    def __init__(self, client: httpx.Client) -> None:
        answer = client.get("/metrics")
        answer.raise_for_status()
        self._samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples.get((name, frozenset(labels.items())), 0.0)


def test_requests_are_counted_by_route_and_what_they_carry(served: Served) -> None:
    served.create("counted/events", schema="n bigint")
    body = b'{"n": 1}'
    with served.client() as client:
        before = Page(client)
        for _ in range(3):
            sent = client.post(
                "/v1/streams/counted/events/records", content=body, headers={"content-type": "application/json"}
            )
            assert sent.status_code == 200
        assert client.post("/v1/streams/counted/events/records", json={"n": "warm"}).status_code == 422
        after = Page(client)

    def moved(name: str, **labels: str) -> float:
        return after(name, **labels) - before(name, **labels)

    assert moved("millpond_rest_requests_total", route=RECORDS, method="POST", status="200") == 3
    assert moved("millpond_rest_requests_total", route=RECORDS, method="POST", status="422") == 1
    assert moved("millpond_rest_request_seconds_count", route=RECORDS) == 4
    assert moved("millpond_rest_request_bytes_total", route=RECORDS) >= 3 * len(body)
    assert moved("millpond_rest_response_bytes_total", route=RECORDS) > 0
    assert moved("millpond_rejected_requests_total", reason="invalid-record") == 1
    assert moved("millpond_refused_appends_total", reason="invalid-record") == 1
    assert moved("millpond_appended_records_total", stream="counted/events") == 3
    assert after("millpond_open_connections", door="rest") >= 1


def test_a_follower_at_the_rest_door_is_measured(served: Served) -> None:
    served.create("followed/events", schema="n bigint")
    with served.client() as client, served.client() as follower:
        where = "/v1/streams/followed/events/records?follow=true&start=latest"
        with follower.stream("GET", where, headers={"accept": "application/x-ndjson"}) as pushed:
            client.post("/v1/streams/followed/events/records", json=[{"n": 1}, {"n": 2}]).raise_for_status()
            lines = (line for line in pushed.iter_lines() if line.strip())
            assert [json.loads(next(lines))["n"] for _ in range(2)] == [1, 2]
            page = Page(client)
        assert page("millpond_followers", stream="followed/events") == 1
        labels = {"stream": "followed/events", "stage": "buffered"}
        assert page("millpond_end_to_end_latency_seconds_count", **labels) == 2
        assert 0 < page("millpond_end_to_end_latency_seconds_sum", **labels) < 600


def test_flight_calls_are_on_the_same_page(served: Served) -> None:
    with served.client() as client, flight.connect(served.flight) as caller:
        before = Page(client)
        assert len(list(caller.list_flights())) > 0
        after = Page(client)
    labels = {"verb": "ListFlights", "status": "ok"}
    assert after("millpond_flight_calls_total", **labels) - before("millpond_flight_calls_total", **labels) == 1


def test_open_metrics_for_who_asks(served: Served) -> None:
    with served.client() as client:
        answer = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
