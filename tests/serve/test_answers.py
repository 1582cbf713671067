"""Answers that once were wrong, each found by asking a real server everything."""

from __future__ import annotations

import socket

import pytest

from tests.serving import Served


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("DELETE", f"/v1/tokens/{'0' * 65}", 404, "not-found"),
        ("GET", f"/v1/streams/grid/meters/records?start={'0' * 5_000}", 400, "invalid-value"),
        ("GET", f"/v1/streams/grid/meters/records?start=0:{'9' * 5_000}", 400, "invalid-value"),
        ("GET", "/v1/streams/grid/meters/records?limit=null", 400, "invalid-input"),
        ("GET", "/v1/streams/grid/meters/scan?format=null", 400, "invalid-input"),
    ],
)
def test_what_nobody_means_is_refused(served: Served, method: str, path: str, status: int, code: str) -> None:
    with served.client() as client:
        answer = client.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert len(answer.content) < 2_000


def test_settling_what_is_never_archived_is_no_matter_of_time(served: Served) -> None:
    served.create("never", schema="n bigint", settle=None)
    with served.client() as client:
        answer = client.post("/v1/streams/never/settle")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-value")
    assert "retry-after" not in answer.headers


def test_a_follower_of_a_quiet_stream_is_answered_before_there_is_a_record(served: Served) -> None:
    path = "/v1/streams/grid/meters/records?follow=true&start=latest"
    with served.client(timeout=10) as client, client.stream("GET", path) as answer:
        assert answer.status_code == 200


def test_who_asks_before_sending_a_body_is_told_to_go_on(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.rest_port)) as connection:
        connection.settimeout(10)
        head = b"POST /v1/streams/events/records HTTP/1.1\r\nhost: 127.0.0.1\r\nexpect: 100-continue\r\n"
        connection.sendall(head + b"content-type: x/y\r\ncontent-length: 4\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"body")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")
