"""The search for planted secrets finds them in every disguise, and a real server shows none."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond
from millpond.pond.tokens import TokenGate
from millpond.wire.requests import CreateToken
from tests.planted import Planted
from tests.serving import serving

SECRET = secrets.token_urlsafe(32)
TOKEN = f"mp_0123456789_{SECRET}"


@given(st.binary(max_size=20), st.binary(max_size=20), st.sampled_from([SECRET, "a secret/with+signs & blanks=é"]))
def test_it_is_found_in_every_form(before: bytes, after: bytes, secret: str) -> None:
    planted = Planted(secret)
    raw = secret.encode()
    for shown in (
        before + raw + after,
        before + raw[:20] + after,
        before + raw[-20:] + after,
        base64.b64encode(before + raw + after),
        base64.urlsafe_b64encode(before + raw + after),
        before + raw.hex().encode() + after,
        before + raw.hex().upper().encode() + after,
        before + quote(secret).encode() + after,
        before + json.dumps(secret).encode() + after,
        before + repr(secret).encode() + after,
        repr(raw).encode(),
    ):
        assert planted.found_in(shown), shown
        with pytest.raises(AssertionError, match="log shows"):
            planted.assert_absent(log=shown)


def test_a_tokens_id_may_be_seen() -> None:
    planted = Planted(TOKEN)
    planted.assert_absent(log="caller 0123456789 of token mp_0123456789_… was refused")
    assert planted.found_in(f"Authorization: Bearer {TOKEN}")
    assert planted.found_in(base64.b64encode(f"user:{TOKEN}".encode()))


def test_what_was_not_captured_proves_nothing(tmp_path: Path) -> None:
    planted = Planted(TOKEN)
    with pytest.raises(AssertionError, match="was it captured"):
        planted.assert_absent(log="")
    with pytest.raises(AssertionError, match="no files"):
        planted.assert_absent_under(tmp_path)
    (tmp_path / "a").write_text(f"x{SECRET}")
    with pytest.raises(AssertionError, match="holds the secret"):
        planted.assert_absent_under(tmp_path)
    with pytest.raises(ValueError, match="at least"):
        Planted("short")


def test_a_server_shows_no_secret_anywhere(tmp_path: Path) -> None:
    """A token that is good, one that was revoked and one that never was: shown in every place where a caller may put
    one, by mistake or not, and looked for in all that the server says and keeps."""
    pond = tmp_path / "pond"
    millpond.open(pond, background=False).close()
    gate = TokenGate(str(pond))
    good = gate.create(CreateToken("good", ("read", "write", "admin"))).token
    gone = gate.create(CreateToken("gone")).token
    gate.revoke("gone")
    with serving(pond, "--log-level", "debug", token=good) as served:
        served.create("hooks")
        answers = b""
        with served.client() as client:
            for token in (good, gone, TOKEN):
                for headers in (
                    {"authorization": f"Bearer {token}"},
                    {"authorization": f"bearer  {token}"},
                    {"authorization": f"Basic {base64.b64encode(f'x:{token}'.encode()).decode()}"},
                    {"authorization": token},
                    {"authorization": f"Bearer {token}{token}"},
                    {"cookie": f"token={token}"},
                ):
                    for method, path in (
                        ("GET", "/v1"),
                        ("GET", "/v1/streams/hooks/records"),
                        ("GET", "/metrics"),
                        ("GET", f"/v1/streams?token={token}"),
                        ("POST", "/v1/streams/hooks/records"),
                        ("DELETE", f"/v1/tokens/{token}"),
                        ("GET", "/nowhere"),
                    ):
                        body = b"a hook" if method == "POST" else None
                        answer = client.request(method, path, headers=headers, content=body)
                        answers += f"{answer.status_code} {answer.headers}".encode() + answer.content
            client.post("/v1/streams/hooks/settle").raise_for_status()
            metrics = client.get("/metrics").content
        assert served.stop() == 0
        log = "\n".join(served.log)
    assert b"401" in answers
    assert b"200" in answers
    for token in (good, gone, TOKEN):
        Planted(token).assert_absent(log=log, answers=answers, metrics=metrics)
        Planted(token).assert_absent_under(pond)
