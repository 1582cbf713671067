"""A journal file after a crash: a torn tail is told from damage, and nothing is guessed (I1)."""

from __future__ import annotations

import pytest

from millpond.errors import Damaged, FormatTooNew
from millpond.log.embedded import frame as frames
from millpond.log.embedded import journal_file
from millpond.log.embedded.frame import Draft, crc32
from millpond.log.embedded.journal_file import FILE_HEADER_BYTES, Scan

POND = bytes(range(16))


def frame(base: int, synced: int, *, last: bool = True, kind: int = frames.ARROW) -> bytes:
    payload = b"" if kind == frames.END else bytes(40)
    return b"".join(frames.encode(Draft(kind, 7, 1, 0, 1, 0, 0, payload, crc32(payload)), base, synced, last=last)[0])


HEADER = journal_file.encode_header(3, POND, 0)
FRAME = len(frame(0, 0))


def scan(data: bytes, *, last: bool = True) -> Scan:
    return journal_file.scan(memoryview(data), "x.journal", 3, POND, last=last)


def test_complete_groups_are_found_and_an_incomplete_one_is_not() -> None:
    data = HEADER + frame(0, 64) + frame(1, 64, last=False) + frame(2, 64) + frame(3, 64, last=False)
    found = scan(data)
    assert [f.base for f in found.frames] == [0, 1, 2]
    assert found.torn_bytes == FRAME


@pytest.mark.parametrize("cut", range(1, FRAME))
def test_a_last_frame_torn_at_any_byte_is_a_torn_tail(cut: int) -> None:
    whole = HEADER + frame(0, 64)
    found = scan(whole + frame(1, 64)[:cut])
    assert [f.base for f in found.frames] == [0]
    assert (found.good_end, found.torn_bytes) == (len(whole), cut)


def test_unsynced_pages_may_be_lost_out_of_order_and_are_still_a_torn_tail() -> None:
    unsynced = frame(1, len(HEADER) + FRAME) + frame(2, len(HEADER) + FRAME)
    data = bytearray(HEADER + frame(0, 64) + unsynced)
    hole = len(HEADER) + FRAME + 10
    data[hole : hole + 30] = bytes(30)
    found = scan(bytes(data))
    assert [f.base for f in found.frames] == [0]
    assert found.torn_bytes == 2 * FRAME


def test_damage_to_what_a_later_frame_knows_was_synced_stops_with_file_and_position() -> None:
    data = bytearray(HEADER + frame(0, 64) + frame(1, 64) + frame(2, len(HEADER) + 2 * FRAME))
    data[len(HEADER) + FRAME + 20] ^= 1
    with pytest.raises(Damaged, match=rf"x\.journal: damaged at byte {len(HEADER) + FRAME} ") as caught:
        scan(bytes(data))
    assert "restore" in caught.value.hint


def test_damage_in_a_cleanly_closed_file_is_never_taken_for_a_torn_tail() -> None:
    end = frame(0, len(HEADER) + FRAME, kind=frames.END)
    data = bytearray(HEADER + frame(0, 64) + end)
    assert scan(bytes(data)).clean
    for position in range(len(HEADER), len(HEADER) + FRAME):
        broken = bytearray(data)
        broken[position] ^= 0x40
        with pytest.raises(Damaged):
            scan(bytes(broken))


def test_an_older_file_must_be_whole() -> None:
    whole = HEADER + frame(0, 64)
    with pytest.raises(Damaged, match="end mark"):
        scan(whole, last=False)
    with pytest.raises(Damaged, match="damaged at byte"):
        scan(whole + b"rubbish", last=False)
    assert scan(whole + frame(0, len(whole), kind=frames.END), last=False).clean


def test_a_file_whose_creation_was_cut_short_holds_nothing() -> None:
    for size in (0, 1, 63):
        assert scan(HEADER[:size]).good_end == 0
    assert scan(bytes(4096)).good_end == 0


def test_a_damaged_header_before_good_frames_stops() -> None:
    data = bytearray(HEADER + frame(0, 64))
    data[20] ^= 1
    with pytest.raises(Damaged, match="header"):
        scan(bytes(data))


def test_a_format_from_the_future_is_refused() -> None:
    head = bytearray(HEADER)
    head[8] = journal_file.VERSION + 1
    head[60:] = crc32(bytes(head[:60])).to_bytes(4, "little")
    with pytest.raises(FormatTooNew, match="journal format 2"):
        scan(bytes(head) + frame(0, 64))


def test_a_file_of_another_pond_is_refused() -> None:
    with pytest.raises(Damaged, match="another pond"):
        journal_file.scan(memoryview(HEADER), "x.journal", 3, bytes(16), last=True)
    assert len(HEADER) == FILE_HEADER_BYTES
