"""The gate of a server: who shows which token, by the file `tokens.json` in the pond's directory.

A token is `mp_<id>_<secret>`. The id is public and stands in logs; the secret has 256 random bits and is shown once.

What time can tell. The token is found by its id in a plain dict: ids are no secret, so the time of that may be known.
The secret is hashed, and hashes are compared in constant time; an unknown id is compared with a hash that nothing has,
so that it costs the same as a known id with a wrong secret. All of it takes about two microseconds, so nothing
remembers tokens that were good: no secret outlives its request, and there is no cache whose hits could be timed.

What is closed stays closed. A file that cannot be read lets nobody in. Once a token was made, `auto` asks for one for
good, also after the last was revoked; and a running gate that asked for tokens goes on doing so if the file vanishes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from millpond.clock import Clock, SystemClock
from millpond.errors import InvalidValue, MillpondError, NoSuchRoute, TooLarge, Unauthenticated, Unavailable
from millpond.pond.token_file import FORMAT, Stamp, StoredToken, TokenBook, TokenFile
from millpond.storage import Storage
from millpond.wire.access import ANYONE, RIGHTS, Caller, check_prefix, check_rights, new_secret
from millpond.wire.answers import NewToken, TokenInfo
from millpond.wire.requests import CreateToken

Mode = Literal["auto", "required", "off"]

# Bounds the file, and the memory of every server that reads it.
TOKENS_MAX = 10_000
# How often the file is looked at: a revoked token is refused within a second.
LOOK_SECONDS = 0.5

_ID_BYTES = 5
_ID = re.compile(rf"[0-9a-f]{{{2 * _ID_BYTES}}}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}\Z")
# Longer than any of ours: not worth a hash.
_TOKEN_LENGTH_MAX = 200
# What an unknown id is compared with: no secret has this hash.
_NOBODY = hashlib.sha256(secrets.token_bytes(32)).digest()


@dataclass(frozen=True, slots=True)
class _Holder:
    digest: bytes
    caller: Caller


@dataclass(frozen=True, slots=True)
class _View:
    """The file as it was last read."""

    stamp: Stamp
    closed: bool
    holders: dict[str, _Holder]
    failure: MillpondError | None = None


class TokenGate:
    """A `Gate` over a pond's tokens. Thread-safe. It needs the pond's directory, not the pond: several processes may
    have one each, and each sees what the others change."""

    def __init__(
        self, directory: str, mode: Mode = "auto", *, storage: Storage | None = None, clock: Clock | None = None
    ) -> None:
        if mode not in get_args(Mode):
            raise InvalidValue(f"no mode of tokens {mode!r}", hint=f"one of {', '.join(get_args(Mode))}")
        self._mode, self._clock = mode, clock or SystemClock()
        self._file = TokenFile(directory, storage)
        self._lock = threading.Lock()  # guards the view while it is renewed
        self._changes = threading.Lock()  # one change at a time in this process; between processes the file has a lock
        self._view = self._looked(None)
        self._look_at = self._clock.monotonic_seconds() + LOOK_SECONDS

    # Who calls.

    def authenticate(self, token: str | None) -> Caller:
        if self._mode == "off":
            return ANYONE
        view = self._current()
        if view.failure is not None:
            raise _again(view.failure)
        if not view.closed and self._mode == "auto":
            return ANYONE
        if not token:
            raise Unauthenticated(
                "a token is needed, and none was shown", hint="show one that millpond token create made"
            )
        if len(token) <= _TOKEN_LENGTH_MAX:
            kind, _, rest = token.partition("_")
            public, _, secret = rest.partition("_")
            holder = view.holders.get(public)
            digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
            known = hmac.compare_digest(digest, holder.digest if holder is not None else _NOBODY)
            if known and holder is not None and kind == "mp":
                return holder.caller
        raise Unauthenticated(
            "the token is not known", hint="it was mistyped or revoked: millpond token list names all"
        )

    def check_still(self, caller: Caller) -> None:
        if self._mode == "off":
            return
        view = self._current()
        if view.failure is not None:
            raise _again(view.failure)
        holder = view.holders.get(caller.id)
        if holder is not None and holder.caller == caller:
            return
        if caller is not ANYONE or view.closed or self._mode == "required":
            raise Unauthenticated("the token was revoked", hint="show one that millpond token list names")

    @property
    def closed(self) -> bool:
        """Whether callers need a token, now and for as long as this gate stands. Raises if the file cannot be read."""
        if self._mode == "off":
            return False
        view = self._current()
        if view.failure is not None:
            raise _again(view.failure)
        return view.closed or self._mode == "required"

    def _current(self) -> _View:
        now = self._clock.monotonic_seconds()
        if now >= self._look_at:
            with self._lock:
                if now >= self._look_at:
                    self._view = self._looked(self._view)
                    self._look_at = now + LOOK_SECONDS
        return self._view

    def _looked(self, before: _View | None) -> _View:
        """What the file holds now, read only if it is another than before."""
        stamp: Stamp = None
        closed = before is not None and before.closed
        try:
            stamp = self._file.stamp()
            if before is not None and stamp == before.stamp and before.failure is None:
                return before
            if stamp is None and closed:
                raise Unavailable(
                    f"{self._file.path} is gone, so nobody is let in",
                    hint="restore it; or make a token with millpond token create; or start the server again without it",
                )
            # Stamped before it is read: a change in between is seen at the next look.
            book = self._file.read()
        except MillpondError as error:
            return _View(stamp, closed, {}, error)
        holders = {each.id: _Holder(bytes.fromhex(each.sha256), each.caller()) for each in book.tokens}
        return _View(stamp, closed or book.closed, holders)

    # Changes.

    def create(self, request: CreateToken) -> NewToken:
        """A new token, durable when this returns."""
        name = _checked_name(request.name)
        rights = tuple(right for right in RIGHTS if right in check_rights(request.rights))
        prefixes = tuple(dict.fromkeys(check_prefix(prefix) for prefix in request.prefixes))
        if not prefixes:
            raise InvalidValue("a token without prefixes reaches nothing", hint='"" is everything')
        with self._changes, self._file.changing() as book:
            if any(each.name == name for each in book.tokens):
                raise InvalidValue(
                    f"there is a token named {name!r} already", hint=f"millpond token revoke {name}, or another name"
                )
            if len(book.tokens) >= TOKENS_MAX:
                raise TooLarge(f"there are {TOKENS_MAX:,} tokens, the most there may be", hint="revoke some")
            taken = {each.id for each in book.tokens}
            public = next(new for new in iter(lambda: secrets.token_hex(_ID_BYTES), "") if new not in taken)
            secret = new_secret()
            created = datetime.fromtimestamp(self._clock.now_micros() // 1_000_000, UTC).isoformat()
            hashed = hashlib.sha256(secret.encode()).hexdigest()
            stored = StoredToken(public, name, rights, prefixes, created, hashed)
            self._file.replace(TokenBook(FORMAT, True, (*book.tokens, stored)))
        self._look_now()
        return NewToken(f"mp_{public}_{secret}", stored.info())

    def tokens(self) -> list[TokenInfo]:
        """All tokens, the oldest first."""
        return [each.info() for each in self._file.read().tokens]

    def revoke(self, token: str) -> TokenInfo:
        """Take a token back, by its id or its name. This gate refuses it from now on, others within a second."""
        with self._changes, self._file.changing() as book:
            found = next((each for each in book.tokens if token in (each.id, each.name)), None)
            if found is None:
                # What was asked for is not shown: it may be a token, pasted whole.
                raise NoSuchRoute("there is no token of that name or id", hint="millpond token list names all")
            self._file.replace(TokenBook(FORMAT, True, tuple(each for each in book.tokens if each is not found)))
        self._look_now()
        return found.info()

    def _look_now(self) -> None:
        with self._lock:
            self._view = self._looked(self._view)
            self._look_at = self._clock.monotonic_seconds() + LOOK_SECONDS


def _again(failure: MillpondError) -> MillpondError:
    """The same failure for another caller: one raised twice would carry both their stacks."""
    return type(failure)(failure.message, hint=failure.hint)


def _checked_name(name: str) -> str:
    if not _NAME.match(name) or _ID.match(name):
        raise InvalidValue(
            f"a token cannot be named {name[:80]!r}",
            hint="1 to 64 of A-Z a-z 0-9 _ . @ -, starting with a letter or digit, and not of the form of an id",
        )
    return name
