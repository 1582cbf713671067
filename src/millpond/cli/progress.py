"""A progress bar that costs nothing until it is worth showing.

Work reports where it is (`at`, `advance`) from any thread. The bar, and the library that draws it, come into play only
when somebody looks at stderr and the work has taken longer than a moment.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

# Shorter work needs no bar.
SHOW_AFTER_SECONDS = 0.5
# A person cannot read faster.
DRAW_EVERY_SECONDS = 0.1


class Progress:
    """Made by `Output.progress`. Thread-safe."""

    def __init__(self, label: str, *, unit: str, total: float | None, shown: bool) -> None:
        self._label, self._unit, self._total, self._shown = label, unit, total, shown
        self._began = self._drawn = time.monotonic()
        self._done = 0.0
        self._note = ""
        self._lock = threading.Lock()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def advance(self, count: float, note: str = "") -> None:
        """So much more is done."""
        with self._lock:
            self._done += count
            self._look(note)

    def at(self, done: float, total: float | None = None, note: str = "") -> None:
        """So much is done in all."""
        with self._lock:
            self._done = done
            self._total = total if total is not None else self._total
            self._look(note)

    def _look(self, note: str) -> None:
        self._note = note or self._note
        now = time.monotonic()
        if self._shown and now - self._began > SHOW_AFTER_SECONDS and now - self._drawn > DRAW_EVERY_SECONDS:
            self._drawn = now
            self._draw()

    def _draw(self) -> None:
        if self._bar is None:
            self._bar = _new_bar(self._unit)
            self._task = self._bar.add_task(self._label, total=self._total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=self._done, total=self._total, description=self._text(), refresh=True)

    def _text(self) -> str:
        return f"{self._label} {self._note}".rstrip()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._shown = False
            if self._bar is not None:
                self._bar.stop()


def _new_bar(unit: str) -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        amount,
        TextColumn(unit if unit != "bytes" else "", markup=False),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
    )
