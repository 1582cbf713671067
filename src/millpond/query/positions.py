"""Where a read begins: what a caller says ("earliest", an offset, a time) turned into one offset per streamlet.

A time means `_ingest_time`, the moment a record was taken in, because that follows the offsets; event time does not.
The read begins at each streamlet's first record ingested at that time or later, and gives everything behind it, also
a record whose stamp is a little older because two appends overtook each other. Objects and segments that are older as
a whole are skipped by their statistics; the others are read in `_offset` order until no earlier offset is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from millpond.errors import InvalidValue, MillpondError, OffsetGone
from millpond.log.engine import SegmentInfo
from millpond.log.live import truncated
from millpond.model.ingested import ingested_since
from millpond.model.literal import parse_timestamp
from millpond.model.misfit import shown
from millpond.model.offsets import OffsetRange, Position
from millpond.model.schema import OFFSET, STREAMLET
from millpond.query.halves import Halves
from millpond.query.objects import spans_of
from millpond.query.snapshot import Snapshot

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Start = str | int | datetime | Mapping[int, int]

_FORMS = '"earliest", "latest", an offset, {streamlet: offset}, a datetime or an ISO time like "2026-01-31T12:00:00Z"'


def parse_start(text: str) -> Start:
    """Where to begin: a word, a time, an offset, or offsets per streamlet, with or without their generation; what none
    of them is, `resolve` refuses."""
    if _is_offset(text):
        return int(text)
    generation, comma, offsets = text.partition(",")
    if generation[:1] == "g" and _is_offset(generation[1:]) and int(generation[1:]):
        placed = parse_start(offsets) if comma else {}
        return Position(placed, int(generation[1:])) if type(placed) is dict else text
    pairs = [part.split(":") for part in text.split(",")]
    if all(len(pair) == 2 and _is_offset(pair[0].strip()) and _is_offset(pair[1].strip()) for pair in pairs):
        # "12:30" is streamlet 12 at offset 30: a time has a date.
        return {int(streamlet): int(offset) for streamlet, offset in pairs}
    return text


def _is_offset(text: str) -> bool:
    # Twenty digits hold every offset; thousands of them are more than Python reads.
    return text.isdecimal() and len(text) <= 20


def resolve(halves: Halves, snapshot: Snapshot, start: Start) -> dict[int, int]:
    """The offset per streamlet at which a read from `start` begins."""
    match start:
        case "earliest":
            return _earliest(halves, snapshot)
        case "latest":
            return dict(snapshot.heads)
        case str():
            try:
                return _since(halves, snapshot, parse_timestamp(start))
            except ValueError as error:
                raise InvalidValue(f"no place to start: {shown(start)}", hint=_FORMS) from error
        case datetime():
            return _since(halves, snapshot, start if start.tzinfo else start.replace(tzinfo=UTC))
        case int() if not isinstance(start, bool):
            streamlets = halves.definition.streamlets
            if streamlets > 1:
                raise InvalidValue(
                    f"offset {start} of which of the {streamlets} streamlets?",
                    hint=f"start={{0: {start}, 1: ...}}",
                )
            return _checked({0: start}, halves, snapshot)
        case Position() if start.generation != snapshot.generation:
            raise _of_another_generation(start, halves, snapshot)
        case Mapping():
            return _checked(start, halves, snapshot)
        case _:
            raise InvalidValue(f"no place to start: {shown(start)}", hint=_FORMS)


def _of_another_generation(start: Position, halves: Halves, snapshot: Snapshot) -> MillpondError:
    name = halves.definition.name
    if start.generation < snapshot.generation:
        return truncated(name, start.generation, snapshot.generation)
    return InvalidValue(
        f"{name} has no generation {start.generation} yet", hint=f"this is generation {snapshot.generation}"
    )


def _earliest(halves: Halves, snapshot: Snapshot) -> dict[int, int]:
    """The first offset that is anywhere. A stream that is never archived loses its oldest records for good."""
    return {
        s: 0 if snapshot.boundary.get(s, 0) else min(snapshot.floor.get(s, 0), h) for s, h in snapshot.heads.items()
    }


def _checked(start: Mapping[int, int], halves: Halves, snapshot: Snapshot) -> dict[int, int]:
    """A caller's offsets; streamlets that are not named begin at the earliest."""
    for streamlet, offset in start.items():
        if streamlet not in snapshot.heads:
            raise InvalidValue(f"no streamlet {streamlet!r}", hint=f"0 to {max(snapshot.heads)}")
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= snapshot.heads[streamlet]:
            raise InvalidValue(
                f"streamlet {streamlet} has no offset {offset!r}",
                hint=f"0 to {snapshot.heads[streamlet]}, where its next record goes",
            )
        if offset < snapshot.floor.get(streamlet, 0):
            raise OffsetGone(
                f"offset {offset} of streamlet {streamlet} of {halves.definition.name} is not kept any more, "
                f"{snapshot.floor[streamlet]} is the first that is",
                hint='start="earliest" begins at the first record that is still there',
            )
    return _earliest(halves, snapshot) | dict(start)


def _since(halves: Halves, snapshot: Snapshot, moment: datetime) -> dict[int, int]:
    """The first offset per streamlet ingested at `moment` or later; the head where there is none."""
    found = _settled_since(snapshot, moment)
    segments = halves.log.segments(halves.definition.id)
    for streamlet, offsets in snapshot.live.items():
        if streamlet not in found:
            mine = [info for info in segments if info.streamlet == streamlet]
            rest = OffsetRange(_past_older(mine, offsets, moment), offsets.stop)
            batches = halves.read_range(
                snapshot.generation,
                streamlet,
                rest,
                [OFFSET],
                ingested_since(moment),
                cutoff_micros=snapshot.cutoff_micros,
            )
            for batch in batches:
                found[streamlet] = batch.column(OFFSET)[0].as_py()
                break
    return dict(snapshot.heads) | found


def _past_older(segments: Sequence[SegmentInfo], offsets: OffsetRange, moment: datetime) -> int:
    """Where to begin in `offsets`: behind the segments that lie at their start and are older as a whole."""
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    at = offsets.start
    for info in sorted(segments, key=lambda info: info.offsets):
        if at in info.offsets and info.last_ingest_micros < micros:
            at = min(info.offsets.stop, offsets.stop)
    return at


def _settled_since(snapshot: Snapshot, moment: datetime) -> dict[int, int]:
    settled, predicate = snapshot.settled, ingested_since(moment)
    spans = spans_of(settled.objects, settled.objects.prune(predicate).keep)
    found: dict[int, int] = {}
    # The lowest offset that may still be improved: until all streamlets have one, the end of what has settled.
    limit = {s: stop for s, stop in snapshot.boundary.items() if stop}
    for at in np.argsort(spans.start, kind="stable"):
        if spans.start[at] >= max(limit.values(), default=0):
            break
        for batch in settled.read(spans.only([at]), [STREAMLET, OFFSET], predicate):
            streamlets, offsets = (batch.column(name).to_numpy() for name in (STREAMLET, OFFSET))
            for streamlet in np.unique(streamlets).tolist():
                offset = int(offsets[streamlets == streamlet].min())
                if offset < limit.get(streamlet, 0):
                    found[streamlet] = limit[streamlet] = offset
    return found
