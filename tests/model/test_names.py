"""Names of streams: one safe grammar, and every refusal shows the rule."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidName
from millpond.model.names import NAME_LENGTH_MAX, PART_LENGTH_MAX, RULE, check_name, directory_of, view_name

LETTERS = "abcxyzABCXYZ0123456789"
parts = st.builds(str.__add__, st.sampled_from(LETTERS), st.text(LETTERS + "_.-", max_size=12))
good_names = st.lists(parts, min_size=1, max_size=6).map("/".join)


@pytest.mark.parametrize(
    "name", ["meters", "grid/meters", "a/b/c/d", "A1", "0", "a.b-c_d/e..f", "x" * 64, "/".join(["x" * 49] * 4)]
)
def test_names_that_follow_the_grammar(name: str) -> None:
    assert check_name(name) == name


@given(good_names)
def test_every_good_name_is_safe_as_a_path(name: str) -> None:
    check_name(name)
    directory = directory_of(name, 7)
    assert PurePosixPath("archive", directory).parts == ("archive", directory)
    assert directory not in (".", "..")
    assert len(directory.encode()) < 255
    assert view_name(name).isidentifier() or view_name(name)[0].isdigit()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "stream name is empty"),
        ("/", "stream name '/' has an empty part"),
        ("/grid", "stream name '/grid' has an empty part"),
        ("grid/", "stream name 'grid/' has an empty part"),
        ("grid//meters", "stream name 'grid//meters' has an empty part"),
        ("..", "stream name '..': part '..' is not allowed"),
        (".", "stream name '.': part '.' is not allowed"),
        ("grid/../secret", "stream name 'grid/../secret': part '..' is not allowed"),
        ("grid/.hidden", "stream name 'grid/.hidden': part '.hidden' is not allowed"),
        ("-rf", "stream name '-rf': part '-rf' is not allowed"),
        ("grid\\meters", r"stream name 'grid\\meters': part 'grid\\meters' is not allowed"),
        ("grid meters", "stream name 'grid meters': part 'grid meters' is not allowed"),
        ("grid\n", r"stream name 'grid\n': part 'grid\n' is not allowed"),
        ("grid\0", r"stream name 'grid\x00': part 'grid\x00' is not allowed"),
        ("\x1b[31mred", r"stream name '\x1b[31mred': part '\x1b[31mred' is not allowed"),
        ("météo", "stream name 'météo': part 'météo' is not allowed"),
        ("grid/мeters", "stream name 'grid/мeters': part 'мeters' is not allowed"),
        ("a٣", "stream name 'a٣': part 'a٣' is not allowed"),
        ("grid?x=1", "stream name 'grid?x=1': part 'grid?x=1' is not allowed"),
        ("grid%2f", "stream name 'grid%2f': part 'grid%2f' is not allowed"),
        ("_private", "stream name '_private': part '_private' is not allowed"),
        ("_pond", "stream name '_pond': '_pond/' is reserved for the pond's own streams"),
        ("_pond/catalog", "stream name '_pond/catalog': '_pond/' is reserved for the pond's own streams"),
        ("_ponds/x", "stream name '_ponds/x': part '_ponds' is not allowed"),
        ("grid/_pond", "stream name 'grid/_pond': part '_pond' is not allowed"),
        ("x" * (PART_LENGTH_MAX + 1), f"stream name '{'x' * 65}': part '{'x' * 20}'... is too long"),
        ("/".join(["xx"] * 67), "has 200 characters"),
    ],
)
def test_every_other_name_is_refused_with_the_rule(name: str, message: str) -> None:
    if "has 200" in message:
        name, message = name + "x", "has 201 characters, at most 200"
    with pytest.raises(InvalidName) as failure:
        check_name(name)
    assert message in failure.value.message
    assert failure.value.hint == RULE
    assert "'grid/meters'" in str(failure.value)


def test_long_names_are_cut_in_the_message() -> None:
    with pytest.raises(InvalidName) as failure:
        check_name("x" * 10_000)
    assert f"has 10000 characters, at most {NAME_LENGTH_MAX}" in failure.value.message
    assert len(failure.value.message) < 200


@pytest.mark.parametrize("name", [None, 7, b"grid", ["grid"], object()])
def test_only_text_is_a_name(name: Any) -> None:
    with pytest.raises(InvalidName, match=f"must be a string, got {type(name).__name__}"):
        check_name(name)


def test_the_ponds_own_names_follow_the_same_grammar() -> None:
    assert check_name("_pond/catalog", internal=True) == "_pond/catalog"
    assert check_name("grid/meters", internal=True) == "grid/meters"
    for name in ("_pond", "_pond/", "_pond//x", "_pond/../x", "_pond/_x", "_other/x"):
        with pytest.raises(InvalidName):
            check_name(name, internal=True)


@given(st.text(st.characters(codec=None), max_size=40))
def test_any_text_is_a_name_or_refused_with_the_rule(text: str) -> None:
    try:
        check_name(text)
    except InvalidName as error:
        hint = error.hint
    else:
        hint = RULE
        assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/")
    assert hint == RULE


def test_directories_and_views_are_readable() -> None:
    assert directory_of("grid/meters", 7) == "grid.meters-7"
    assert directory_of("_pond/catalog", 1) == "_pond.catalog-1"
    assert view_name("grid/meters") == "grid_meters"
    assert view_name("a.b-c/d") == "a_b_c_d"


def test_two_streams_never_share_a_directory() -> None:
    """Names may collide once '/' is written as '.', ids cannot; and no id can pass for a part of another name."""
    streams = [("a.b", 1), ("a/b", 2), ("a/b-2", 1), ("a/b-1", 2), ("a/b", 21), ("a/b-2", 11)]
    assert len({directory_of(name, number) for name, number in streams}) == len(streams)
