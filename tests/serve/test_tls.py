"""TLS and mutual TLS on both doors, and what a server refuses to be without them."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import trustme

import millpond
from millpond.errors import Unavailable
from millpond.pond.tokens import TokenGate
from millpond.wire.access import RIGHTS
from millpond.wire.requests import CreateToken
from tests.serving import Served, serving


@dataclass
class Certificates:
    """PEM files: of the server, of who signed it, of a client, and of somebody else."""

    server: Path
    key: Path
    roots: Path
    client: Path
    client_key: Path
    stranger: Path
    stranger_key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("tls")
    ours, others = trustme.CA(), trustme.CA()
    made = {
        "server": ours.issue_cert("127.0.0.1", "localhost"),
        "client": ours.issue_cert("client@millpond.example"),
        "stranger": others.issue_cert("stranger@millpond.example"),
    }
    for name, each in made.items():
        (directory / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in each.cert_chain_pems))
        (directory / f"{name}.key").write_bytes(each.private_key_pem.bytes())
    ours.cert_pem.write_to_path(str(directory / "roots.pem"))
    found = [directory / f"{name}.{end}" for name in made for end in ("pem", "key")]
    return Certificates(found[0], found[1], directory / "roots.pem", *found[2:])


@pytest.fixture(scope="module")
def private(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with mutual TLS and tokens."""
    pond = tmp_path_factory.mktemp("private") / "pond"
    millpond.open(pond).close()
    token = TokenGate(str(pond)).create(CreateToken("boss", RIGHTS, ("",))).token
    options = ["--tls-certificate", str(certificates.server), "--tls-key", str(certificates.key)]
    with serving(pond, *options, "--tls-client-roots", str(certificates.roots), token=token) as running:
        yield running
        assert running.stop() == 0


def context(certificates: Certificates, *own: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(certificates.roots))
    if own:
        made.load_cert_chain(*map(str, own))
    return made


def test_rest_speaks_tls_to_those_who_show_a_certificate(private: Served, certificates: Certificates) -> None:
    url = f"https://127.0.0.1:{private.rest_port}"
    headers = {"authorization": f"Bearer {private.token}"}
    mine = context(certificates, certificates.client, certificates.client_key)
    with httpx.Client(base_url=url, verify=mine, headers=headers, trust_env=False) as client:
        assert client.get("/v1").json()["flight_tls"] is True
    for verify in (
        context(certificates),
        context(certificates, certificates.stranger, certificates.stranger_key),
        ssl.create_default_context(),
    ):
        with (
            httpx.Client(base_url=url, verify=verify, headers=headers, trust_env=False) as client,
            pytest.raises(httpx.TransportError),
        ):
            client.get("/v1")
    with httpx.Client(trust_env=False) as client, pytest.raises(httpx.TransportError):
        client.get(f"http://127.0.0.1:{private.rest_port}/v1")


def test_a_client_connects_through_tls_on_both_doors(private: Served, certificates: Certificates) -> None:
    own = {"ca": str(certificates.roots), "token": private.token}
    certificate = {"certificate": str(certificates.client), "key": str(certificates.client_key)}
    with millpond.connect(f"https://127.0.0.1:{private.rest_port}", **own, **certificate) as pond:
        stream = pond.create_stream("grid/meters")
        stream.append({"body": b"x"})
        assert stream.count() == 1
    with pytest.raises(Unavailable):
        millpond.connect(f"https://127.0.0.1:{private.rest_port}", **own)
    with pytest.raises(Unavailable):
        millpond.connect(f"grpc+tls://127.0.0.1:{private.flight_port}", **own)


def serve(pond: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millpond", "serve", str(pond), "--create", "--port", "0", "--flight-port", "0"]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)


def test_an_open_address_needs_tokens_and_tls(tmp_path: Path, certificates: Certificates) -> None:
    tls = ["--tls-certificate", str(certificates.server), "--tls-key", str(certificates.key)]
    for options, missing in (
        ([], "token"),
        (tls, "token"),
        (["--tokens", "required"], "TLS"),
        ([*tls, "--tokens", "off"], "token"),
    ):
        refused = serve(tmp_path / "pond", "--host", "0.0.0.0", *options)
        assert refused.returncode == 2
        assert missing in refused.stderr
        assert "--insecure" in refused.stderr
    assert not (tmp_path / "pond" / "journal").exists()


def test_a_certificate_without_its_key_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    refused = serve(tmp_path / "pond", "--tls-certificate", str(certificates.server))
    assert refused.returncode == 2
    assert "tls_key" in refused.stderr
    wrong = ["--tls-certificate", str(certificates.server), "--tls-key", str(certificates.client_key)]
    refused = serve(tmp_path / "pond", *wrong)
    assert refused.returncode == 2
    assert "TLS" in refused.stderr
