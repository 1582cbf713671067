"""A file against the simplest model of one, `io.BytesIO`: appended, settled, sought and read, it is the same. E1"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millpond
from millpond.files import places, writing

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=40)),
        st.tuples(st.just("seek"), st.integers(-5, 120)),
        st.tuples(st.just("seek back"), st.integers(0, 20)),
        st.tuples(st.just("seek from end"), st.integers(0, 20)),
        st.tuples(st.just("read"), st.one_of(st.none(), st.integers(-1, 50))),
        st.tuples(st.just("read1"), st.integers(0, 50)),
        st.tuples(st.just("peek"), st.just(0)),
        st.tuples(st.just("readline"), st.integers(-1, 20)),
        st.tuples(st.just("readinto"), st.integers(0, 30)),
        st.tuples(st.just("settle"), st.just(0)),
    ),
    max_size=40,
)


@contextmanager
def small_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few bytes are many events, and a search has many steps."""
    with monkeypatch.context() as patch:
        patch.setattr(writing, "PIECE_BYTES", 7)
        patch.setattr(places, "_WINDOW", 2)
        yield


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_file_is_what_a_file_in_memory_is(steps: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        small_steps(monkeypatch),
        TemporaryDirectory() as directory,
        millpond.open(Path(directory) / "p", background=False, disk_reserve_bytes=0) as pond,
        pond.open_file("f", "x", durability="memory") as writer,
        pond.open_file("f") as file,
    ):
        model = io.BytesIO()
        for step, value in steps:
            at = model.tell()
            match step:
                case "append":
                    model.seek(0, io.SEEK_END)
                    model.write(value)
                    model.seek(at)
                    assert writer.write(value) == len(value)
                    assert writer.tell() == len(model.getvalue())
                case "seek" if value < 0:
                    with pytest.raises(ValueError, match="negative seek"):
                        model.seek(value)
                    with pytest.raises(millpond.errors.InvalidValue):
                        file.seek(value)
                case "seek":
                    assert file.seek(value) == model.seek(value)
                case "seek back" if value <= at:
                    assert file.seek(-value, io.SEEK_CUR) == model.seek(-value, io.SEEK_CUR)
                case "seek from end" if value <= len(model.getvalue()):
                    assert file.seek(-value, io.SEEK_END) == model.seek(-value, io.SEEK_END)
                case "read":
                    assert file.read(value) == model.read(value)
                case "read1":
                    taken = file.read1(value)
                    rest = model.read(value)
                    assert rest.startswith(taken)
                    assert bool(taken) == bool(rest)
                    model.seek(at + len(taken))
                case "peek":
                    ahead = file.peek()
                    rest = model.read()
                    assert rest.startswith(ahead)
                    assert bool(ahead) == bool(rest)
                    model.seek(at)
                case "readline":
                    assert file.readline(value) == model.readline(value)
                case "readinto":
                    ours, theirs = bytearray(value), bytearray(value)
                    assert file.readinto(ours) == model.readinto(theirs)
                    assert ours == theirs
                case "settle":
                    pond.stream("f").settle()
            assert file.tell() == model.tell()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=30), settled=st.integers(0, 30))
def test_every_byte_is_found(parts: list[bytes], settled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        small_steps(monkeypatch),
        TemporaryDirectory() as directory,
        millpond.open(Path(directory) / "p", background=False, disk_reserve_bytes=0) as pond,
        pond.open_file("f", "x", durability="memory") as writer,
    ):
        for number, part in enumerate(parts):
            writer.append(part)
            if number == settled:
                pond.stream("f").settle()
        whole = b"".join(parts)
        file = pond.open_file("f")
        for position in range(len(whole) + 1):
            place = pond.stream("f").file.place(position)
            assert place.size == len(whole)
            assert place.position <= position
            file.seek(position)
            assert file.read(3) == whole[position : position + 3]
