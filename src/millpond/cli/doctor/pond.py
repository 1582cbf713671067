"""Checks of a pond's directory and its disk, without opening the pond and without leaving anything behind."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from millpond.cli.doctor.findings import Checked, fail, ok, warn
from millpond.cli.exits import Exit
from millpond.clock import SystemClock
from millpond.errors import FormatTooNew, MillpondError
from millpond.model.units import format_bytes
from millpond.settings import Settings

# Appends and one round of settling and compaction at the default sizes.
ROOM_MINIMUM_BYTES = 2_000_000_000
# A disk that answers slower makes every `disk` append wait that long.
SYNC_SLOW_SECONDS = 0.02
SYNC_PROBES = 20
IN_MEMORY = {"tmpfs", "ramfs"}
REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}
# Records that have not settled are kept in the journal: this much says that settling does not keep up.
JOURNAL_LARGE_BYTES = 10_000_000_000


def check_pond(path: Path) -> Iterator[Checked]:
    """Everything about the disk under `path` and, if it is a pond, about the pond."""
    ground = _existing(path)
    yield _check_room(ground)
    yield _check_file_system(ground)
    yield _check_sync(ground)
    if not (path / "pond.json").exists():
        yield ok("pond", f"{path} is not a pond (millpond init {path} makes one)")
        return
    yield _check_description(path)
    holder = _lock_holder(path / "lock")
    yield ok("lock", f"held by process {holder}" if holder else "free")
    yield from _check_journal(path, being_written=holder is not None)


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path if path.is_dir() else path.parent


def _check_room(ground: Path) -> Checked:
    found = os.statvfs(ground)
    free = found.f_bavail * found.f_frsize
    text = f"{format_bytes(free)} free of {format_bytes(found.f_blocks * found.f_frsize)} under {ground}"
    mend = "make room, or keep the pond on another disk; appends are refused when the disk is nearly full"
    if free < Settings().disk_reserve_bytes:
        return fail("disk room", text, mend)
    return warn("disk room", text, mend) if free < ROOM_MINIMUM_BYTES else ok("disk room", text)


def _check_file_system(ground: Path) -> Checked:
    kind = _file_system(ground)
    if kind in IN_MEMORY:
        return warn("file system", f"{kind}: in memory", "keep the pond on a disk: nothing here survives a restart")
    if kind in REMOTE:
        mend = "keep the pond on a local disk: locks and syncs over a network mean less than they say"
        return warn("file system", kind, mend)
    return ok("file system", kind)


def _file_system(ground: Path) -> str:
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    inside = [(len(point), kind) for _, point, kind, *_ in mounts if ground.is_relative_to(point)]
    return max(inside, default=(0, "unknown"))[1]


def _check_sync(ground: Path) -> Checked:
    """Write and sync a few times, in a file that never gets a name."""
    try:
        descriptor = os.open(ground, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        if not os.access(ground, os.W_OK):
            return fail("sync", f"{ground} cannot be written to", "give this user the right to write there")
        return ok("sync", f"not measured: {error.strerror}")
    took: list[float] = []
    try:
        for _ in range(SYNC_PROBES):
            began = time.monotonic()
            os.write(descriptor, b"\0" * 4096)
            os.fdatasync(descriptor)
            took.append(time.monotonic() - began)
    except OSError as error:
        return fail("sync", f"{ground}: {error.strerror}", "look at the disk: nothing can be made durable there")
    finally:
        os.close(descriptor)
    median, worst = statistics.median(took), max(took)
    text = f"{median * 1000:.2f} ms to write and sync 4 KB (worst of {SYNC_PROBES}: {worst * 1000:.2f} ms)"
    if median > SYNC_SLOW_SECONDS:
        mend = "append from more threads or in larger batches, use a faster disk, or durability os where that is enough"
        return warn("sync", text, mend)
    return ok("sync", text)


def _check_description(path: Path) -> Checked:
    from millpond.pond.directory import FORMAT, PondFile

    described = path / "pond.json"
    try:
        found = msgspec.json.decode(described.read_bytes(), type=PondFile)
        bytes.fromhex(found.id)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        return fail("pond", f"{described}: {error}", "restore it from a copy", Exit.DAMAGED)
    if found.format > FORMAT:
        return fail("pond", f"format {found.format}, this Millpond knows up to {FORMAT}", "use a newer Millpond")
    return ok("pond", f"{path}, id {found.id}")


def _lock_holder(lock: Path) -> str | None:
    """The process that has the pond, as the system lists its locks: looking does not get in anybody's way."""
    try:
        inode = os.stat(lock).st_ino
        listed = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in listed:
        words = line.split()
        if "FLOCK" in words and words[-3].rpartition(":")[2] == str(inode):
            return words[-4]
    return None


def _check_journal(path: Path, *, being_written: bool) -> Iterator[Checked]:
    files = sorted((path / "journal").glob("*.journal"))
    torn = sorted((path / "journal").glob("*.torn-*"))
    size = sum(file.stat().st_size for file in files)
    found = f"{len(files)} files, {format_bytes(size)}"
    if size > JOURNAL_LARGE_BYTES:
        yield warn("journal", found, "settle (millpond settle); millpond status says if settling fails")
    else:
        yield ok("journal", found)
    if torn:
        mend = "a crash cut a write short; nothing in them was acknowledged: look at them if you like, then remove them"
        yield warn("torn tails", f"{len(torn)} kept, e.g. {torn[0]}", mend)
    else:
        yield ok("torn tails", "none")
    ahead = [file for file in files if file.stat().st_mtime > SystemClock().now_micros() / 1e6 + 60]
    if ahead:
        yield warn("journal times", f"{ahead[0]} was written in the future", "the clock was set back: set it right")
    if being_written:
        yield ok("newest frames", "not read: another process is writing")
    elif files:
        yield _check_newest(path, files[-1])


def _check_newest(path: Path, file: Path) -> Checked:
    """Read the newest file as the next open would; the older ones are `verify`'s."""
    from millpond.log.embedded import journal_file
    from millpond.pond.directory import PondFile
    from millpond.storage import LocalStorage

    if not file.stat().st_size:
        return ok("newest frames", f"{file.name} is empty: its creation was cut short")
    try:
        pond_id = bytes.fromhex(msgspec.json.decode((path / "pond.json").read_bytes(), type=PondFile).id)
        data = memoryview(LocalStorage().map(str(file)))
        scanned = journal_file.scan(data, str(file), int(file.stem), pond_id, last=True)
    except FormatTooNew as error:
        return fail("newest frames", error.message, error.hint)
    except (MillpondError, ValueError, msgspec.MsgspecError) as error:
        return fail("newest frames", str(error).splitlines()[0], getattr(error, "hint", ""), Exit.DAMAGED)
    if scanned.torn_bytes:
        mend = "open the pond: what was torn by a crash is cut off and kept aside; nothing of it was acknowledged"
        return warn("newest frames", f"{len(scanned.frames)} good, then {scanned.torn_bytes} torn bytes", mend)
    closed = "closed cleanly" if scanned.clean else "not closed cleanly (a crash, or a kill)"
    return ok("newest frames", f"{len(scanned.frames)} good, {closed}")
