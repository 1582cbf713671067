"""How a server meets the world: what it needs before others may reach it, TLS on both doors, and tokens that change
under a server that runs."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

import millpond
from millpond.errors import Damaged, MillpondError, Unauthenticated, Unavailable
from millpond.flight.link import FlightLink
from millpond.pond.tokens import TokenGate
from millpond.wire.requests import AboutNode, CreateToken
from tests.serving import START_SECONDS, serving

OPERATOR = CreateToken("operator", ("read", "write", "admin"))


@pytest.fixture
def pond(tmp_path: Path) -> Path:
    path = tmp_path / "pond"
    millpond.open(path, background=False).close()
    return path


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files: a root, a server's certificate and key; a client's root, certificate and key."""
    directory = tmp_path_factory.mktemp("pems")
    found = {}
    for who, name in (("server", "127.0.0.1"), ("client", "producer.example")):
        root = trustme.CA()
        issued = root.issue_cert(name, "localhost") if who == "server" else root.issue_cert(name)
        files = {
            f"{who}_root": root.cert_pem.bytes(),
            f"{who}_certificate": b"".join(each.bytes() for each in issued.cert_chain_pems),
            f"{who}_key": issued.private_key_pem.bytes(),
        }
        for file, data in files.items():
            (directory / file).write_bytes(data)
            found[file] = str(directory / file)
    return found


def until(holds: Callable[[], bool], what: str) -> None:
    """Ask again until it holds: another process is at work."""
    deadline = time.monotonic() + START_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def refused_start(pond: Path, *options: str) -> dict[str, Any]:
    """The error with which a server does not start."""
    command = [sys.executable, "-m", "millpond", "serve", str(pond), "--json", "--port", "0", "--flight-port", "0"]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    error: dict[str, Any] = json.loads(ended.stderr.splitlines()[-1])
    return error


# Addresses.


def test_a_server_that_others_reach_does_not_start_without_tokens_and_tls(pond: Path, pems: dict[str, str]) -> None:
    tls = ("--tls-certificate", pems["server_certificate"], "--tls-key", pems["server_key"])
    error = refused_start(pond, "--host", "0.0.0.0")
    assert "no token" in error["message"]
    assert "no TLS" in error["message"]
    assert "--insecure" in error["hint"]
    assert "no token" in refused_start(pond, "--host", "0.0.0.0", *tls)["message"]
    TokenGate(str(pond)).create(OPERATOR)
    assert "no TLS" in refused_start(pond, "--host", "0.0.0.0")["message"]


def test_a_server_does_not_start_with_a_setting_that_nobody_knows(pond: Path) -> None:
    (pond / "millpond.toml").write_text("[serve]\nport = 7070\ncals_max = 5\n")
    error = refused_start(pond)
    assert "cals_max" in error["message"]
    assert "calls_max" in error["hint"]


def test_a_server_takes_its_settings_from_the_file_and_the_environment(pond: Path) -> None:
    (pond / "millpond.toml").write_text('[serve]\nrequest_bytes_max = "2KB"\nmetrics = true\n')
    with serving(pond, env={"MILLPOND_SERVE_METRICS": "false"}) as served, served.client() as client:
        served.create("hooks")
        assert client.post("/v1/streams/hooks/records", content=bytes(2_000)).status_code == 200
        assert client.post("/v1/streams/hooks/records", content=bytes(2_001)).status_code == 413
        assert client.get("/metrics").status_code == 404


# TLS.


@pytest.fixture(params=["tls", "mutual"])
def secured(request: pytest.FixtureRequest, pond: Path, pems: dict[str, str]) -> Iterator[tuple[bool, int, int]]:
    """Whether callers need a certificate, and the two ports."""
    mutual = request.param == "mutual"
    options = ["--tls-certificate", pems["server_certificate"], "--tls-key", pems["server_key"]]
    options += ["--tls-client-roots", pems["client_root"]] if mutual else []
    with serving(pond, *options) as served:
        yield mutual, served.rest_port, served.flight_port


def test_both_doors_speak_tls_and_ask_for_certificates(secured: tuple[bool, int, int], pems: dict[str, str]) -> None:
    mutual, rest, flight = secured
    trusting = ssl.create_default_context(cafile=pems["server_root"])
    showing = ssl.create_default_context(cafile=pems["server_root"])
    showing.load_cert_chain(pems["client_certificate"], pems["client_key"])
    impostor = ssl.create_default_context(cafile=pems["server_root"])
    impostor.load_cert_chain(pems["server_certificate"], pems["server_key"])

    def by_rest(scheme: str, context: ssl.SSLContext | bool) -> int:
        with httpx.Client(verify=context, trust_env=False, timeout=30) as client:
            return client.get(f"{scheme}://127.0.0.1:{rest}/v1").status_code

    def by_flight(scheme: str, **trust: str) -> bytes:
        files = {name: Path(file).read_bytes() for name, file in trust.items()}
        with FlightLink(f"{scheme}://127.0.0.1:{flight}", **files, timeout_seconds=10) as link:  # type: ignore[arg-type]
            return link.call(AboutNode())

    trust = {"tls_roots": pems["server_root"]}
    shown = {"certificate": pems["client_certificate"], "key": pems["client_key"]}
    false = {"certificate": pems["server_certificate"], "key": pems["server_key"]}
    assert by_rest("https", showing) == 200
    assert b"version" in by_flight("grpc+tls", **trust, **shown)
    if mutual:
        for context in (trusting, impostor):
            with pytest.raises(httpx.TransportError):
                by_rest("https", context)
        for given in (trust, trust | false):
            with pytest.raises(Unavailable):
                by_flight("grpc+tls", **given)
    else:
        assert by_rest("https", trusting) == 200
        assert b"version" in by_flight("grpc+tls", **trust)
    # Nobody talks to it in the clear, nor without knowing who signed.
    with pytest.raises(httpx.TransportError):
        by_rest("http", True)
    with pytest.raises(httpx.ConnectError):
        by_rest("https", True)
    with pytest.raises(Unavailable):
        by_flight("grpc")
    with pytest.raises(Unavailable):
        by_flight("grpc+tls")


# Tokens, while it runs.


def test_the_first_token_closes_both_doors_and_damage_opens_neither(pond: Path) -> None:
    def rest(token: str | None) -> tuple[int, str]:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        answer = client.get("/v1", headers=headers)
        return answer.status_code, answer.json().get("code", "")

    def by_flight(token: str | None) -> type[MillpondError] | None:
        with FlightLink(served.flight, token) as link:
            try:
                link.call(AboutNode())
            except MillpondError as error:
                return type(error)
        return None

    with serving(pond) as served, served.client() as client:
        assert rest(None)[0] == 200
        assert by_flight(None) is None
        gate = TokenGate(str(pond))
        token = gate.create(OPERATOR).token
        until(lambda: rest(None) == (401, "unauthenticated"), "the door is still open")
        assert by_flight(None) is Unauthenticated
        assert rest(token)[0] == 200
        assert by_flight(token) is None

        good = (pond / "tokens.json").read_bytes()
        (pond / "tokens.json").write_bytes(good[:-10])
        until(lambda: rest(token)[1] == "damaged", "the damage is not seen")
        for shown in (None, token):
            assert rest(shown)[0] >= 500
            assert by_flight(shown) is Damaged
        (pond / "tokens.json").write_bytes(good)
        until(lambda: rest(token)[0] == 200, "the restored file is not seen")

        gate.revoke("operator")
        until(lambda: rest(token)[0] == 401, "the revoked token is still good")
        assert by_flight(token) is Unauthenticated
        assert rest(None)[0] == 401


def test_who_asks_too_often_is_told_when_to_come_back(pond: Path) -> None:
    busy = TokenGate(str(pond)).create(OPERATOR).token
    other = TokenGate(str(pond)).create(CreateToken("other", ("read",))).token
    options = ("--requests-per-second", "0.01", "--requests-burst", "3")
    with serving(pond, *options) as served, served.client() as client:

        def asked(token: str) -> httpx.Response:
            return client.get("/v1", headers={"authorization": f"Bearer {token}"})

        assert [asked(busy).status_code for _ in range(3)] == [200] * 3
        refused = asked(busy)
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
        assert 1 < int(refused.headers["retry-after"]) <= 100
        assert asked(other).status_code == 200
        assert client.get("/healthz").status_code == 200


def test_streams_are_made_no_larger_than_the_operator_says(pond: Path) -> None:
    options = ("--columns-max", "3", "--name-length-max", "10")
    with serving(pond, *options) as served, served.client() as client:

        def made(name: str, schema: str) -> tuple[int, str]:
            answer = client.put(f"/v1/streams/{name}", json={"schema": schema})
            return answer.status_code, answer.json().get("fix", "")

        assert made("a/2345678x", "a int, s struct<b: int, c: int>") == (201, "")
        status, fix = made("a/2345678xy", "a int")
        assert (status, "name_length_max" in fix) == (400, True)
        status, fix = made("b", "a int, s struct<b: int, c: int, d: int>")
        assert (status, "columns_max" in fix) == (400, True)
        grown = client.patch("/v1/streams/a/2345678x", json={"add": "e int"})
        assert (grown.status_code, "columns_max" in grown.json()["fix"]) == (400, True)
        with millpond.connect(served.url) as remote, pytest.raises(millpond.errors.InvalidName):
            remote.create_stream("a/2345678xy")
