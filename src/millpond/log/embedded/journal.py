"""The journal: files of frames, written by one thread, read in place.

Order of durable steps, each safe to be the last one before a crash:
a file is created (header and state frame written, file synced, directory synced) before anything is appended to it;
a file is ended (end frame, synced) before the next one is created; a file is removed only after what it held is
released, and the directory is synced. After a failed sync the journal refuses writes for good: what the system kept
of the file is unknown, so it is never retried (I1).

Not thread-safe: the committer owns it. `JournalFile.view` may be called from any thread.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millpond.clock import Clock
from millpond.errors import Damaged
from millpond.log.embedded import frame as frames
from millpond.log.embedded import journal_file
from millpond.log.embedded.frame import Draft, Frame
from millpond.log.embedded.journal_file import FILE_HEADER_BYTES, Scan, file_name
from millpond.storage import AppendFile, Storage
from millpond.telemetry import LogTelemetry

logger = logging.getLogger(__name__)

SUFFIX = ".journal"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

# (stream, generation, streamlet) -> the stretches of offsets that a file holds of it: one, but for what was copied
# forward.
Whose = tuple[int, int, int]
References = dict[Whose, list[tuple[int, int]]]


@dataclass(slots=True)
class JournalFile:
    """A file of the journal and what it holds of whom."""

    number: int
    path: str
    storage: Storage
    bytes: int = 0
    references: References = field(default_factory=dict)
    data_bytes: dict[Whose, int] = field(default_factory=dict)
    _map: mmap.mmap | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, key: Whose, added: Sequence[tuple[int, int, int]]) -> None:
        """Remember that the file holds these offsets (start, stop) of a streamlet, each in so many bytes."""
        spans = self.references.setdefault(key, [])
        start, stop, total = -1, -1, self.data_bytes.get(key, 0)
        if spans:
            start, stop = spans.pop()
        for first, end, count in added:
            total += count
            if first != stop:
                if stop > start:
                    spans.append((start, stop))
                start = first
            stop = end
        spans.append((start, stop))
        self.data_bytes[key] = total

    def view(self, start: int, length: int, crc: int) -> memoryview:
        """Bytes of the file, mapped and checked; `Damaged` if they are no longer what was written."""
        with self._lock:
            if self._map is None or len(self._map) < start + length:
                self._map = self.storage.map(self.path)  # readers of the old map keep it alive
            view = memoryview(self._map)[start : start + length]
        if len(view) != length or frames.crc32(view) != crc:
            raise Damaged(f"{self.path}: the record at byte {start} is damaged", hint=journal_file.RESTORE)
        return view


class Written(NamedTuple):
    """Where groups went: the file, and per group where each payload begins."""

    file: JournalFile
    places: list[list[int]]


class Journal:
    """The files of one pond's journal. Opened by `recover`; written only after the first `append`."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        pond_id: bytes,
        clock: Clock,
        file_bytes: int,
        telemetry: LogTelemetry | None = None,
    ) -> None:
        self._storage, self._directory, self._pond_id = storage, directory, pond_id
        self._clock, self._file_bytes = clock, file_bytes
        self.telemetry = telemetry or LogTelemetry()
        self.files: list[JournalFile] = []
        self._current: AppendFile | None = None
        self._synced = 0
        self._next_number = 1
        self.written_bytes = 0
        self.syncs = 0
        self.torn: list[str] = []

    # Reading back.

    def recover(self, progress: Callable[[int, int], None]) -> list[tuple[JournalFile, Scan]]:
        """Scan all files, oldest first. A torn tail of the newest is kept aside and cut. `Damaged` if anything that
        had been synced cannot be read; nothing is changed then."""
        self._storage.make_directory(self._directory)
        # A process that was killed between creating a file and syncing its name left a name that a power cut takes.
        for directory in (self._directory, os.path.dirname(self._directory)):
            self._storage.sync_directory(directory)
        names = [n for n in self._storage.list(self._directory) if n.endswith(SUFFIX)]
        for name in names:
            if not name.removesuffix(SUFFIX).isdecimal():
                raise Damaged(f"{self._directory} holds {name!r}, which is no file of the journal", hint="move it away")
        paths = [os.path.join(self._directory, n) for n in names]
        total, done = sum(self._storage.size(p) for p in paths), 0
        found: list[tuple[JournalFile, Scan]] = []
        for index, (name, path) in enumerate(zip(names, paths, strict=True)):
            number, last = int(name.removesuffix(SUFFIX)), index == len(names) - 1
            if found and number <= found[-1][0].number:
                raise Damaged(f"{path}: two journal files numbered {number}", hint=journal_file.RESTORE)
            file = JournalFile(number, path, self._storage, self._storage.size(path))
            data = memoryview(self._storage.map(path)) if file.bytes else memoryview(b"")
            scanned = journal_file.scan(data, path, number, self._pond_id, last=last)
            if last and not scanned.frames:
                # Nothing is appended before the state frame is synced. A file that went on without one would forget,
                # once it is the only one left, what older files stated.
                scanned.good_end = 0
            if scanned.torn_bytes or scanned.good_end == 0:
                self._cut_tail(file, scanned, data)
            done += file.bytes
            self._next_number = number + 1
            if scanned.good_end:
                file.bytes = scanned.good_end
                found.append((file, scanned))
            progress(done, total)
        self.files = [file for file, _ in found]
        if found and not found[-1][1].clean:
            # What the last process wrote may be in the system's memory only and, if a sync of its failed, marked there
            # as written. Nobody may see it before it is safe.
            file, scanned = found[-1]
            known = max((frame.synced for frame in scanned.frames), default=0)
            self._storage.rewrite(file.path, known)
        return found

    def _cut_tail(self, file: JournalFile, scanned: Scan, data: memoryview) -> None:
        """Keep a copy of what cannot be read, then cut it off (or remove a file that was never finished)."""
        aside = f"{file.path}.torn-{scanned.good_end}"
        if data and not self._storage.exists(aside):
            self._storage.put(aside, data[scanned.good_end :])
        self._storage.sync_directory(self._directory)
        self.torn.append(aside)
        if scanned.good_end == 0:
            self._storage.remove(file.path)
        else:
            writer = self._storage.open_append(file.path)
            try:
                writer.truncate(scanned.good_end)
                writer.sync()
            finally:
                writer.close()
        self._storage.sync_directory(self._directory)

    # Writing.

    @property
    def unsynced(self) -> bool:
        """Whether anything was written since the last sync."""
        return self._current is not None and self._current.position > self._synced

    def prepare(self, state: Callable[[], bytes]) -> None:
        """Make sure that there is a file to append to, with room: roll where the current one has grown enough."""
        if self._current is None and self.files and self.files[-1].bytes < self._file_bytes:
            self._current = self._storage.open_append(self.files[-1].path)
            self._synced = self._current.position  # recovery synced it
        if self._current is None or self._current.position >= self._file_bytes:
            self._roll(state())

    def _roll(self, state: bytes) -> None:
        if self._current is not None:
            self._end_current()
        elif self.files:
            self._current = self._storage.open_append(self.files[-1].path)
            self._end_current()
        path = os.path.join(self._directory, file_name(self._next_number))
        draft = Draft(frames.STATE, 0, 0, 0, 0, self._clock.now_micros(), 0, state, frames.crc32(state))
        head = journal_file.encode_header(self._next_number, self._pond_id, self._clock.now_micros())
        opened = self._storage.create_append(path)
        try:
            opened.write([head, *frames.encode(draft, 0, FILE_HEADER_BYTES, last=True)[0]])
            opened.sync()
            self._storage.sync_directory(self._directory)
        except OSError:
            opened.close()
            if self._storage.exists(path):
                self._storage.remove(path)
            raise
        if self._current is not None:
            self._current.close()
        self._current, self._synced = opened, opened.position
        self.files.append(JournalFile(self._next_number, path, self._storage, opened.position))
        self.written_bytes += opened.position
        self._next_number += 1

    def _end_current(self) -> None:
        """Mark a clean end and sync: what follows in this file, if anything, starts from a known state."""
        assert self._current is not None
        draft = Draft(frames.END, 0, 0, 0, 0, self._clock.now_micros(), 0, b"", 0)
        self.sync()
        self._write(frames.encode(draft, 0, self._synced, last=True)[0])
        self.sync()

    def append(self, groups: Sequence[tuple[Sequence[Draft], Sequence[int]]], *, sync: bool = False) -> Written:
        """Write groups of drafts, each with the offsets of their first rows, each atomic. All are written or, after an
        error of a full disk, none: the file is cut back. With `sync`, which only a journal without anything unsynced
        may be asked for, they are durable; otherwise not until `sync`."""
        assert self._current is not None, "prepare first"
        file, synced = self.files[-1], self._synced
        buffers: list[bytes | memoryview] = []
        places: list[list[int]] = []
        held: dict[Whose, list[tuple[int, int, int]]] = {}
        at = self._current.position
        encode, data_kinds = frames.encode, frames.DATA_KINDS
        for drafts, bases in groups:
            group: list[int] = []
            last = len(drafts) - 1
            for index, draft in enumerate(drafts):
                base = bases[index]
                frame, payload_at = encode(draft, base, synced, last=index == last)
                buffers += frame
                group.append(at + payload_at)
                count = len(draft.payload)
                at += payload_at + ((count + 7) & ~7)
                if draft.kind in data_kinds:
                    key = (draft.stream, draft.generation, draft.streamlet)
                    spans = held.get(key)
                    if spans is None:
                        held[key] = spans = []
                    spans.append((base, base + draft.rows, count))
            places.append(group)
        self._write(buffers, sync=sync)
        assert at == self._current.position, "frames are not as long as they were said to be"
        for key, spans in held.items():
            file.note(key, spans)
        return Written(file, places)

    def _write(self, buffers: Sequence[bytes | memoryview], *, sync: bool = False) -> None:
        assert self._current is not None
        before, began = self._current.position, self._clock.monotonic_seconds()
        taken = self.telemetry.sync_seconds if sync else self.telemetry.write_seconds
        try:
            if sync:
                assert not self.unsynced
                self.written_bytes += self._current.write_synced(buffers)
                self.syncs += 1
                self._synced = self._current.position
            else:
                self.written_bytes += self._current.write(buffers)
        except OSError as error:
            self.telemetry.write_failures.add()
            if not sync or error.errno in FULL:
                self._current.truncate(before)
            raise
        taken.observe(self._clock.monotonic_seconds() - began)
        self.files[-1].bytes = self._current.position

    def sync(self) -> None:
        """fdatasync what was written. After an error the caller must not use this journal for writing again; it is
        never one of `FULL`, which stand for a write that may be tried again."""
        if self._current is not None:
            began = self._clock.monotonic_seconds()
            try:
                self._current.sync()
            except OSError as error:
                self.telemetry.sync_failures.add()
                raise OSError(errno.EIO, f"a sync failed: {error}") from error
            self.telemetry.sync_seconds.observe(self._clock.monotonic_seconds() - began)
            self.syncs += 1
            self._synced = self._current.position

    def remove(self, file: JournalFile) -> None:
        """Let go of a file that is not the current one."""
        assert file is not self.files[-1]
        self._storage.remove(file.path)
        self.files.remove(file)
        self._storage.sync_directory(self._directory)

    def close(self, *, clean: bool) -> None:
        """Close; with a clean end mark if `clean`: everything is synced and nothing has failed. The mark only spares
        the next open a look at the tail, so a disk that no longer takes it does not make the close fail."""
        if self._current is not None:
            try:
                if clean:
                    self._end_current()
            except OSError as error:
                logger.warning("%s is left without its end mark: %s", self.files[-1].path, error)
            finally:
                self._current.close()
                self._current = None


def note_recovered(file: JournalFile, frame: Frame) -> None:
    """Take a recovered frame into the file's account."""
    key = (frame.stream, frame.generation, frame.streamlet)
    file.note(key, [(frame.base, frame.base + frame.rows, frame.payload_bytes)])
