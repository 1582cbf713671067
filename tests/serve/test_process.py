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
