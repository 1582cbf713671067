"""A model of what a directory tree would be after a power cut, kept beside the real one.

The rules are those of POSIX, without the kindness of any file system: bytes are durable up to the last sync of their
file; a name is durable, or durably gone, once its directory was synced after the change; a failed sync loses what it
was to write, and a later sync that works does not bring it back. Renames are atomic, synced or not.

Files are known by inode, and each known one has a second (hard) link in a directory beside the tree, so that a file
that was removed or replaced without a sync can come back. What others write into the tree (deltalake does) is found
when it is synced, or else at the power cut, where it counts as never synced. Files that others wrote are expected to
be written once: one that changed after its sync counts as not synced at all.

Not thread-safe: `FaultyStorage` calls it under its lock.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from millpond.testing.power_cut import Variant, surviving_bytes


@dataclass
class _File:
    link: str
    # The synced bytes: a length where they are still the file's first bytes, else the bytes themselves.
    durable: int | bytes = 0
    # Size and time of change at the last sync, of a file that others write; None for one written through the storage.
    stamp: tuple[int, int] | None = None
    lost: list[tuple[int, int]] = field(default_factory=list)

    def written(self) -> bytes:
        return Path(self.link).read_bytes()

    def durable_bytes(self) -> bytes:
        if isinstance(self.durable, bytes):
            return self.durable
        if self.stamp is not None and _stamp(self.link) != self.stamp:
            return b""
        return self.written()[: self.durable]


@dataclass
class _Directory:
    descriptor: int  # open, so that the inode's number is not given to another
    entries: dict[str, int] = field(default_factory=dict)

    def __del__(self) -> None:
        os.close(self.descriptor)


def _stamp(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


class DurableDisk:
    """Everything under `root`, as it is and as it would be after a power cut. What is there at the start is durable."""

    def __init__(self, root: str | Path) -> None:
        self.root = os.path.realpath(root)
        self._links = f"{self.root}.links-{secrets.token_hex(4)}"
        self._adopt()

    # What the storage tells.

    def file_number(self, path: str) -> int:
        """The inode of a file that is written through the storage, made known."""
        number = self.known_number(path)
        self._files[number].stamp = None
        return number

    def known_number(self, path: str) -> int:
        """The inode of any file, made known."""
        number = os.stat(path).st_ino
        if number not in self._files:
            link = os.path.join(self._links, str(number))
            os.link(path, link)
            self._files[number] = _File(link, stamp=(-1, -1))
        return number

    def synced(self, number: int) -> None:
        file = self._files[number]
        if file.lost:
            content = bytearray(file.written())
            for start, stop in file.lost:
                content[start:stop] = bytes(len(content[start:stop]))
            file.durable = bytes(content)
        else:
            file.durable = os.path.getsize(file.link)

    def sync_failed(self, number: int) -> None:
        file = self._files[number]
        known = file.durable if isinstance(file.durable, int) else len(file.durable)
        file.lost.append((known, os.path.getsize(file.link)))

    def writing(self, number: int, position: int) -> None:
        """Called before bytes are written at `position`, which is behind the end after a write that failed half-way."""
        file = self._files[number]
        if isinstance(file.durable, int) and position < file.durable:
            file.durable = file.durable_bytes()

    def truncating(self, number: int, position: int) -> None:
        """Called before the file is cut."""
        file = self._files[number]
        file.durable = file.durable_bytes()
        file.lost = [(start, min(stop, position)) for start, stop in file.lost if start < position]

    def renamed(self, target: str) -> None:
        """Called after a file got the name `target`."""
        self._renamed.add(os.stat(target).st_ino)

    def path_synced(self, path: str) -> None:
        """A file was synced by its name."""
        number = self.known_number(path)
        self.synced(number)
        if self._files[number].stamp is not None:
            self._files[number].stamp = _stamp(path)

    def rewritten(self, path: str, start: int) -> None:
        """A file's bytes from `start` on were written again and synced: what a failed sync lost is there again."""
        file = self._files[self.known_number(path)]
        file.lost = [(low, min(high, start)) for low, high in file.lost if low < start]
        self.path_synced(path)

    def directory_synced(self, path: str) -> None:
        directory = self._know_directory(path)
        directory.entries = self._entries(path)
        self._renamed -= set(directory.entries.values())

    # The power cut.

    def power_cut(self, variant: Variant, seed: int) -> None:
        """Make the real tree what a power cut would leave. Nobody may be using it. The result counts as durable."""
        rng = random.Random(f"{variant.value}/{seed}")
        restored, old = f"{self.root}.restored", f"{self.root}.old"
        # A rename is kept or lost as one, whatever directories its two names are in.
        renames = {number: self._survives(variant, rng) for number in sorted(self._renamed)}
        self._restore(os.stat(self.root).st_ino, self.root, restored, variant, rng, renames)
        os.rename(self.root, old)
        os.rename(restored, self.root)
        shutil.rmtree(old)
        self.close()
        self._adopt()

    def close(self) -> None:
        """Forget the model; the real tree stays."""
        self._directories.clear()
        self._files.clear()
        shutil.rmtree(self._links, ignore_errors=True)

    @staticmethod
    def _survives(variant: Variant, rng: random.Random) -> bool:
        """Whether a change of a name that was not synced is there."""
        return rng.random() < 0.5 if variant is Variant.MIXED else variant is not Variant.STRICT

    def _restore(
        self,
        number: int,
        real: str | None,
        target: str,
        variant: Variant,
        rng: random.Random,
        renames: dict[int, bool],
    ) -> None:
        """Build directory `number` at `target`; `real` is where it is now, if it still is."""
        os.mkdir(target)
        durable = self._directories[number].entries if number in self._directories else {}
        now = {entry.name: entry.inode() for entry in os.scandir(real)} if real else {}
        for name in sorted(durable.keys() | now.keys()):
            was, is_ = durable.get(name), now.get(name)
            chosen = is_
            if was != is_:
                unit = renames.get(was or -1, renames.get(is_ or -1))
                chosen = is_ if (self._survives(variant, rng) if unit is None else unit) else was
            if chosen is None:
                continue
            path = os.path.join(real, name) if real and chosen == is_ else None
            made = os.path.join(target, name)
            if chosen in self._directories or (path and os.path.isdir(path)):
                self._restore(chosen, path, made, variant, rng, renames)
            else:
                self._restore_file(chosen, path, made, variant, rng)

    def _restore_file(self, number: int, path: str | None, made: str, variant: Variant, rng: random.Random) -> None:
        file = self._files.get(number)
        if file is None:
            assert path is not None, "a durable name whose file was never known"
            durable, written = b"", Path(path).read_bytes()
        else:
            durable, written = file.durable_bytes(), file.written()
        Path(made).write_bytes(surviving_bytes(durable, written, variant, rng))

    # What is known.

    def _adopt(self) -> None:
        os.mkdir(self._links)
        self._files: dict[int, _File] = {}
        self._directories: dict[int, _Directory] = {}
        self._renamed: set[int] = set()
        for parent, _, files in os.walk(self.root):
            for name in files:
                self.path_synced(os.path.join(parent, name))
            self.directory_synced(parent)

    def _know_directory(self, path: str) -> _Directory:
        number = os.stat(path).st_ino
        if number not in self._directories:
            self._directories[number] = _Directory(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        return self._directories[number]

    def _entries(self, path: str) -> dict[str, int]:
        found = {}
        for entry in os.scandir(path):
            # Others may remove a file (a staged one, say) between the listing and the link.
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    self._know_directory(entry.path)
                else:
                    self.known_number(entry.path)
                found[entry.name] = entry.inode()
        return found
