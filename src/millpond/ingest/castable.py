"""Which Arrow types stand in for which: what may be cast on the way in, and what only looks alike.

A cast is allowed when it keeps the value (widths, encodings, resolutions) and refused when it would have to interpret
it (text as a number, a number as a flag, a moment as a day). Whether each *value* survives is for the cast to say.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

_types = pa.types
_TEXT = (_types.is_string, _types.is_large_string, _types.is_string_view)
_BINARY = (_types.is_binary, _types.is_large_binary, _types.is_binary_view, _types.is_fixed_size_binary)
_LISTS = (_types.is_list, _types.is_large_list, _types.is_fixed_size_list)
_DATES = (_types.is_date32, _types.is_date64)


def _any(kind: pa.DataType, tests: tuple[Callable[[pa.DataType], bool], ...]) -> bool:
    return any(test(kind) for test in tests)


def unsafe(kind: pa.DataType) -> str:
    """Why no value of a type may be looked at, however valid it is; "" if they may.

    Arrow takes any scale for a decimal, and then reads its table of powers of ten outside of it (a crash), or writes as
    many zeros as the scale says (gigabytes)."""
    if _types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        return f"decimals of {kind.precision} digits, {kind.scale} of them after the point, are not taken"
    if _types.is_dictionary(kind):
        return unsafe(kind.value_type)
    if _types.is_nested(kind):
        return next(filter(None, (unsafe(kind.field(index).type) for index in range(kind.num_fields))), "")
    return ""


def why_not(source: pa.DataType, target: pa.DataType, *, whole_floats: bool = False, nested: bool = False) -> str:
    """ "" if columns of `source` may be cast to `target`, the reason otherwise.

    `whole_floats`: floats may stand for integers, as they do in pandas as soon as a value is missing.
    """
    if source.equals(target) or _types.is_null(source):
        return ""
    if isinstance(source, pa.BaseExtensionType):
        return f"extension type {source} is not taken: append its storage"
    if _types.is_dictionary(source):
        inner = source.value_type
        if _types.is_nested(inner) or _types.is_dictionary(inner) or _types.is_null(inner):
            return f"{source} is not taken: decode it first"
        return why_not(inner, target, whole_floats=whole_floats, nested=nested)
    if _types.is_struct(target) and _types.is_struct(source):
        return _why_not_struct(source, target, whole_floats)
    if _types.is_map(target) and _types.is_map(source):
        return why_not(source.key_type, target.key_type, nested=True) or why_not(
            source.item_type, target.item_type, whole_floats=whole_floats, nested=True
        )
    if _types.is_list(target) and _any(source, _LISTS):
        return why_not(source.value_type, target.value_type, whole_floats=whole_floats, nested=True)
    if _leaf_fits(source, target, whole_floats, nested):
        return ""
    return f"{source} is not taken for {target}"


def _leaf_fits(source: pa.DataType, target: pa.DataType, whole_floats: bool, nested: bool) -> bool:
    if _types.is_integer(target):
        return bool(_types.is_integer(source) or (whole_floats and _types.is_floating(source)))
    if _types.is_floating(target):
        return bool(_types.is_integer(source) or _types.is_floating(source) or _types.is_decimal(source))
    if _types.is_decimal(target):
        # Arrow asks integers for room for all of their type's digits; only at the top it is worked around.
        return bool(_types.is_decimal(source) or (_types.is_integer(source) and not nested))
    if _types.is_timestamp(target):
        return bool(_types.is_timestamp(source))
    return any(
        _any(target, family) and _any(source, family) for family in (_TEXT, _BINARY, _DATES, (_types.is_boolean,))
    )


def _why_not_struct(source: pa.DataType, target: pa.DataType, whole_floats: bool) -> str:
    theirs = [source.field(index) for index in range(source.num_fields)]
    ours = {target.field(index).name: target.field(index) for index in range(target.num_fields)}
    names = [field.name for field in theirs]
    if len(set(names)) != len(names):
        return "a field is there twice"
    for field in theirs:
        if field.name not in ours:
            return f"no field {field.name!r} in {target}"
        reason = why_not(field.type, ours[field.name].type, whole_floats=whole_floats, nested=True)
        if reason:
            return f"field {field.name!r}: {reason}"
    missing = [name for name, field in ours.items() if name not in names and not field.nullable]
    return f"field {missing[0]!r} is missing" if missing else ""
