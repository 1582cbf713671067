"""Opening a pond: settings, lock, recovery, then the streams."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from dataclasses import fields

from millpond.clock import Clock, SystemClock
from millpond.errors import InvalidValue
from millpond.log.embedded.engine import EmbeddedLog
from millpond.model.units import parse_bytes, parse_seconds
from millpond.pond.directory import PondDirectory
from millpond.pond.pond import Pond
from millpond.settings import Settings
from millpond.storage import LocalStorage, Storage

logger = logging.getLogger(__name__)

# Recovery that takes longer than this says how far it is.
SHOW_AFTER_SECONDS = 1.0

Progress = Callable[[int, int], None]

# The ponds that this process has opened, by their directories: what Spark is asked to read may be one of them.
_opened: weakref.WeakValueDictionary[str, Pond] = weakref.WeakValueDictionary()


def open_here(path: str | os.PathLike[str]) -> Pond | None:
    """The pond in that directory, if this process has opened it; it may be closed by now."""
    return _opened.get(os.path.realpath(path))


def open_pond(
    path: str | os.PathLike[str],
    *,
    archive: str | os.PathLike[str] | None = None,
    create: bool = True,
    settle_on_close: bool = False,
    background: bool = True,
    progress: Progress | None = None,
    storage: Storage | None = None,
    clock: Clock | None = None,
    **settings: int | float | str,
) -> Pond:
    """Open the pond in a directory, made if it is not there (unless `create=False`). One process at a time.

    `archive`: where settled data goes, if not under the pond; chosen when the pond is made. `settle_on_close`: settle
    everything when the pond is closed. `background=False`: nothing settles or merges by itself.
    `progress(done_bytes, total_bytes)` is called while the journal is recovered; without it, progress is logged when
    recovery takes longer than a second. `storage` and `clock` are for tests. Any setting of `millpond.settings` may be
    given by name.
    """
    chosen = _settings(settings)
    where = os.path.abspath(os.fspath(path))
    disk, time = storage or LocalStorage(), clock or SystemClock()
    began = time.monotonic_seconds()
    directory = PondDirectory.open(where, disk, time, create=create, archive=_archive_path(archive))
    log: EmbeddedLog | None = None
    try:
        log = EmbeddedLog.open(
            where,
            storage=disk,
            clock=time,
            settings=chosen,
            pond_id=directory.id,
            progress=progress or _logged(where, time),
        )
        pond = Pond(
            directory,
            log,
            disk,
            time,
            chosen,
            background=background,
            settle_on_close=settle_on_close,
        )
        pond.telemetry.open_seconds = time.monotonic_seconds() - began
        _opened[os.path.realpath(where)] = pond
        return pond
    except BaseException:
        try:
            if log is not None:
                log.close()
        finally:
            directory.lock.release()
        raise


def _settings(given: dict[str, int | float | str]) -> Settings:
    """Sizes and durations may be text with a unit, as everywhere: "64MB", "5s"."""
    known = {each.name for each in fields(Settings)}
    for name in given:
        if name not in known:
            raise InvalidValue(f"no setting {name!r}", hint=f"settings: {', '.join(sorted(known))}")
    return Settings(**{name: _number(name, value) for name, value in given.items()})  # type: ignore[arg-type]


def _number(name: str, value: int | float | str) -> int | float | str:
    if isinstance(value, str) and "_bytes" in name:
        return parse_bytes(value)
    if isinstance(value, str) and "_seconds" in name:
        return parse_seconds(value)
    return value


def _archive_path(archive: str | os.PathLike[str] | None) -> str | None:
    if archive is None:
        return None
    where = os.fspath(archive)
    if "://" in where and not where.startswith("file://"):
        raise InvalidValue(f"archive {where!r} is not a local directory", hint="name a directory of this machine")
    return os.path.abspath(where.removeprefix("file://"))


def _logged(path: str, clock: Clock) -> Progress:
    began = shown = clock.monotonic_seconds()

    def progress(done: int, total: int) -> None:
        nonlocal shown
        now = clock.monotonic_seconds()
        if now - began > SHOW_AFTER_SECONDS and now - shown > SHOW_AFTER_SECONDS:
            shown = now
            logger.warning("recovering %s: %.0f %% of %.1f MB", path, 100 * done / max(1, total), total / 1e6)

    return progress
