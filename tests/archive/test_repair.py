"""What a power cut can leave is set aside, with the evidence kept; anything else is refused, and nothing is touched."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from millpond.errors import Damaged
from tests.archive.settled_stream import SettledStream, expected, read_all


@pytest.fixture
def settled(stream: SettledStream) -> SettledStream:
    """Versions 0 to 3; version 3 settled offsets [10, 15)."""
    for stop in (5, 10, 15):
        stream.settle_to({0: stop})
    return stream


def commit_path(stream: SettledStream, version: int) -> Path:
    return Path(stream.root, "_delta_log", f"{version:020d}.json")


def opens_one_version_younger(stream: SettledStream, content: bytes) -> None:
    newest = commit_path(stream, 3)
    whole = newest.read_bytes()
    newest.write_bytes(content)
    snapshot = stream.reopen()
    assert snapshot.boundary == {0: 10}
    assert read_all(snapshot).equals(expected({0: 10}))
    (aside,) = stream.archive.set_aside
    assert Path(stream.root, aside).read_bytes() == content, "the evidence is kept"
    assert not newest.exists()
    stream.settle_to({0: 12})
    assert read_all(stream.reopen()).equals(expected({0: 12}))
    # As it was, for the next one.
    newest.write_bytes(whole)


def test_a_newest_commit_that_was_cut_off_anywhere_is_set_aside(settled: SettledStream) -> None:
    """C5: cut between two lines, deltalake would take it for a smaller commit."""
    whole = commit_path(settled, 3).read_bytes()
    lines = [at for at, byte in enumerate(whole) if byte == 10]
    rng = random.Random(5)
    for length in (0, 1, *lines, *(at + 1 for at in lines), *rng.sample(range(2, len(whole)), 12), len(whole) - 1):
        opens_one_version_younger(settled, whole[:length])


@pytest.mark.parametrize("seed", range(8))
def test_a_newest_commit_of_zeros_or_garbage_is_set_aside(settled: SettledStream, seed: int) -> None:
    size = len(commit_path(settled, 3).read_bytes())
    opens_one_version_younger(settled, bytes(size) if seed == 0 else random.Random(seed).randbytes(size))


def test_a_torn_creation_is_as_if_nothing_had_settled(stream: SettledStream) -> None:
    stream.settle_to({0: 5})
    commit_path(stream, 1).unlink()
    first = commit_path(stream, 0)
    first.write_bytes(first.read_bytes()[:100])
    snapshot = stream.reopen()
    assert snapshot.version == -1
    stream.settle_to({0: 5})
    assert read_all(stream.reopen()).equals(expected({0: 5}))


@pytest.mark.parametrize("content", [b"", b'{"commitInfo":', b"\0" * 900])
def test_an_older_commit_that_is_torn_is_refused(settled: SettledStream, content: bytes) -> None:
    commit_path(settled, 2).write_bytes(content)
    with pytest.raises(Damaged, match=r"0002\.json") as refused:
        settled.open()
    assert "backup" in refused.value.hint
    assert not Path(settled.root, "_torn").exists()
    assert commit_path(settled, 2).read_bytes() == content


def test_a_missing_commit_is_refused(settled: SettledStream) -> None:
    commit_path(settled, 2).unlink()
    with pytest.raises(Damaged, match=r"0002\.json: is missing"):
        settled.open()


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version":15', '"version":14'),
        ('"appId":"pond-1/7/g1/s0"', '"appId":"pond-1/7/g1/s1"'),
        ("-000000000003-", "-000000000007-"),
        ('"size":', '"size":1'),
        ('"txn"', '"tyn"'),
        ('"commitInfo"', '"commitInfp"'),
        ("millpond.state", "millpond.stats"),
        ("millpond.actions", "millpond.action"),
    ],
)
def test_a_newest_commit_that_says_something_else_is_refused(settled: SettledStream, old: str, new: str) -> None:
    """A file that is whole and was changed is damage, not a torn write: nothing is served and nothing is moved."""
    changed(commit_path(settled, 3), old, new)
    with pytest.raises(Damaged):
        settled.open()
    assert not Path(settled.root, "_torn").exists()


def test_a_changed_byte_in_an_older_commit_is_found_by_the_next(settled: SettledStream) -> None:
    changed(commit_path(settled, 2), "delta-rs", "delta-rt")
    with pytest.raises(Damaged, match=r"0002\.json: its checksum"):
        settled.open()


@pytest.mark.parametrize("content", [b"", b"\0" * 500, b"PAR1", "half", "garbage"])
def test_a_bad_delta_checkpoint_is_set_aside_for_its_commits(settled: SettledStream, content: bytes | str) -> None:
    """B7: a checkpoint only repeats what commit files say."""
    settled.archive.checkpoint()
    settled.settle_to({0: 20})
    (checkpoint,) = Path(settled.root, "_delta_log").glob("*.checkpoint.parquet")
    data = checkpoint.read_bytes()
    made = {"half": data[: len(data) // 2], "garbage": data[:4] + random.Random(1).randbytes(200) + data[204:]}
    checkpoint.write_bytes(made[content] if isinstance(content, str) else content)
    snapshot = settled.reopen()
    assert read_all(snapshot).equals(expected({0: 20}))
    assert len(settled.archive.set_aside) == 2, "the checkpoint, and the hint that names it"
    settled.archive.checkpoint()
    assert read_all(settled.reopen()).equals(expected({0: 20}))


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":77}', b"[]", b"\xff"])
def test_a_bad_hint_to_the_delta_checkpoint_is_set_aside(settled: SettledStream, content: bytes) -> None:
    settled.archive.checkpoint()
    Path(settled.root, "_delta_log", "_last_checkpoint").write_bytes(content)
    assert read_all(settled.reopen()).equals(expected({0: 15}))
    assert len(settled.archive.set_aside) == 1


def test_a_checkpoint_is_used_when_older_commits_are_gone(settled: SettledStream) -> None:
    """Other engines clean the log up; the checkpoint is then all there is."""
    settled.archive.checkpoint()
    settled.settle_to({0: 20})
    for version in (0, 1, 2):
        commit_path(settled, version).unlink()
    snapshot = settled.reopen()
    assert read_all(snapshot).equals(expected({0: 20}))
    assert snapshot.objects.unknown == 0


def test_a_checkpoint_that_nobody_vouches_for_is_checked_by_what_it_leads_to(settled: SettledStream) -> None:
    settled.archive.checkpoint()
    settled.settle_to({0: 20})
    for version in (0, 1, 2):
        commit_path(settled, version).unlink()
    Path(settled.root, "_index", "_last_checkpoint").unlink()
    assert read_all(settled.reopen()).equals(expected({0: 20}))


def test_what_staging_left_in_the_log_does_not_disturb(settled: SettledStream) -> None:
    for name in ("00000000000000000004.json#1", "_commit_0f.json.tmp", "00000000000000000003.json.ab12.tmp"):
        Path(settled.root, "_delta_log", name).write_text("{")
    assert read_all(settled.reopen()).equals(expected({0: 15}))
    settled.settle_to({0: 20})
    assert read_all(settled.reopen()).equals(expected({0: 20}))


def test_a_missing_object_is_damage(settled: SettledStream) -> None:
    """Objects are durable before their commit: one that is gone was taken away."""
    path = settled.archive.snapshot().objects.paths[-1]
    Path(settled.root, path).unlink()
    snapshot = settled.reopen()
    with pytest.raises(Damaged, match="is missing"):
        read_all(snapshot)
    assert [(f.severity, f.path) for f in settled.archive.verify()] == [("error", path)]


def test_commits_of_another_engine_are_believed_with_a_warning(settled: SettledStream) -> None:
    """B1: someone optimised the table with their own tools; rows and boundary are still ours."""
    from deltalake import DeltaTable

    DeltaTable(settled.root).optimize.compact()
    snapshot = settled.reopen()
    assert read_all(snapshot).equals(expected({0: 15}))
    assert snapshot.boundary == {0: 15}
    assert any("another engine" in warning for warning in snapshot.warnings)
    settled.settle_to({0: 20})
    assert read_all(settled.reopen()).equals(expected({0: 20}))
    newest = json.loads(commit_path(settled, 5).read_text().splitlines()[0])
    assert newest["commitInfo"]["millpond.kind"] == "settle"
