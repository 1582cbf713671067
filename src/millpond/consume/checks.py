"""What a group may be asked: names, strategies, columns and places, checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from millpond.consume.protocol import STRATEGIES, Join, Place
from millpond.consume.share import SINGLE_AFTER
from millpond.errors import InvalidValue
from millpond.model.definition import StreamDefinition, check_durability
from millpond.model.misfit import shown
from millpond.query import Halves
from millpond.query.positions import resolve

NAME_LENGTH_MAX = 200
# Shorter ones expire between two heartbeats of a busy machine; longer ones keep a dead member's records for days.
LEASE_SECONDS_MIN, LEASE_SECONDS_MAX = 0.1, 86_400.0


def checked_join(asked: Join, definition: StreamDefinition) -> Join:
    """What is asked, if it can be done."""
    spec = asked.spec
    check_text(spec.group, "a group's name")
    check_text(asked.instance, "an instance's name")
    check_durability(asked.durability)
    if spec.strategy not in STRATEGIES:
        raise InvalidValue(f"no strategy {shown(spec.strategy)}", hint=f"one of {', '.join(STRATEGIES)}")
    if not LEASE_SECONDS_MIN <= asked.lease_seconds <= LEASE_SECONDS_MAX:
        raise InvalidValue(
            f"a lease of {asked.lease_seconds} s", hint=f"{LEASE_SECONDS_MIN} s to {LEASE_SECONDS_MAX:.0f} s"
        )
    if asked.kills_max <= SINGLE_AFTER:
        raise InvalidValue(
            f"kills_max={asked.kills_max}", hint=f"more than {SINGLE_AFTER}: only then a record is handed out alone"
        )
    if spec.strategy == "hash":
        by = spec.by or (definition.keys[0] if definition.keys else None)
        if by is None:
            raise InvalidValue("hash of which column?", hint=f"by=one of {', '.join(definition.schema.names)}")
        if definition.schema.get_field_index(by) < 0:
            raise InvalidValue(
                f"{definition.name} has no column {shown(by)}", hint=f"columns: {', '.join(definition.schema.names)}"
            )
        kind = definition.schema.field(by).type
        if pa.types.is_nested(kind):
            raise InvalidValue(f"column {by!r} has type {kind}", hint="records are dealt by a plain value")
        return replace(asked, spec=replace(spec, by=by))
    if spec.by is not None:
        raise InvalidValue(f"{spec.strategy} by {shown(spec.by)}", hint='only strategy="hash" deals by a column')
    return asked


def check_text(name: object, what: str) -> None:
    """`InvalidValue` unless it is a name that people can read and logs can hold."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidValue(
            f"{shown(name)} is not {what}", hint=f"1 to {NAME_LENGTH_MAX} characters that can be printed"
        )


def plain_place(to: object) -> Place:
    """A place in plain values; times as text."""
    match to:
        case datetime():
            return (to if to.tzinfo else to.replace(tzinfo=UTC)).isoformat()
        case Mapping():
            return dict(to)
        case str() | int() if not isinstance(to, bool):
            return to
        case _:
            raise InvalidValue(
                f"no place: {shown(to)}", hint='"earliest", "latest", an offset, {streamlet: offset}, or a time'
            )


def place(halves: Halves, to: Place) -> dict[int, int]:
    """One offset per streamlet. `InvalidValue` beyond the head, `OffsetGone` before what is kept."""
    return resolve(halves, halves.snapshot(), to)
