"""`tokens.json`, the tokens of a pond: read whole, replaced whole, changed by one process at a time.

    {"format": 1, "closed": true, "tokens": [{"id": "4f1c09a7be", "name": "meters", "rights": ["write"],
     "prefixes": ["grid"], "created": "2026-01-31T12:00:00+00:00", "sha256": "…"}]}

It holds no secret, only the SHA-256 of each. A slow hash is for passwords, which people choose and which can be guessed
in turn; a secret of 256 random bits cannot be, however quick the hash.

`closed` says that there was a token once. It stays when the last is revoked, so that revoking never opens a door.

The file has a lock of its own, `tokens.lock`, held while it is read, changed and replaced: a command may make a token
while a server has the pond open. Readers take no lock, since a replacement is seen as a whole or not at all.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from millpond.errors import Damaged, DiskFull, FormatTooNew, InvalidName, InvalidValue, Unavailable
from millpond.storage import LocalStorage, Storage
from millpond.wire.access import Caller, Grant, check_prefix, check_rights
from millpond.wire.answers import TokenInfo

FILE = "tokens.json"
LOCK = "tokens.lock"
FORMAT = 1

# A change takes milliseconds; whoever holds the lock for longer is stuck.
_LOCK_WAIT_SECONDS = 10.0
_LOCK_PAUSE_SECONDS = 0.005


class StoredToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One token, without its secret."""

    id: str
    name: str
    rights: tuple[str, ...]
    prefixes: tuple[str, ...]
    created: str
    sha256: str

    def info(self) -> TokenInfo:
        """What may be shown of it."""
        return TokenInfo(self.id, self.name, self.rights, self.prefixes, self.created)

    def caller(self) -> Caller:
        """Whoever shows it."""
        rights = check_rights(self.rights)
        return Caller(self.id, self.name, tuple(Grant(check_prefix(prefix), rights) for prefix in self.prefixes))


class TokenBook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds."""

    format: int
    closed: bool
    tokens: tuple[StoredToken, ...]


EMPTY = TokenBook(FORMAT, False, ())

# What tells one version of the file from the next without reading it; None: there is no file.
Stamp = tuple[int, int, int, int] | None


class TokenFile:
    """The file of one pond. Thread-safe; several processes may have one each."""

    def __init__(self, directory: str, storage: Storage | None = None) -> None:
        self.path = os.path.join(directory, FILE)
        self._lock_path = os.path.join(directory, LOCK)
        self._storage = storage or LocalStorage()

    def stamp(self) -> Stamp:
        """Which version is there. A replacement is another file, so that a new one never has the stamp of the old."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(self.path, error) from error
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self) -> TokenBook:
        """The tokens; none if there is no file. `Damaged` if it is not what was written."""
        try:
            data = self._storage.read(self.path)
        except FileNotFoundError:
            return EMPTY
        except OSError as error:
            raise _unreadable(self.path, error) from error
        return _decoded(data, self.path)

    @contextmanager
    def changing(self) -> Iterator[TokenBook]:
        """The tokens, while nobody else changes them."""
        deadline = time.monotonic() + _LOCK_WAIT_SECONDS
        while True:
            try:
                lock = self._storage.lock(self._lock_path)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"another process has held {self._lock_path} for {_LOCK_WAIT_SECONDS:.0f} s",
                        hint="find it (fuser names it) and end it, then try again",
                    ) from None
                time.sleep(_LOCK_PAUSE_SECONDS)
            except OSError as error:
                raise Unavailable(
                    f"{self._lock_path} cannot be taken: {error.strerror}", hint="look at the rights to the directory"
                ) from error
        try:
            yield self.read()
        finally:
            lock.release()

    def replace(self, book: TokenBook) -> None:
        """Write the tokens, durably, for the pond's owner only. Inside `changing`."""
        try:
            self._replace(book)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise (DiskFull if full else Unavailable)(
                f"{self.path} cannot be written: {error.strerror}",
                hint="make room on the disk" if full else "look at the disk and at the rights to it",
            ) from error

    def _replace(self, book: TokenBook) -> None:
        directory = os.path.dirname(self.path)
        for left in self._storage.list(directory):
            if left.startswith(f"{FILE}.") and left.endswith(".tmp"):  # of a process that was killed here
                self._storage.remove(os.path.join(directory, left))
        staged = f"{self.path}.{secrets.token_hex(4)}.tmp"
        file = self._storage.create_append(staged)
        try:
            os.chmod(staged, 0o600)
            file.write([msgspec.json.format(msgspec.json.encode(book))])
            file.sync()
        finally:
            file.close()
        self._storage.rename(staged, self.path)
        self._storage.sync_directory(directory)


def _decoded(data: bytes, path: str) -> TokenBook:
    hint = f"restore {FILE} from a copy; or remove it, start again, and make new tokens with millpond token create"
    try:
        book = msgspec.json.decode(data, type=TokenBook)
        if book.format > FORMAT:
            raise FormatTooNew(
                f"{path} says format {book.format}; this Millpond knows up to {FORMAT}",
                hint="use the version of Millpond that wrote it, or a newer one",
            )
        for each in book.tokens:
            each.caller()
            if len(bytes.fromhex(each.sha256)) != 32:
                raise ValueError(f"token {each.id!r} has no SHA-256")
        if len({each.id for each in book.tokens}) != len(book.tokens) or (book.tokens and not book.closed):
            raise ValueError("its parts contradict each other")
    except (msgspec.MsgspecError, ValueError, InvalidValue, InvalidName) as error:
        # Without the cause: what is damaged may hold anything.
        raise Damaged(f"{path} cannot be read, so nobody is let in: {_reason(error)}", hint=hint) from None
    return book


def _reason(error: Exception) -> str:
    return getattr(error, "message", None) or str(error)


def _unreadable(path: str, error: OSError) -> Unavailable:
    return Unavailable(
        f"{path} cannot be read, so nobody is let in: {error.strerror}", hint="look at the disk and at the rights to it"
    )
