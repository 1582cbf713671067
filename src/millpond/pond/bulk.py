"""Writing to one stream of this process's pond in bulk: see `wire.bulk`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.archive.load import Load, LoadReport
from millpond.errors import InvalidValue
from millpond.log.engine import Ack, Part
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.pond.loading import Loading
from millpond.pond.staging import Staging
from millpond.wire.bulk import LoadTicket
from millpond.wire.served import Door

if TYPE_CHECKING:
    from millpond.pond.stream import Stream


class StreamBulk:
    """A `Bulk`. Thread-safe."""

    def __init__(
        self,
        stream: Stream,
        loading: Loading,
        staging: Staging,
        prepare: Callable[[Any], tuple[list[Part], int, dict[str, Any]]],
    ) -> None:
        """`prepare`: what an append does before it comes to the log."""
        self._stream, self._staging, self._prepare = stream, staging, prepare
        self.loading = loading

    @property
    def definition(self) -> StreamDefinition:
        return self._stream.definition

    def door(self) -> Door:
        return self._stream.door()

    def stage(self, name: str, rows: Any) -> None:
        """Check records and hold them under a stage."""
        parts, _, options = self._prepare(rows)
        self._staging.put(name, self.definition.id, parts, options["schema_version"])

    def commit_staged(self, stages: Sequence[str], *, producer: str = "", sequence: int | None = None) -> Ack:
        definition, log = self.definition, self._stream.halves.log
        if (sequence is None) != (not producer):
            raise InvalidValue(
                f"producer {producer!r} with sequence {sequence!r}", hint="give both, for an idempotent append, or none"
            )
        if producer:
            known = log.known(definition.id, producer, sequence or 0)
            if known is not None:
                self._staging.forget(stages)
                return Ack(known.ranges, known.durability, duplicate=True)
        others = self._staging.streams(stages) - {definition.id}
        if others:
            raise InvalidValue(
                f"records of another stream are staged for {definition.name}", hint="commit each stream's own stages"
            )
        appends = [append for append in self._staging.take(stages) if append.parts]
        if not appends:
            # The stream's filter left nothing. The stages stay for who asks again: there is no other memory of them.
            return Ack({}, definition.durability)
        acks = log.append_together(appends, durability=definition.durability, producer=producer, sequence=sequence or 0)
        self._staging.forget(stages)
        return _joined(acks)

    def forget_staged(self, prefix: str) -> None:
        self._staging.forget_all(prefix)

    def begin_load(self, owner: str, *, mark: str = "", number: int = 0) -> LoadTicket | None:
        return self.loading.begin(owner, mark, number)

    def renew_load(self, load: Load) -> None:
        self.loading.renew(load.id)

    def commit_load(self, load: Load, report: pa.Table) -> LoadReport:
        done = self.loading.commit(load.id, load.version, report)
        assert done is not None, "a report of one part is a whole one"
        return done

    def abort_load(self, load: Load) -> None:
        self.loading.abort(load.id)


def _joined(acks: Sequence[Ack]) -> Ack:
    """One answer for appends to one stream that were made together, whose offsets follow each other."""
    ranges: dict[int, OffsetRange] = {}
    for ack in acks:
        for streamlet, offsets in ack.ranges.items():
            known = ranges.get(streamlet, offsets)
            ranges[streamlet] = OffsetRange(min(known.start, offsets.start), max(known.stop, offsets.stop))
    return Ack(ranges, acks[0].durability, acks[0].duplicate)
