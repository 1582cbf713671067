"""How large a stream may be made through a door: an operator's bounds, under those of streams themselves."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from millpond.errors import InvalidName, InvalidSchema
from millpond.model.names import NAME_LENGTH_MAX
from millpond.model.schema import COLUMNS_MAX, count_columns


class Bounds(NamedTuple):
    """How large a stream may be made through a door; never more than streams may be at all."""

    columns_max: int = COLUMNS_MAX
    name_length_max: int = NAME_LENGTH_MAX

    def check(self, name: str, schema: pa.Schema | None) -> None:
        """`InvalidName` or `InvalidSchema` for a stream that is over them."""
        if len(name) > self.name_length_max:
            raise InvalidName(
                f"a name of {len(name)} characters, at most {self.name_length_max}",
                hint="choose a shorter one; name_length_max of the server is the bound",
            )
        if schema is not None and count_columns(schema) > self.columns_max:
            raise InvalidSchema(
                f"{count_columns(schema)} columns, the fields of structs among them, at most {self.columns_max}",
                hint="split the stream; columns_max of the server is the bound",
            )
