"""A byte layer that fails on demand: faults come by wrapping `Storage`, seeded, without a hook in production code.

It counts and names every call (`steps`), and can
crash before or after any durable step, or inside a write (`crash_at`): the process is dead from then on, every further
call raises `Crash`, its locks are given back; fail calls with an error of the system, once or from then on (`fail`): a
failed write leaves some of its bytes behind, a failed sync loses what it was to write; run out of room (`limit_room`);
flip a bit in what is read (`flip_when_read`); make syncs slow (`sync_latency_seconds`, as benchmarks want); and keep,
given a `root`, a model of what is durable, so that `power_cut` can leave the disk as a loss of power would.

The composed operations are those of production (`ComposedStorage`), so every step inside them is a step here.
What deltalake writes by itself passes by this layer: it cannot be failed here, but the power cut covers it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from millpond.storage import AppendFile, Buffer, FileLock, Storage
from millpond.storage.composed import ComposedAppendFile, ComposedStorage
from millpond.testing.durable_disk import DurableDisk
from millpond.testing.fault_plan import FaultPlan
from millpond.testing.power_cut import Variant
from millpond.testing.steps import DURABLE_KINDS, SYNC_KINDS, Step, place_of

T = TypeVar("T")


class Crash(BaseException):
    """The process died here. Not an `Exception`: no handler of production code may believe that it goes on."""


class FaultyStorage(FaultPlan, ComposedStorage):
    """A `Storage` around `inner` that fails as told. Thread-safe: one step at a time.

    `root` (or the `disk` of an earlier instance, see `restarted`) turns the model of durability on: it names an
    existing directory under which everything happens.
    """

    def __init__(
        self,
        inner: Storage,
        seed: int = 0,
        *,
        root: str | Path | None = None,
        disk: DurableDisk | None = None,
        sync_latency_seconds: float = 0.0,
    ) -> None:
        FaultPlan.__init__(self)
        ComposedStorage.__init__(self)
        self.steps: list[Step] = []
        self.crashed: Step | None = None
        self.sync_latency_seconds = sync_latency_seconds
        self.disk = disk or (DurableDisk(root) if root is not None else None)
        self._inner = inner
        self._root = self.disk.root if self.disk else ""
        self._rng = random.Random(seed)
        self._lock = threading.RLock()
        self._durable_count = 0
        self._open: set[AppendFile] = set()
        self._locks: list[FileLock] = []

    # What a test asks for.

    @property
    def calls(self) -> int:
        """How many steps there were so far."""
        return len(self.steps)

    @property
    def durable_steps(self) -> list[Step]:
        return [step for step in self.steps if step.durable]

    def crash(self) -> None:
        """Die now, between two steps."""
        with self._lock:
            if self.crashed is None:
                self._die(Step(self.calls, 0, "crash", "", ""))

    def power_cut(self, variant: Variant = Variant.STRICT, seed: int = 0) -> None:
        """Die, if not dead yet, and leave the real tree as a loss of power would."""
        self.crash()
        if self.disk is None:
            raise ValueError("a power cut needs the `root` under which everything happens")
        with self._lock:
            self.disk.power_cut(variant, seed)

    def restarted(self, seed: int = 0) -> FaultyStorage:
        """The layer of the next process on the same disk: what was not synced before the crash still is not."""
        self.crash()
        return FaultyStorage(self._inner, seed, disk=self.disk, sync_latency_seconds=self.sync_latency_seconds)

    # One step.

    def step(
        self,
        kind: str,
        path: str,
        act: Callable[[], T],
        *,
        size: int = 0,
        write_part: Callable[[int], None] | None = None,
    ) -> T:
        """Run `act` as one step, or the fault that is planned for it. `size` and `write_part` are those of a write:
        how many bytes it has, and how to let only the first few of them reach the file."""
        with self._lock:
            if self.crashed is not None:
                raise Crash(f"dead since: {self.crashed}")
            self._durable_count += kind in DURABLE_KINDS
            durable_number = self._durable_count if kind in DURABLE_KINDS else 0
            step = Step(self.calls + 1, durable_number, kind, place_of(path, self._root), path)
            self.steps.append(step)
            point = self.crash_point_of(step)
            if point is not None and not point.after:
                if point.tear_bytes is not None and write_part is not None:
                    write_part(min(point.tear_bytes, size))
                self._die(step)
            code, part = self.error_of(step), self._rng.randint(0, size)
            if not code and (fitting := self.room_for(step, size)) is not None:
                code, part = errno.ENOSPC, fitting
            if code:
                if write_part is not None:
                    write_part(part)
                raise OSError(code, os.strerror(code), path)
            result = act()
            if point is not None:
                self._die(step)
        if kind in SYNC_KINDS and self.sync_latency_seconds:
            time.sleep(self.sync_latency_seconds)
        return result

    def _die(self, step: Step) -> None:
        self.crashed = step
        for file in self._open:
            file.close()
        for lock in self._locks:
            lock.release()
        if step.kind != "crash":
            raise Crash(str(step))

    # Storage: the single steps.

    def create_append(self, path: str) -> AppendFile:
        return self.step("create", path, lambda: self._opened(path, self._inner.create_append(path)))

    def open_append(self, path: str) -> AppendFile:
        return self.step("open", path, lambda: self._opened(path, self._inner.open_append(path)))

    def _opened(self, path: str, file: AppendFile) -> AppendFile:
        self._open.add(file)
        return FaultyFile(self, path, file, self.disk.file_number(path) if self.disk else 0)

    def file_closed(self, file: AppendFile) -> None:
        """An open file was let go of."""
        with self._lock:
            file.close()
            self._open.discard(file)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self.step("read", path, lambda: self.flipped(path, start, self._inner.read(path, start, length)))

    def map(self, path: str) -> mmap.mmap:
        return self.step("map", path, lambda: self._mapped(path))

    def _mapped(self, path: str) -> mmap.mmap:
        mapped = self._inner.map(path)
        if not self.flips(path):
            return mapped
        with mapped:
            content = self.flipped(path, 0, mapped[:])
        copy = mmap.mmap(-1, len(content))
        copy.write(content)
        copy.seek(0)
        return copy

    def size(self, path: str) -> int:
        return self.step("size", path, lambda: self._inner.size(path))

    def modified_micros(self, path: str) -> int:
        return self.step("modified", path, lambda: self._inner.modified_micros(path))

    def exists(self, path: str) -> bool:
        return self.step("exists", path, lambda: self._inner.exists(path))

    def list(self, directory: str) -> list[str]:
        return self.step("list", directory, lambda: self._inner.list(directory))

    def remove(self, path: str) -> None:
        def act() -> None:
            size = os.path.getsize(path)
            self._inner.remove(path)
            self.give_room(path, size)

        self.step("remove", path, act)

    def rename(self, source: str, target: str) -> None:
        def act() -> None:
            self._inner.rename(source, target)
            if self.disk:
                self.disk.renamed(target)

        self.step("rename", target, act)

    def add_directory(self, path: str) -> None:
        def act() -> None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)

        self.step("add_directory", path, act)

    def remove_directory(self, path: str) -> None:
        self.step("remove_directory", path, lambda: os.rmdir(path))

    def sync_file(self, path: str) -> None:
        def act() -> None:
            self._inner.sync_file(path)
            if self.disk:
                self.disk.path_synced(path)

        try:
            self.step("sync_file", path, act)
        except OSError:
            if self.disk and os.path.exists(path):
                self.disk.sync_failed(self.disk.known_number(path))
            raise

    def rewrite(self, path: str, start: int) -> None:
        def act() -> None:
            self._inner.rewrite(path, start)
            if self.disk:
                self.disk.rewritten(path, start)

        self.step("rewrite", path, act)

    def sync_directory(self, path: str) -> None:
        def act() -> None:
            self._inner.sync_directory(path)
            if self.disk:
                self.disk.directory_synced(path)

        self.step("sync_directory", path, act)

    def free_bytes(self, path: str) -> int:
        return self.step("free_bytes", path, lambda: self.room_left(path, self._inner.free_bytes(path)))

    def lock(self, path: str) -> FileLock:
        def act() -> FileLock:
            lock = self._inner.lock(path)
            self._locks.append(lock)
            return lock

        return self.step("lock", path, act)


class FaultyFile(ComposedAppendFile):
    """An `AppendFile` whose every call is a step of its storage."""

    def __init__(self, storage: FaultyStorage, path: str, inner: AppendFile, number: int) -> None:
        self._storage = storage
        self._path = path
        self._inner = inner
        self._number = number

    @property
    def position(self) -> int:
        return self._inner.position

    def write(self, buffers: Sequence[Buffer]) -> int:
        def starting() -> int:
            if self._storage.disk:
                self._storage.disk.writing(self._number, self._inner.position)
            return self._inner.position

        def act() -> int:
            starting()
            return self._inner.write(buffers)

        def write_part(length: int) -> None:
            # Not through the inner file: its position stays, and the bytes lie beyond it, as the protocol has it.
            with open(self._path, "r+b") as file:
                file.seek(starting())
                file.write(b"".join(buffers)[:length])

        size = sum(len(buffer) for buffer in buffers)
        return self._storage.step("write", self._path, act, size=size, write_part=write_part)

    def sync(self) -> None:
        disk = self._storage.disk

        def act() -> None:
            self._inner.sync()
            if disk:
                disk.synced(self._number)

        try:
            self._storage.step("sync", self._path, act)
        except OSError:
            if disk:
                disk.sync_failed(self._number)
            raise

    def truncate(self, position: int) -> None:
        def act() -> None:
            if self._storage.disk:
                self._storage.disk.truncating(self._number, position)
            size = os.path.getsize(self._path)
            self._inner.truncate(position)
            self._storage.give_room(self._path, max(0, size - position))

        self._storage.step("truncate", self._path, act)

    def close(self) -> None:
        self._storage.file_closed(self._inner)
