"""Tokens: who is let in, for how long, and what a damaged, lost or half-written file does (it lets nobody in)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import multiprocessing
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import (
    Damaged,
    DiskFull,
    FormatTooNew,
    InvalidInput,
    InvalidValue,
    MillpondError,
    NoSuchRoute,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from millpond.pond import tokens as tokens_module
from millpond.pond.tokens import TokenGate
from millpond.storage import LocalStorage
from millpond.testing import VARIANTS, Crash, FaultyStorage, ManualClock, Variant
from millpond.wire.access import ANYONE
from millpond.wire.requests import CreateToken

METERS = CreateToken("meters", ("write",), ("grid",))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gate(tmp_path: Path, clock: ManualClock) -> TokenGate:
    return TokenGate(str(tmp_path), clock=clock)


def file_of(path: Path) -> Path:
    return path / "tokens.json"


# Tokens.


def test_a_token_is_who_it_was_made_for(gate: TokenGate) -> None:
    made = gate.create(CreateToken("meters", ("write", "read"), ("/grid/", "lab/probes", "grid")))
    caller = gate.authenticate(made.token)
    assert (caller.id, caller.name) == (made.info.id, "meters")
    assert made.info.rights == ("read", "write")
    assert made.info.prefixes == ("grid", "lab/probes")
    assert caller.may("write", "grid/meters")
    assert caller.may("read", "lab/probes")
    assert not caller.may("admin", "grid/meters")
    assert not caller.may("write", "gridlock")
    assert not caller.may("read")
    assert made.info.created == "2026-01-01T00:00:00+00:00"
    assert gate.tokens() == [made.info]


def test_a_token_has_a_public_id_and_a_secret_of_256_bits_that_is_not_kept(gate: TokenGate, tmp_path: Path) -> None:
    first, second = gate.create(METERS), gate.create(CreateToken("other"))
    kind, public, secret = first.token.split("_", 2)
    assert (kind, public) == ("mp", first.info.id)
    assert len(public) >= 8
    assert len(secret) >= 43  # 32 bytes in base64
    assert first.token.split("_", 2)[1:] != second.token.split("_", 2)[1:]
    kept = file_of(tmp_path).read_text()
    assert secret not in kept
    assert hashlib.sha256(secret.encode()).hexdigest() in kept
    assert secret not in repr(vars(gate)) + repr(gate._view)


def test_the_file_is_its_owners_alone(gate: TokenGate, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        gate.create(METERS)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file_of(tmp_path).stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokens.json", "tokens.lock"]


def test_whatever_is_not_a_token_is_refused(gate: TokenGate) -> None:
    token = gate.create(METERS).token
    kind, public, secret = token.split("_", 2)
    wrong = [
        "",
        None,
        "mp",
        "mp__",
        f"{kind}_{public}_",
        f"{kind}_{public}_{secret}x",
        f"{kind}_{public}_{secret[:-1]}",
        f"{kind}_{public[:-1]}_{secret}",
        f"{kind}_0000000000_{secret}",
        f"MP_{public}_{secret}",
        f"{public}_{secret}",
        f" {token}",
        f"{token} ",
        f"Bearer {token}",
        token * 2_000,
        "mp_\ud800_\udfff",
        secret,
    ]
    for each in wrong:
        with pytest.raises(Unauthenticated) as caught:
            gate.authenticate(each)
        assert secret not in str(caught.value)
    assert gate.authenticate(token).name == "meters"


@given(st.one_of(st.text(), st.builds("mp_{}_{}".format, st.text(max_size=12), st.text(max_size=50))))
def test_no_other_text_gets_in(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    gate = TokenGate(str(tmp_path_factory.mktemp("tokens")), "required")
    gate.create(METERS)
    with pytest.raises(Unauthenticated):
        gate.authenticate(text)


def test_an_unknown_id_takes_the_same_steps_as_a_wrong_secret(gate: TokenGate, monkeypatch: pytest.MonkeyPatch) -> None:
    public = gate.create(METERS).info.id
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    for token in (f"mp_{public}_wrong", "mp_ffffffffff_wrong"):
        with pytest.raises(Unauthenticated):
            gate.authenticate(token)
    assert compared == [(32, 32), (32, 32)]


@pytest.mark.parametrize(
    "request_",
    [
        CreateToken("", ("read",)),
        CreateToken("two words", ("read",)),
        CreateToken("ctrl\n", ("read",)),
        CreateToken("0123456789", ("read",)),
        CreateToken("x" * 65, ("read",)),
        CreateToken("n", ("own",)),
        CreateToken("n", ()),
        CreateToken("n", ("read",), ("a//b",)),
        CreateToken("n", ("read",), ("_pond/catalog",)),
        CreateToken("n", ("read",), ()),
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(gate: TokenGate, tmp_path: Path, request_: CreateToken) -> None:
    with pytest.raises(InvalidInput):
        gate.create(request_)
    assert not file_of(tmp_path).exists()


def test_a_name_is_taken_once(gate: TokenGate) -> None:
    gate.create(METERS)
    with pytest.raises(InvalidValue, match="'meters'"):
        gate.create(METERS)
    gate.revoke("meters")
    gate.create(METERS)
    assert len(gate.tokens()) == 1


def test_there_are_not_more_than_so_many(gate: TokenGate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "TOKENS_MAX", 2)
    gate.create(CreateToken("a"))
    gate.create(CreateToken("b"))
    with pytest.raises(TooLarge):
        gate.create(CreateToken("c"))


# Open and closed.


def test_auto_asks_for_tokens_as_soon_as_there_is_one(gate: TokenGate) -> None:
    assert gate.authenticate(None) is ANYONE
    assert not gate.closed
    gate.create(METERS)
    assert gate.closed
    with pytest.raises(Unauthenticated):
        gate.authenticate(None)


def test_revoking_the_last_token_opens_nothing(gate: TokenGate, tmp_path: Path) -> None:
    token = gate.create(METERS).token
    assert gate.revoke(token.split("_")[1]).name == "meters"
    assert gate.tokens() == []
    for each in (gate, TokenGate(str(tmp_path))):
        assert each.closed
        for shown in (None, token):
            with pytest.raises(Unauthenticated):
                each.authenticate(shown)


def test_required_asks_always_and_off_never(tmp_path: Path) -> None:
    required, off = TokenGate(str(tmp_path), "required"), TokenGate(str(tmp_path), "off")
    assert required.closed
    with pytest.raises(Unauthenticated):
        required.authenticate(None)
    token = required.create(METERS).token
    assert required.authenticate(token).name == "meters"
    assert off.authenticate(None) is ANYONE
    assert off.authenticate("anything") is ANYONE
    assert not off.closed
    with pytest.raises(InvalidValue):
        TokenGate(str(tmp_path), "sometimes")  # type: ignore[arg-type]


def test_an_unknown_token_is_not_revoked_nor_shown(gate: TokenGate) -> None:
    token = gate.create(METERS).token
    for wrong in ("nobody", token):
        with pytest.raises(NoSuchRoute) as caught:
            gate.revoke(wrong)
        assert token not in str(caught.value)


# Changes by others.


def test_a_change_by_another_process_is_seen_within_a_second(
    gate: TokenGate, tmp_path: Path, clock: ManualClock
) -> None:
    other = TokenGate(str(tmp_path))
    token = other.create(METERS).token
    clock.advance("600ms")
    assert gate.authenticate(token).name == "meters"
    other.revoke("meters")
    clock.advance("600ms")
    with pytest.raises(Unauthenticated):
        gate.authenticate(token)


def test_the_file_is_looked_at_twice_a_second_and_read_only_when_it_changed(
    gate: TokenGate, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = gate.create(METERS).token
    looks: list[str] = []
    file, stamp, read = gate._file, gate._file.stamp, gate._file.read
    monkeypatch.setattr(file, "stamp", lambda: (looks.append("stamp"), stamp())[1])
    monkeypatch.setattr(file, "read", lambda: (looks.append("read"), read())[1])
    for _ in range(100):
        gate.authenticate(token)
    assert looks == []
    for _ in range(3):
        clock.advance("500ms")
        for _ in range(10):
            gate.authenticate(token)
    assert looks == ["stamp"] * 3


def test_threads_and_processes_change_it_together_and_nothing_is_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_make_some, args=(str(tmp_path), f"p{n}")) for n in range(2)]
    for process in processes:
        process.start()
    with ThreadPoolExecutor(4) as pool:
        gate = TokenGate(str(tmp_path))
        made = list(pool.map(lambda n: gate.create(CreateToken(f"t{n}")), range(20)))
    for process in processes:
        process.join()
        assert process.exitcode == 0
    names = {each.name for each in gate.tokens()}
    assert names == {f"t{n}" for n in range(20)} | {f"p{p}-{n}" for p in range(2) for n in range(10)}
    assert {gate.authenticate(each.token).id for each in made} == {each.info.id for each in made}


def _make_some(directory: str, prefix: str) -> None:
    gate = TokenGate(directory)
    for n in range(10):
        gate.create(CreateToken(f"{prefix}-{n}"))


# Damage.

_BROKEN = [
    "",
    "{}",
    "null",
    "[]",
    "not json",
    '{"format": 1, "closed": false}',
    '{"format": 1, "tokens": []}',
    '{"format": 1, "closed": "no", "tokens": []}',
    '{"format": 1, "closed": false, "tokens": [], "open": true}',
]


def _with_token(**changes: object) -> str:
    token = {
        "id": "0123456789",
        "name": "n",
        "rights": ["read"],
        "prefixes": [""],
        "created": "",
        "sha256": "00" * 32,
    }
    return json.dumps({"format": 1, "closed": changes.pop("closed", True), "tokens": [token | changes]})


@pytest.mark.parametrize(
    "text",
    [
        *_BROKEN,
        _with_token(rights=["own"]),
        _with_token(rights=[]),
        _with_token(prefixes=["a//b"]),
        _with_token(sha256="00"),
        _with_token(sha256="xyz"),
        _with_token(closed=False),
        _with_token(id=5),
    ],
)
def test_a_damaged_file_lets_nobody_in(tmp_path: Path, clock: ManualClock, text: str) -> None:
    running = TokenGate(str(tmp_path), clock=clock)
    token = running.create(METERS).token
    good = file_of(tmp_path).read_bytes()
    file_of(tmp_path).write_text(text)
    clock.advance("1s")
    for gate in (running, TokenGate(str(tmp_path), clock=clock), TokenGate(str(tmp_path), "required", clock=clock)):
        for shown in (token, None):
            with pytest.raises(Damaged, match=r"tokens\.json"):
                gate.authenticate(shown)
        with pytest.raises(Damaged):
            _ = gate.closed
        with pytest.raises(Damaged):
            gate.create(CreateToken("another"))
    assert file_of(tmp_path).read_text() == text
    file_of(tmp_path).write_bytes(good)
    clock.advance("1s")
    assert running.authenticate(token).name == "meters"


def test_a_good_file_with_one_token_is_not_taken_for_damaged(tmp_path: Path) -> None:
    file_of(tmp_path).write_text(_with_token())
    assert [each.id for each in TokenGate(str(tmp_path)).tokens()] == ["0123456789"]


def test_a_file_of_a_later_format_lets_nobody_in(tmp_path: Path) -> None:
    file_of(tmp_path).write_text(json.dumps({"format": 2, "closed": False, "tokens": []}))
    with pytest.raises(FormatTooNew):
        TokenGate(str(tmp_path)).authenticate(None)


def test_a_file_that_vanishes_does_not_open_a_running_gate(gate: TokenGate, tmp_path: Path, clock: ManualClock) -> None:
    token = gate.create(METERS).token
    file_of(tmp_path).unlink()
    clock.advance("1s")
    for shown in (None, token):
        with pytest.raises(Unavailable, match="is gone"):
            gate.authenticate(shown)
    fresh = gate.create(METERS).token
    assert gate.authenticate(fresh).name == "meters"
    with pytest.raises(Unauthenticated):
        gate.authenticate(token)


def test_a_file_that_cannot_be_looked_at_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "not-a-directory").write_text("")
    with pytest.raises(Unavailable):
        TokenGate(str(tmp_path / "not-a-directory")).authenticate(None)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.value)
def test_a_power_cut_leaves_the_old_file_or_the_new_and_what_was_told_stays(tmp_path: Path, variant: Variant) -> None:
    told = 0
    for step in range(1, 20):
        directory = tmp_path / str(step)
        directory.mkdir()
        storage = FaultyStorage(LocalStorage(), step, root=directory)
        gate = TokenGate(str(directory), storage=storage)
        old = gate.create(METERS).token
        storage.crash_at(len(storage.durable_steps) + step)
        new = ""
        with contextlib.suppress(Crash):
            new = gate.create(CreateToken("second")).token
            gate.revoke("meters")
            told += 1
        storage.power_cut(variant, step)
        after = TokenGate(str(directory))
        names = {each.name for each in after.tokens()}
        assert names in ({"meters"}, {"meters", "second"}, {"second"})
        assert after.closed
        if new:
            assert after.authenticate(new).name == "second"
        if "meters" in names:
            assert after.authenticate(old).name == "meters"
        after.create(CreateToken("third"))
        assert not list(directory.glob("*.tmp"))
    assert 3 < told < 17


@pytest.mark.parametrize(("code", "raised"), [(errno.EIO, Unavailable), (errno.ENOSPC, DiskFull)])
def test_a_disk_that_fails_changes_nothing(tmp_path: Path, code: int, raised: type[MillpondError]) -> None:
    old = TokenGate(str(tmp_path)).create(METERS).token
    for kind in ("create", "write", "sync", "rename"):
        storage = FaultyStorage(LocalStorage())
        gate = TokenGate(str(tmp_path), storage=storage)
        storage.fail(kind=kind, path="tokens.json", code=code)
        with pytest.raises(raised, match=r"tokens\.json cannot be written"):
            gate.create(CreateToken(f"second-{kind}"))
        assert gate.authenticate(old).name == "meters"
        assert [each.name for each in gate.tokens()] == ["meters"]
