"""What a person sees of running pipelines: on a terminal a table that moves, in a pipe a line for each batch and each
change, with `--json` an object a line. What fails is a line everywhere. Called from the threads of pipelines."""

from __future__ import annotations

import sys
import threading
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING

from millpond.cli.output import shown as printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from millpond.cli.output import Output
    from millpond.wire.pipelines import PipelineReport


def screen_of(output: Output) -> Screen:
    """The one that suits who looks."""
    if sys.stderr.isatty() and not output.json and not output.quiet:
        return TableScreen(output)
    return Screen(output)


class Screen:
    """Lines. A context manager, thread-safe."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._lock = threading.Lock()
        self._last: dict[str, PipelineReport] = {}

    def show(self, report: PipelineReport) -> None:
        """What has become of a pipeline."""
        with self._lock:
            last, self._last[report.name] = self._last.get(report.name), report
            if report == last:
                return
            if self._output.json:
                told = asdict(report)
                del told["heard_seconds"]
                self._output.one(told)
                sys.stdout.flush()
            elif report.failure and (last is None or report.failure != last.failure):
                again = "; it starts again by itself" if report.state == "waiting" else ""
                self._output.warn(f"{report.failure}{again}")
            else:
                self._changed(last, report)

    def _changed(self, last: PipelineReport | None, report: PipelineReport) -> None:
        if last is None or report.state != last.state:
            self._output.say(f"{report.name}: {report.state}{_more(report)}")
        elif report.batch != last.batch:
            self._output.say(
                f"{report.name}: batch {report.batch}, {report.batch_rows:,} records "
                f"in {report.batch_seconds:.1f} s, {report.behind:,} behind"
            )

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class TableScreen(Screen):
    """A table on stderr that is drawn again with each change; failures stand above it."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._live: Live | None = None

    def _changed(self, last: PipelineReport | None, report: PipelineReport) -> None:
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Table:
        from rich.table import Table

        table = Table("pipeline", "from", "to", "state", box=None, pad_edge=False)
        for title in ("batch", "records", "seconds", "behind", "in all", "restarts"):
            table.add_column(title, justify="right")
        for each in self._last.values():
            figures = (each.batch_rows, f"{each.batch_seconds:.1f}", each.behind, each.rows, each.restarts)
            batch = "-" if each.batch < 0 else f"{each.batch:,}"
            numbers = [number if isinstance(number, str) else f"{number:,}" for number in figures]
            names = [printable(text) for text in (each.name, " + ".join(each.sources), each.sink, each.state)]
            table.add_row(*names, batch, *numbers)
        return table

    def __enter__(self) -> TableScreen:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), refresh_per_second=4)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._table())
            self._live.stop()
            self._live = None


def _more(report: PipelineReport) -> str:
    if report.state == "stopped":
        return f" after {report.rows:,} records, {report.behind:,} behind"
    return f", {' + '.join(report.sources)} -> {report.sink}" if report.state == "running" else ""
