"""One journal file: its header, and how it is read back after whatever happened to it.

    at  size  field
     0     8  magic "MILLPOND"
     8     2  format version
    10     6  zeros
    16     8  number of the file
    24    16  the pond's id
    40     8  created, microseconds since the epoch
    48    12  zeros
    60     4  crc32 of bytes 0 to 60

Reading gives the frames of all complete groups. Where they stop before the file does, the rest is judged, never
guessed at: a *torn tail* (a crash in the middle of a write; nothing there was ever promised) or *damage* (bytes that
had been synced, and so may have been acknowledged, are not what was written).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from millpond.errors import Damaged, FormatTooNew
from millpond.log.embedded import frame as frames
from millpond.log.embedded.frame import Frame, crc32

MAGIC = b"MILLPOND"
VERSION = 1
FILE_HEADER = struct.Struct("<8sH6xQ16sq12xI")
FILE_HEADER_BYTES = 64
assert FILE_HEADER.size == FILE_HEADER_BYTES

RESTORE = "restore this file from a copy; nothing was changed by trying"


def file_name(number: int) -> str:
    """`000000000001.journal`"""
    return f"{number:012d}.journal"


def encode_header(number: int, pond_id: bytes, created_micros: int) -> bytes:
    """The first 64 bytes of a file."""
    head = FILE_HEADER.pack(MAGIC, VERSION, number, pond_id, created_micros, 0)[:-4]
    return head + crc32(head).to_bytes(4, "little")


@dataclass(slots=True)
class Scan:
    """What a file holds: the frames of complete groups, where they end, and whether it was closed cleanly."""

    frames: list[Frame] = field(default_factory=list)
    good_end: int = 0  # after the last complete group
    size: int = 0
    clean: bool = False  # the last frame is an end frame and nothing follows

    @property
    def torn_bytes(self) -> int:
        return self.size - self.good_end


def scan(data: memoryview, path: str, number: int, pond_id: bytes, *, last: bool) -> Scan:
    """Read a whole file. `last`: it is the newest one, whose tail a crash may have torn."""
    found = Scan(size=len(data))
    if not _check_header(data, path, number, pond_id, last=last):
        return found
    position = found.good_end = FILE_HEADER_BYTES
    group: list[Frame] = []
    while (frame := frames.decode(data, position)) is not None:
        group.append(frame)
        position = frame.end
        if frame.flags & frames.LAST_OF_GROUP:
            found.frames += group
            found.good_end = position
            found.clean = frame.kind == frames.END
            group = []
    if found.torn_bytes:
        found.clean = False
        _judge_tail(data, path, found, last=last)
    elif not last and not found.clean:
        raise Damaged(f"{path} ends at byte {found.size} without its end mark: frames are missing", hint=RESTORE)
    return found


def _check_header(data: memoryview, path: str, number: int, pond_id: bytes, *, last: bool) -> bool:
    """Whether there is a header to go on from; False for a newest file whose creation was cut short."""
    head = bytes(data[:FILE_HEADER_BYTES])
    whole = len(head) == FILE_HEADER_BYTES and head[:8] == MAGIC
    if not whole or crc32(head[:-4]) != int.from_bytes(head[-4:], "little"):
        if last and _next_frame(data, 0) is None:
            return False
        raise Damaged(f"{path}: the file's header (bytes 0 to {FILE_HEADER_BYTES}) is damaged", hint=RESTORE)
    _, version, found_number, found_pond, _, _ = FILE_HEADER.unpack(head)
    if version > VERSION:
        raise FormatTooNew(
            f"{path} has journal format {version}; this Millpond knows up to {VERSION}",
            hint="open the pond with the version of Millpond that wrote it, or a newer one",
        )
    if found_number != number or found_pond != pond_id:
        raise Damaged(f"{path} is journal file {found_number} of another pond or place", hint=RESTORE)
    return True


def _judge_tail(data: memoryview, path: str, found: Scan, *, last: bool) -> None:
    """Return if what follows the last good group is a torn tail; raise `Damaged` if any of it had been synced."""
    message = f"{path}: damaged at byte {found.good_end} of {found.size}"
    if not last:
        raise Damaged(message, hint=RESTORE)
    at = found.good_end
    while (later := _next_frame(data, at)) is not None:
        if later.synced > found.good_end:
            raise Damaged(f"{message}; those bytes had been synced (frame at byte {later.position})", hint=RESTORE)
        at = later.position + 1


def _next_frame(data: memoryview, start: int) -> Frame | None:
    """The first whole frame at or after `start`, wherever it begins."""
    raw = data.obj
    at = raw.find(frames.MAGIC, start)  # type: ignore[attr-defined]
    while at >= 0:
        frame = frames.decode(data, at)
        if frame is not None:
            return frame
        at = raw.find(frames.MAGIC, at + 1)  # type: ignore[attr-defined]
    return None
