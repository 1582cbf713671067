"""Request bodies: nothing becomes larger than its limit, and nothing but our own errors comes out."""

from __future__ import annotations

import contextlib
import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidInput, TooLarge, UnsupportedMediaType
from millpond.serve.bodies import BodyBuffer, check_json_depth, decompressed, json_depth

ROOM = 1_000_000


# Collecting.


def test_a_body_is_collected_up_to_the_limit() -> None:
    body = BodyBuffer(10, "10")
    body.add(b"12345")
    body.add(b"67890")
    assert body.whole() == b"1234567890"
    with pytest.raises(TooLarge, match="10 B"):
        body.add(b"x")
    assert BodyBuffer(10).whole() == b""


@pytest.mark.parametrize("length", ["11", "9" * 10_000, "99999999999999999999"])
def test_a_body_that_says_it_is_too_large_is_refused_at_once(length: str) -> None:
    with pytest.raises(TooLarge):
        BodyBuffer(10, length)


@pytest.mark.parametrize("length", ["", "-1", "+1", "1.0", "ten", "1,1", "١", " 1", "1_0", "0x1"])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    with pytest.raises(InvalidInput, match="Content-Length"):
        BodyBuffer(10, length)


# Decompressing.


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


FORMS = {
    "gzip": [gzip.compress, lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])],
    "deflate": [zlib.compress, raw_deflate],
}


@given(
    st.binary(max_size=300_000)
    | st.builds(lambda piece, count: piece * count, st.binary(max_size=9), st.integers(0, 50_000))
)
def test_what_was_compressed_comes_back(data: bytes) -> None:
    for encoding, forms in FORMS.items():
        for compress in forms:
            assert decompressed(compress(data), encoding, ROOM) == data
    assert decompressed(data, None, ROOM) == data
    assert decompressed(data, "identity", ROOM) == data


def test_the_encodings_name_is_read_as_http_means_it() -> None:
    assert decompressed(gzip.compress(b"x"), " GZip ", ROOM) == b"x"
    assert decompressed(gzip.compress(b"x"), "x-gzip", ROOM) == b"x"
    for other in ("br", "gzip, gzip", "zstd"):
        with pytest.raises(UnsupportedMediaType):
            decompressed(b"", other, ROOM)


@pytest.mark.parametrize("encoding", list(FORMS))
def test_a_bomb_is_dropped_before_it_has_grown(encoding: str) -> None:
    bomb = FORMS[encoding][0](bytes(300_000_000))
    assert len(bomb) < 400_000
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="decoded_bytes_max"):
            decompressed(bomb, encoding, ROOM)
        assert tracemalloc.get_traced_memory()[1] < 5 * ROOM
    finally:
        tracemalloc.stop()


def test_the_limit_is_exact() -> None:
    assert len(decompressed(gzip.compress(bytes(ROOM)), "gzip", ROOM)) == ROOM
    with pytest.raises(TooLarge):
        decompressed(gzip.compress(bytes(ROOM + 1)), "gzip", ROOM)


def test_thousands_of_empty_bodies_in_a_row_are_refused() -> None:
    with pytest.raises(InvalidInput, match="in a row"):
        decompressed(gzip.compress(b"") * 100_000, "gzip", ROOM)


@pytest.mark.parametrize("encoding", list(FORMS))
@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_body_that_was_cut_is_refused(encoding: str, cut: int) -> None:
    for compress in FORMS[encoding]:
        with pytest.raises(InvalidInput):
            decompressed(compress(b"hello " * 10)[:-cut], encoding, ROOM)
    with pytest.raises(InvalidInput):
        decompressed(b"", encoding, ROOM)


def test_what_follows_a_body_is_refused() -> None:
    for encoding, forms in FORMS.items():
        with pytest.raises(InvalidInput):
            decompressed(forms[0](b"x") + b"more", encoding, ROOM)


@given(st.binary(max_size=2_000), st.sampled_from(list(FORMS)))
def test_other_bytes_are_refused_and_nothing_else_happens(data: bytes, encoding: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert len(decompressed(data, encoding, 10_000)) <= 10_000


@given(st.binary(min_size=20, max_size=2_000), st.data())
def test_damaged_bodies_are_refused_or_read(data: bytes, draw: st.DataObject) -> None:
    body = bytearray(gzip.compress(data))
    body[draw.draw(st.integers(0, len(body) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with contextlib.suppress(InvalidInput):
        assert decompressed(bytes(body), "gzip", 10_000) == data


# JSON.


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet=st.sampled_from('ab"\\[]{}\n é')),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a"\\[{'), inner, max_size=4),
    max_leaves=40,
)


@given(VALUES, st.booleans(), st.none() | st.integers(0, 2))
def test_the_depth_is_that_of_the_value(value: Any, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert json_depth(body) == depth_of(value)


@given(st.lists(VALUES, min_size=1, max_size=10))
def test_the_depth_of_lines_is_that_of_the_deepest(values: list[Any]) -> None:
    body = b"\n".join(json.dumps(value).encode() for value in values)
    assert json_depth(body) == max(map(depth_of, values))


def test_the_limit_of_the_depth_is_exact() -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        check_json_depth(opening * 64 + b"1" + closing * 64, 64)
        with pytest.raises(TooLarge, match="64"):
            check_json_depth(opening * 65 + b"1" + closing * 65, 64)
    with pytest.raises(TooLarge):
        check_json_depth(b"[" * 1_000_000, 64)


def test_many_flat_records_are_not_deep() -> None:
    check_json_depth(b'{"a": [1, 2], "text": "[[[[[["}\n' * 10_000, 4)
    check_json_depth(b"[" + b",".join([b'{"t": "\\"[[[\\\\"}'] * 10_000) + b"]", 4)


@given(st.binary(max_size=500), st.text(alphabet='"\\[]{},:a1 \n', max_size=500))
def test_no_bytes_upset_the_check(data: bytes, text: str) -> None:
    for body in (data, text.encode()):
        assert json_depth(body) >= 0
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            continue
        assert json_depth(body) == depth_of(value)
