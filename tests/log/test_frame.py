"""The journal's frame: written and read back, and never misread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.log.embedded import frame as frames
from millpond.log.embedded.frame import Draft, crc32


def draft(payload: bytes, producer: bytes = b"", sequence: int = 0) -> Draft:
    return Draft(frames.ARROW, 7, 1, 3, 10, 1_700_000_000_000_000, 2, payload, crc32(payload), producer, sequence)


def written(one: Draft, base: int = 5, synced: int = 64, last: bool = True) -> bytes:
    return b"".join(frames.encode(one, base, synced, last=last)[0])


payloads = st.binary(max_size=300) | st.binary(min_size=4_090, max_size=4_110)


@given(payloads, st.binary(max_size=40), st.integers(0, 2**62), st.integers(0, 2**40), st.booleans())
def test_a_frame_reads_back_as_written(payload: bytes, producer: bytes, base: int, synced: int, last: bool) -> None:
    one = draft(payload, producer, 9)
    data = written(one, base, synced, last)
    found = frames.decode(memoryview(data), 0)
    assert found is not None
    assert frames.encode(one, base, synced, last=last)[1] == found.payload_at
    assert len(data) == found.end
    assert data[found.payload_at : found.payload_at + found.payload_bytes] == payload
    assert (found.base, found.synced, found.producer, found.sequence) == (base, synced, producer, 9)
    assert (found.stream, found.generation, found.streamlet, found.rows, found.schema_version) == (7, 1, 3, 10, 2)
    assert bool(found.flags & frames.LAST_OF_GROUP) == last
    assert found.payload_at % 8 == 0


def test_every_flipped_bit_that_matters_is_detected() -> None:
    data = written(draft(b"some payload", b"p"))
    found = frames.decode(memoryview(data), 0)
    assert found is not None
    padding = {*range(frames.HEADER_BYTES + 1, found.payload_at), *range(found.payload_at + 12, len(data))}
    for position in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            damaged = frames.decode(memoryview(bytes(broken)), 0)
            assert (damaged == found) if position in padding else (damaged is None), (position, bit)


@pytest.mark.parametrize("cut", range(0, 104))
def test_a_frame_cut_short_is_no_frame(cut: int) -> None:
    data = written(draft(b"some payload", b"p"))
    assert len(data) == 104
    whole = frames.decode(memoryview(data), 0)
    assert whole is not None
    needed = whole.payload_at + whole.payload_bytes
    assert (frames.decode(memoryview(data[:cut]), 0) is None) == (cut < needed)
