"""A pond's directory: what it is (`pond.json`), and that one process at a time has it (`lock`).

pond/
  pond.json   lock    tokens.json   tokens.lock
  journal/    spill/    archive/<stream>/…
"""

from __future__ import annotations

import os
import secrets
import unicodedata
from dataclasses import dataclass

import msgspec

from millpond.clock import Clock
from millpond.errors import Damaged, FormatTooNew, InvalidValue, PondLocked
from millpond.storage import FileLock, Storage

FORMAT = 1


class PondFile(msgspec.Struct):
    """The content of `pond.json`."""

    format: int
    id: str
    created_micros: int
    archive: str | None = None  # where settled data goes, if not under the pond


@dataclass(frozen=True)
class PondDirectory:
    """An open, locked pond directory."""

    path: str
    id: bytes
    archive: str
    lock: FileLock

    @classmethod
    def open(
        cls, path: str, storage: Storage, clock: Clock, *, create: bool, archive: str | None = None
    ) -> PondDirectory:
        """Take the lock, and read or make `pond.json`. `archive` is chosen when the pond is made and kept for good."""
        described = os.path.join(path, "pond.json")
        try:
            if not storage.exists(described):
                _check_spelling(archive or path)
                _check_free(path, storage, create=create)
            storage.make_directory(path)
            lock = storage.lock(os.path.join(path, "lock"))
        except BlockingIOError:
            raise PondLocked(
                f"another process has the pond {path} open",
                hint="close it there; a pond belongs to one process at a time",
            ) from None
        except (NotADirectoryError, PermissionError) as error:
            raise InvalidValue(
                f"{path} cannot be a pond: {error.strerror}", hint="name a directory that you may write to"
            ) from error
        try:
            if not storage.exists(described):
                fresh = PondFile(FORMAT, secrets.token_hex(16), clock.now_micros(), archive)
                storage.replace(described, msgspec.json.format(msgspec.json.encode(fresh)))
            # Whoever made the directory may have been killed before its name was safe.
            storage.sync_directory(path)
            storage.sync_directory(os.path.dirname(path))
            pond_id, kept = _read(described, storage)
            if archive not in (None, kept):
                place = f"in {kept}" if kept else "in its own directory"
                raise InvalidValue(
                    f"the pond {path} keeps its archive {place}, not in {archive}",
                    hint="an archive is chosen when its pond is made; leave `archive` out to open this one",
                )
            place = kept or os.path.join(path, "archive")
            _check_spelling(place)
            return cls(path, pond_id, place, lock)
        except BaseException:
            lock.release()
            raise


def _check_spelling(path: str) -> None:
    """Refuse a place that the table's own readers would look for elsewhere: they take paths for URLs."""
    odd = next((c for c in path if c in "%\\" or unicodedata.category(c) == "Cc"), None)
    if odd is not None:
        raise InvalidValue(
            f"{path!r} has {odd!r} in it, which Delta readers take for an escape",
            hint="name a directory without %, backslashes and control characters",
        )


def _check_free(path: str, storage: Storage, *, create: bool) -> None:
    """Whether a pond may be made here."""
    if not create:
        raise InvalidValue(f"{path} is not a pond", hint=f"make one with: millpond init {path}")
    others = [n for n in storage.list(path) if n != "lock" and not n.startswith("pond.json.")]
    if others:
        raise InvalidValue(
            f"{path} is not a pond and not empty (it holds {others[0]!r})", hint="name an empty or a new directory"
        )


def _read(described: str, storage: Storage) -> tuple[bytes, str | None]:
    """The pond's id, and where its archive is if it is elsewhere."""
    data = storage.read(described)
    hint = "restore it from a copy: the journal's files and the archive's commits carry the same id"
    try:
        found = msgspec.json.decode(data, type=PondFile)
        pond_id = bytes.fromhex(found.id)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Damaged(f"{described} cannot be read: {error}", hint=hint) from None
    if found.format > FORMAT:
        raise FormatTooNew(
            f"{described} says format {found.format}; this Millpond knows up to {FORMAT}",
            hint="open the pond with the version of Millpond that wrote it, or a newer one",
        )
    if len(pond_id) != 16:
        raise Damaged(f"{described} holds an id of {len(pond_id)} bytes", hint=hint)
    return pond_id, found.archive
