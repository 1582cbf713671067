"""A place in a stream, as Structured Streaming keeps it in a query's checkpoint: JSON that a person can read.

    {"pond": "5f0c…", "stream": "grid/meters", "id": 7, "generation": 1, "offsets": {"0": 120, "1": 98}}

`offsets` are those of the next record of each streamlet. Pond, id and generation say of what they are offsets: another
pond's, a dropped stream's or a truncated one's mean other records, or none. A streamlet that is not named begins at 0.

Invariant: equal places are equal texts, because Spark compares texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from millpond.errors import InvalidValue

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


@dataclass(frozen=True)
class Place:
    """One place."""

    pond: str
    stream: str
    id: int
    generation: int
    offsets: Mapping[int, int]

    @property
    def text(self) -> str:
        offsets = {str(streamlet): offset for streamlet, offset in sorted(self.offsets.items())}
        return json.dumps(
            {
                "pond": self.pond,
                "stream": self.stream,
                "id": self.id,
                "generation": self.generation,
                "offsets": offsets,
            },
            ensure_ascii=False,
        )

    @classmethod
    def parse(cls, text: str) -> Place:
        """A place from a checkpoint; `InvalidValue` if it is none."""
        try:
            plain = _DECODER.decode(text)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise InvalidValue(
                f"the checkpoint is not of a millpond source: {text[:80]!r} ({error})",
                hint="a checkpoint belongs to one query: give this one a directory of its own",
            ) from None
        return cls(plain.pond, plain.stream, plain.id, plain.generation, plain.offsets)


class _OnDisk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pond: str
    stream: str
    id: _Number
    generation: _Number
    offsets: dict[_Number, _Number]


_DECODER = msgspec.json.Decoder(_OnDisk)
