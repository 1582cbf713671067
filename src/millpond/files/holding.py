"""Who may write a file: everybody, or one alone.

Who holds a file alone has an epoch, and says it with every append. The lock dies with its holder: in another process
it is kept for a lease after each sign of life, and goes to the next who asks for it once the lease is over. The old
holder's epoch is then refused, however long it slept. Epochs begin with the time, so that none of them is given again
after a restart, which forgets who held what.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.clock import Clock
from millpond.errors import Fenced, FileLocked
from millpond.files.protocol import FileLock


@dataclass
class _Held:
    epoch: int
    lease_seconds: float | None
    until: float | None


class Holding:
    """Of one file. Not thread-safe: whoever asks holds the file's own lock, so that a check and the append after it are
    one step."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name, self._clock = name, clock
        self._held: _Held | None = None
        self._last_epoch = clock.now_micros()

    def check(self, epoch: int | None) -> None:
        """`FileLocked` if another holds the file; `Fenced` if the caller did, and lost it."""
        if epoch is not None:
            self._renewed(epoch)
        elif (held := self._current()) is not None:
            raise self._locked(held)

    def take(self, lease_seconds: float | None) -> FileLock:
        """Hold it alone. `lease_seconds` None: until it is given back."""
        held = self._current()
        if held is not None:
            raise self._locked(held)
        self._last_epoch = max(self._last_epoch + 1, self._clock.now_micros())
        self._held = _Held(self._last_epoch, lease_seconds, self._until(lease_seconds))
        return FileLock(self._last_epoch, lease_seconds)

    def renew(self, epoch: int) -> FileLock:
        """The holder is still there."""
        held = self._renewed(epoch)
        return FileLock(held.epoch, held.lease_seconds)

    def give_back(self, epoch: int) -> None:
        """Nothing if another holds it since."""
        if self._held is not None and self._held.epoch == epoch:
            self._held = None

    def _renewed(self, epoch: int) -> _Held:
        """A holder that was away for longer than its lease goes on if nobody asked for the file meanwhile."""
        held = self._held
        if held is None or held.epoch != epoch:
            raise Fenced(
                f"the lock on {self._name} is lost: its holder was not heard of in time, or the node was started again",
                hint="open the file again; what was acknowledged before is in it",
            )
        held.until = self._until(held.lease_seconds)
        return held

    def _until(self, lease_seconds: float | None) -> float | None:
        return None if lease_seconds is None else self._clock.monotonic_seconds() + lease_seconds

    def _current(self) -> _Held | None:
        """Who holds it; a lease that is over is none."""
        held = self._held
        if held is not None and held.until is not None and self._clock.monotonic_seconds() >= held.until:
            held = self._held = None
        return held

    def _locked(self, held: _Held) -> FileLocked:
        wait = "" if held.lease_seconds is None else f", or is gone for {held.lease_seconds:g} s"
        return FileLocked(
            f"{self._name} is held by another writer alone", hint=f"try again when it has closed the file{wait}"
        )
