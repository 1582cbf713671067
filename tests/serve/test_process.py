"""The server as a process: it starts, says where it is, answers, and stops when told."""

from __future__ import annotations

from pathlib import Path

from tests.serving import Served, serving


def test_a_served_pond_answers(served: Served) -> None:
    with served.client() as client:
        assert client.get("/readyz").json() == {"status": "ready", "reasons": []}
        assert client.get("/v1/streams/grid/meters/count").json() == {"count": 40}
        assert client.get("/v1").json()["flight_port"] == served.flight_port


def test_it_stops_when_told_and_what_was_acknowledged_is_there_again(tmp_path: Path) -> None:
    with serving(tmp_path / "pond") as first:
        first.create("s", schema="n bigint")
        with first.client() as client:
            client.post("/v1/streams/s/records", json=[{"n": n} for n in range(10)]).raise_for_status()
        assert first.stop() == 0
    assert first.complaints() == []
    with serving(tmp_path / "pond") as second, second.client() as client:
        records = client.get("/v1/streams/s/records").json()["records"]
        assert [record["n"] for record in records] == list(range(10))
        assert second.stop() == 0


def test_a_single_raw_event_is_read_as_it_was_sent(tmp_path: Path) -> None:
    with serving(tmp_path / "pond") as running, running.client() as client:
        running.create("events")
        sent = client.post("/v1/streams/events/records", content=b"\xffbody", headers={"content-type": "x/y", "a": "b"})
        assert sent.json()["ranges"] == {"0": {"start": 0, "stop": 1}}
        (event,) = client.get("/v1/streams/events/records").json()["records"]
        assert event["body_base64"] == "/2JvZHk="
        assert event["headers"]["a"] == "b"
        assert event["headers"]["content-type"] == "x/y"
        assert event["time"] == event["_ingest_time"]
        assert client.post("/v1/streams/events/settle").json()["settled"]["rows"] == 1
