"""Staged appends: records that are checked and held, and not there for anybody until a commit names them.

A writer puts batches under a name of its own making, a *stage*; each put is checked as an append is. `take` gives what
stages hold as appends for one atomic group (`LogEngine.append_together`). Stages of attempts that were given up are
simply never named.

Bounded in bytes (`staged_bytes_max`, over which puts are refused) and in time (`staged_seconds` since the last put).
Large batches are held in files under `spill/`, so that memory holds little. Nothing survives a restart: whoever staged
is told at the commit, and writes again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.clock import Clock
from millpond.errors import Backpressure, InvalidValue, TransactionOver
from millpond.log.engine import Part, StreamAppend
from millpond.settings import Settings
from millpond.storage import Storage

# Batches from this size on are held in files: a stage of small ones has few of them, or is small itself.
FILE_BYTES = 1_000_000
STAGE_LENGTH_MAX = 200


@dataclass(frozen=True)
class _Held:
    """Rows of one put for one streamlet: in memory, or in a file."""

    part: Part
    path: str | None = None

    def read(self, storage: Storage) -> Part:
        if self.path is None:
            return self.part
        with pa.ipc.open_file(pa.BufferReader(pa.py_buffer(storage.map(self.path)))) as file:
            return self.part._replace(batch=file.get_batch(0))


@dataclass(frozen=True)
class _Put:
    stream_id: int
    schema_version: int
    held: list[_Held]


@dataclass
class _Stage:
    touched_seconds: float
    puts: list[_Put] = field(default_factory=list)
    bytes: int = 0


class Staging:
    """Thread-safe."""

    def __init__(self, storage: Storage, directory: str, clock: Clock, settings: Settings) -> None:
        self._storage, self._directory, self._clock, self._settings = storage, directory, clock, settings
        self._lock = threading.Lock()
        self._stages: dict[str, _Stage] = {}
        self._bytes = 0
        self._files = itertools.count()

    def put(self, stage: str, stream_id: int, parts: Sequence[Part], schema_version: int) -> None:
        """Hold the parts of a checked append under `stage`."""
        if not 0 < len(stage) <= STAGE_LENGTH_MAX:
            raise InvalidValue(f"a stage called {stage[:40]!r}", hint=f"1 to {STAGE_LENGTH_MAX} characters")
        size = sum(_size(part) for part in parts)
        with self._lock:
            self._expire()
            if self._bytes + size > self._settings.staged_bytes_max:
                raise Backpressure(
                    f"{self._bytes:,} bytes are staged; {size:,} more are over the bound",
                    hint="commit or give up what is staged; raise the setting staged_bytes_max; or load to the archive",
                )
            self._bytes += size
        try:
            held = [self._hold(part) for part in parts]
        except BaseException:
            with self._lock:
                self._bytes -= size
            raise
        with self._lock:
            found = self._stages.setdefault(stage, _Stage(0.0))
            found.touched_seconds = self._clock.monotonic_seconds()
            found.puts.append(_Put(stream_id, schema_version, held))
            found.bytes += size

    def take(self, stages: Sequence[str]) -> list[StreamAppend]:
        """What the stages hold, in their order, an append for each put. They stay until they are forgotten.
        `TransactionOver` if one is not there."""
        with self._lock:
            self._expire()
            missing = [stage for stage in stages if stage not in self._stages]
            if missing:
                raise TransactionOver(
                    f"nothing is staged as {missing[0][:40]!r}",
                    hint="stages go with a restart, or when nothing is put to them for staged_seconds: write again",
                )
            puts = [put for stage in stages for put in self._stages[stage].puts]
        now = self._clock.now_micros()
        return [
            StreamAppend(put.stream_id, [each.read(self._storage) for each in put.held], now, put.schema_version)
            for put in puts
        ]

    def streams(self, stages: Sequence[str]) -> set[int]:
        """The ids of the streams that stages were put for."""
        with self._lock:
            return {put.stream_id for stage in stages if stage in self._stages for put in self._stages[stage].puts}

    def forget(self, stages: Sequence[str]) -> None:
        """Let go of stages: they were committed, or are given up. Unknown ones do not matter."""
        with self._lock:
            for stage in stages:
                self._drop(stage)

    def forget_all(self, prefix: str) -> None:
        """Let go of all stages whose names begin like this: those of one job."""
        with self._lock:
            for stage in [name for name in self._stages if name.startswith(prefix)]:
                self._drop(stage)

    @property
    def bytes(self) -> int:
        """How much is staged."""
        return self._bytes

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            for stage in list(self._stages):
                self._drop(stage)

    def _hold(self, part: Part) -> _Held:
        if part.batch is None or part.batch.nbytes < FILE_BYTES:
            return _Held(_own(part))
        path = os.path.join(self._directory, f"staged-{next(self._files):08d}.arrow")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, part.batch.schema) as writer:
            writer.write_batch(part.batch)
        self._storage.make_directory(self._directory)
        self._storage.put(path, memoryview(sink.getvalue()), sync=False)
        return _Held(part._replace(batch=None), path)

    def _expire(self) -> None:
        oldest = self._clock.monotonic_seconds() - self._settings.staged_seconds
        for stage in [name for name, found in self._stages.items() if found.touched_seconds < oldest]:
            self._drop(stage)

    def _drop(self, stage: str) -> None:
        found = self._stages.pop(stage, None)
        if found is None:
            return
        self._bytes -= found.bytes
        for held in itertools.chain.from_iterable(put.held for put in found.puts):
            if held.path is not None:
                with contextlib.suppress(OSError):  # the next open removes what is left
                    self._storage.remove(held.path)


def _size(part: Part) -> int:
    return len(part.encoded or b"") + (part.batch.nbytes if part.batch is not None else 0)


def _own(part: Part) -> Part:
    """The part without what its batch is a slice of, which would stay in memory too."""
    if part.batch is None:
        return part
    return part._replace(batch=pa.ipc.read_record_batch(part.batch.serialize(), part.batch.schema))
