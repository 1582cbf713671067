"""What all requests are made of: the kinds of their fields, and the classes that say what they are about."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from millpond.model import spec
from millpond.model.names import NAME_LENGTH_MAX
from millpond.model.schema import COLUMNS_MAX, SYSTEM_COLUMNS
from millpond.wire.access import Right

# A condition longer than this is a program's mistake.
WHERE_LENGTH_MAX = 1_000_000

Name = Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)]
Where = Annotated[str, msgspec.Meta(max_length=WHERE_LENGTH_MAX)]
Column = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Columns = Annotated[tuple[Column, ...], msgspec.Meta(max_length=COLUMNS_MAX + len(SYSTEM_COLUMNS))]
# A predicate as `model.predicate` encodes it, in place of `where`, for callers who have one.
Terms = Annotated[str, msgspec.Meta(max_length=WHERE_LENGTH_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# A name that its user makes up, and nobody else has.
Stage = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
# A number with its unit, as everywhere: "60s", "128MB".
Units = Annotated[str, msgspec.Meta(max_length=40)]
# An index or a layout: "values:city", or its kind, its columns, and its options beside them (see `model.spec`).
SpecOption = bool | int | float | Annotated[str, msgspec.Meta(max_length=spec.TEXT_MAX)]
SpecColumns = Annotated[tuple[Column, ...], msgspec.Meta(min_length=1, max_length=spec.COLUMNS_MAX)]
SpecForm = Annotated[str, msgspec.Meta(max_length=spec.TEXT_MAX)] | dict[str, SpecOption | SpecColumns]
Specs = Annotated[tuple[SpecForm, ...], msgspec.Meta(max_length=spec.SPECS_MAX)]
# Where a read begins, in plain values: see `query.positions`.
Place = Annotated[str, msgspec.Meta(max_length=100_000)] | int | dict[int, int]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do"):
    """About the pond as a whole, unless it has a stream. `right` is what the caller must have there; None: nothing but
    a valid token, because the answer holds only what the caller may see."""

    right: ClassVar[Right | None] = None
    stream: ClassVar[str] = ""


class NameRequest(Request, frozen=True):
    """About the name of a stream, whether there is one or not."""

    stream: Name  # type: ignore[misc]


class StreamRequest(NameRequest, frozen=True, kw_only=True):
    """About one stream. `id`: the very stream that is meant; one that took its name since is not found then."""

    id: Count | None = None
