"""Files: bytes by position over a stream, the same embedded and connected, live and settled."""

from __future__ import annotations

import gc
import io
import threading
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import Fenced, FileLocked, InvalidInput, InvalidValue, NotAFile, StreamExists, StreamNotFound
from millpond.files.writing import PIECE_BYTES

CAMERA = "sensors/cam1"


def written(pond: Any, *parts: bytes) -> None:
    with pond.open_file(CAMERA, "a") as file:
        for part in parts:
            file.append(part)


def whole(pond: Any) -> bytes:
    with pond.open_file(CAMERA) as file:
        found: bytes = file.read()
        return found


def test_what_is_appended_is_read_from_both_halves(pond: Any) -> None:
    written(pond, b"frame one;", b"frame two;")
    pond.stream(CAMERA).settle()
    written(pond, b"frame three;")
    assert whole(pond) == b"frame one;frame two;frame three;"


def test_a_file_is_a_stream_whose_events_say_which_bytes_they_hold(pond: Any) -> None:
    written(pond, b"abc", b"defgh")
    rows = pond.stream(CAMERA).scan(columns=["headers", "body"]).to_pylist()
    assert [(dict(row["headers"]), row["body"]) for row in rows] == [
        ({"position": "0", "end": "3"}, b"abc"),
        ({"position": "3", "end": "8"}, b"defgh"),
    ]


def test_python_reads_it_as_any_file(pond: Any) -> None:
    written(pond, b"one\ntw", b"o\nthree\n", b"four")
    with pond.open_file(CAMERA) as file:
        assert (file.readable(), file.seekable(), file.writable(), file.mode) == (True, True, False, "rb")
        assert list(file) == [b"one\n", b"two\n", b"three\n", b"four"]
        assert file.read() == b""
        assert file.seek(-4, io.SEEK_END) == 14
        room = bytearray(10)
        assert file.readinto(room) == 4
        assert bytes(room[:4]) == b"four"
        file.seek(4)
        assert io.TextIOWrapper(file).readline() == "two\n"
    assert file.closed
    with pytest.raises(ValueError, match="closed file"):
        file.read()


def test_a_reader_at_the_end_goes_on_when_there_is_more(pond: Any) -> None:
    written(pond, b"abc")
    with pond.open_file(CAMERA) as file:
        assert file.read() == b"abc"
        assert file.read() == b""
        written(pond, b"de")
        assert file.read() == b"de"
        file.seek(9)
        assert file.read() == b""
        written(pond, b"fghijkl")
        assert (file.tell(), file.read()) == (9, b"jkl")


def test_a_follower_waits_for_more_and_ends_when_it_is_closed(pond: Any) -> None:
    written(pond, b"one\ntwo")
    file = pond.open_file(CAMERA, follow=True)
    assert file.readline() == b"one\n"
    lines: list[bytes] = []
    ended = threading.Event()

    def follow() -> None:
        lines.append(file.readline())
        waiting.set()
        try:
            lines.append(file.read(5))
        except ValueError:  # closed before it began to wait
            lines.append(b"")
        ended.set()

    waiting = threading.Event()
    reader = threading.Thread(target=follow)
    reader.start()
    written(pond, b" and three\n")
    assert waiting.wait(30)
    assert lines == [b"two and three\n"]
    file.close()
    reader.join(30)
    assert ended.is_set()
    assert lines[1:] == [b""]


def test_a_large_append_is_one_and_is_read_in_pieces(pond: Any) -> None:
    large = bytes(range(256)) * (3 * PIECE_BYTES // 256) + b"tail"
    with pond.open_file(CAMERA, "a") as file:
        ack = file.append(large)
        assert len(ack.ranges[0]) == 4
        assert file.tell() == len(large)
    with pond.open_file(CAMERA) as file:
        file.seek(2 * PIECE_BYTES - 3)
        assert file.read(8) == large[2 * PIECE_BYTES - 3 : 2 * PIECE_BYTES + 5]
        assert file.read1(10) == large[2 * PIECE_BYTES + 5 : 2 * PIECE_BYTES + 15]
        file.seek(0)
        assert file.read() == large


@pytest.mark.embedded
def test_an_append_over_the_bound_leaves_nothing(ponds: Any) -> None:
    pond = ponds(append_bytes_max=100_000)
    with pond.open_file(CAMERA, "a") as file:
        file.append(b"x" * 90_000)
        with pytest.raises(InvalidInput, match=r"at most 100\.0 KB"):
            file.append(b"y" * 100_001)
        file.append(b"z")
    assert whole(pond) == b"x" * 90_000 + b"z"


def test_modes(pond: Any) -> None:
    with pytest.raises(StreamNotFound):
        pond.open_file(CAMERA)
    with pond.open_file(CAMERA, "x") as file:
        assert file.write(memoryview(b"abc")) == 3
        assert (file.writable(), file.readable(), file.seekable()) == (True, False, False)
    with pytest.raises(StreamExists):
        pond.open_file(CAMERA, "x")
    with pytest.raises(InvalidValue, match="no mode 'w'"):
        pond.open_file(CAMERA, "w")
    with pytest.raises(InvalidValue, match="held by nobody"):
        pond.open_file(CAMERA, "r", exclusive=True)
    with pytest.raises(InvalidValue, match="not text"), pond.open_file(CAMERA, "a") as file:
        file.write("text")


def test_only_files_are_opened_listed_and_deleted_as_such(pond: Any) -> None:
    written(pond, b"abc")
    pond.create_stream("sensors/events")
    assert pond.files() == pond.files("sensors/") == [CAMERA]
    assert pond.files("other/") == []
    for mode in ("r", "a"):
        with pytest.raises(NotAFile, match="no file"):
            pond.open_file("sensors/events", mode)
    with pytest.raises(NotAFile):
        pond.delete_file("sensors/events")
    pond.delete_file(CAMERA)
    assert pond.files() == []
    with pytest.raises(StreamNotFound):
        pond.open_file(CAMERA)


def test_events_that_are_appended_to_its_stream_become_bytes_of_the_file(pond: Any) -> None:
    written(pond, b"abc")
    pond.stream(CAMERA).append([{"body": b"de"}, {"body": "f", "headers": {"a": "b"}}])
    pond.stream(CAMERA).append("g")
    assert whole(pond) == b"abcdefg"


def test_writers_share_a_file_and_their_appends_do_not_mix(pond: Any) -> None:
    def write(letter: bytes) -> None:
        with pond.open_file(CAMERA, "a") as file:
            for _ in range(25):
                file.append(letter * 7)

    with pond.open_file(CAMERA, "a"):
        threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    found = whole(pond)
    parts = [found[at : at + 7] for at in range(0, len(found), 7)]
    assert sorted(parts) == [b"a" * 7] * 25 + [b"b" * 7] * 25 + [b"c" * 7] * 25


def test_a_writer_may_hold_a_file_alone(pond: Any) -> None:
    shared = pond.open_file(CAMERA, "a")
    shared.append(b"a")
    alone = pond.open_file(CAMERA, "a", exclusive=True)
    assert alone.exclusive
    with pytest.raises(FileLocked, match="held by another"):
        shared.append(b"not this")
    with pytest.raises(FileLocked):
        pond.open_file(CAMERA, "a", exclusive=True)
    alone.append(b"b")
    assert whole(pond) == b"ab"
    alone.close()
    shared.append(b"c")
    shared.close()
    assert whole(pond) == b"abc"


def test_a_lock_dies_with_a_handle_that_is_forgotten(pond: Any) -> None:
    alone = pond.open_file(CAMERA, "a", exclusive=True)
    alone.append(b"a")
    del alone
    gc.collect()
    with pond.open_file(CAMERA, "a", exclusive=True) as file:
        file.append(b"b")
    assert whole(pond) == b"ab"


def test_the_file_goes_on_after_a_reopen(ponds: Any) -> None:
    pond = ponds()
    written(pond, b"abc")
    pond.stream(CAMERA).settle()
    written(pond, b"def")
    pond.close()
    again = ponds()
    with again.open_file(CAMERA, "a") as file:
        assert file.tell() == 6
        file.append(b"ghi")
        assert file.tell() == 9
    assert whole(again) == b"abcdefghi"
    assert again.files() == [CAMERA]


def test_a_writer_whose_file_was_deleted_is_told(pond: Any) -> None:
    with pond.open_file(CAMERA, "a") as file:
        file.append(b"abc")
        pond.delete_file(CAMERA)
        with pytest.raises(StreamNotFound):
            file.append(b"def")


@pytest.mark.embedded
def test_a_lease_that_is_over_goes_to_who_asks_and_its_old_holder_is_refused(tmp_path: Path) -> None:
    from millpond.testing import ManualClock

    clock = ManualClock()
    with millpond.open(tmp_path / "p", background=False, disk_reserve_bytes=0, clock=clock) as pond:
        pond.create_stream(CAMERA, file=True)
        file = pond.stream(CAMERA).file
        first = file.lock(10.0)
        file.append([b"a"], epoch=first.epoch)
        clock.advance("9s")
        assert file.lock(10.0, first.epoch) == first
        clock.advance("9s")
        with pytest.raises(FileLocked):
            file.lock(10.0)
        clock.advance("20s")
        file.append([b"b"], epoch=first.epoch)  # nobody asked for it meanwhile
        clock.advance("11s")
        second = file.lock(10.0)
        assert second.epoch > first.epoch
        with pytest.raises(Fenced, match="lost"):
            file.append([b"not this"], epoch=first.epoch)
        with pytest.raises(Fenced):
            file.lock(10.0, first.epoch)
        file.unlock(first.epoch)
        file.append([b"c"], epoch=second.epoch)
        with pytest.raises(FileLocked):
            file.append([b"not this"])
        clock.advance("11s")
        file.append([b"d"])
        assert whole(pond) == b"abcd"
