"""Declaring pipelines: what reads which streams, how, and where the result goes. Nothing runs by being declared.

    @millpond.pipeline(source="grid/meters", sink="grid/hot")
    def hot(meters):
        return meters.where("temp > 30")

The function takes a streaming DataFrame and gives one back; it stays a plain function, to be called and tested. A file
of declarations is a Python file: it is run once, and what it declared is found.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import runpy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from millpond.errors import InvalidInput, InvalidValue, MillpondError
from millpond.model.names import check_name
from millpond.model.units import Duration, parse_seconds
from millpond.spark.pipelines.blame import blamed

Build = Callable[..., Any]
F = TypeVar("F", bound=Build)

AVAILABLE_NOW = "available-now"
MODES = ("append", "update")
# A checkpoint's directory is called as the pipeline is.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")


@dataclass(frozen=True)
class Pipeline:
    """One pipeline. `sources` are streams by the name of the parameter that takes them; "" is the only one. `build` is
    None where `sql` says it."""

    name: str
    sources: Mapping[str, str]
    sink: str
    build: Build | None = None
    sql: str | None = None
    trigger: Duration = "1s"
    mode: str = "append"
    start: str = "earliest"
    watermark: Duration | None = None
    max_records: int | None = None
    # Of the sink, if it has to be made.
    keys: Sequence[str] = ()
    event_time: str | None = None
    streamlets: int = 1
    where: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise InvalidValue(f"no name for a pipeline: {self.name!r}", hint="letters, digits, _ . and -, up to 100")
        for stream in (*self.sources.values(), self.sink):
            check_name(stream)
        if self.trigger != AVAILABLE_NOW and parse_seconds(self.trigger) < 0:
            raise InvalidValue(f"trigger {self.trigger!r}", hint=f'a duration, e.g. "10s", or "{AVAILABLE_NOW}"')
        if self.mode not in MODES:
            raise InvalidValue(f"no mode {self.mode!r}", hint=f"one of {', '.join(MODES)}: a stream only grows")
        if self.watermark is not None:
            parse_seconds(self.watermark)
        if self.sink in self.sources.values():
            raise InvalidValue(f"{self.name} would read what it writes: {self.sink}", hint="name another sink")


_declared: list[Pipeline] = []


def pipeline(
    *,
    source: str | Mapping[str, str],
    sink: str,
    name: str | None = None,
    trigger: Duration = "1s",
    mode: str = "append",
    start: str = "earliest",
    watermark: Duration | None = None,
    max_records: int | None = None,
    keys: Sequence[str] = (),
    event_time: str | None = None,
    streamlets: int = 1,
) -> Callable[[F], F]:
    """Declare a pipeline: a function that takes a streaming DataFrame and gives one.

    `source`: a stream, or several by the names of the function's parameters. `sink`: a stream, made from the result's
    columns if it is not there, with `keys`, `event_time` and `streamlets`. `name`: the function's unless given.
    `trigger`: how often a micro-batch begins, or "available-now": once, for what is there. `mode`: "append", or
    "update" for aggregates that give a row each time they change. `start`: where a pipeline begins that never ran.
    `watermark`: how late records may be, by their stream's event time. `max_records`: of a micro-batch.
    """

    def declared(build: F) -> F:
        code = inspect.unwrap(build).__code__
        made = Pipeline(
            name or build.__name__,
            {"": source} if isinstance(source, str) else dict(source),
            sink,
            build,
            None,
            trigger,
            mode,
            start,
            watermark,
            max_records,
            tuple(keys),
            event_time,
            streamlets,
            f"{Path(code.co_filename).name}:{code.co_firstlineno}",
        )
        _check_parameters(made, build)
        _declared.append(made)
        return build

    return declared


def sql_pipeline(
    name: str,
    query: str,
    *,
    sink: str,
    trigger: Duration = "1s",
    mode: str = "append",
    start: str = "earliest",
    watermark: Duration | None = None,
    max_records: int | None = None,
    keys: Sequence[str] = (),
    event_time: str | None = None,
    streamlets: int = 1,
) -> Pipeline:
    """Declare a continuous query: SQL over streams as views (`grid/meters` is `grid_meters`) whose result goes to a
    stream as records arrive. The options are those of `pipeline`."""
    caller = inspect.stack(0)[1]
    made = Pipeline(
        name,
        {},
        sink,
        None,
        query,
        trigger,
        mode,
        start,
        watermark,
        max_records,
        tuple(keys),
        event_time,
        streamlets,
        f"{Path(caller.filename).name}:{caller.lineno}",
    )
    _declared.append(made)
    return made


def _check_parameters(made: Pipeline, build: Build) -> None:
    """`InvalidValue` unless the function can be called with its sources."""
    frames = dict.fromkeys(made.sources)
    try:
        signature = inspect.signature(build)
        if list(frames) == [""]:
            signature.bind(None)
        else:
            signature.bind(**frames)
    except TypeError as error:
        raise InvalidValue(
            f"pipeline {made.name!r} ({made.where}): its function cannot take its sources: {error}",
            hint="one parameter for one source; for several, parameters called as the sources are",
        ) from None


@contextlib.contextmanager
def _collecting() -> Iterator[list[Pipeline]]:
    kept = list(_declared)
    _declared.clear()
    found: list[Pipeline] = []
    try:
        yield found
        found.extend(_declared)
    finally:
        _declared[:] = kept


def load_file(path: Path, names: Sequence[str] = ()) -> list[Pipeline]:
    """The pipelines that a file declares, all or the named ones."""
    if not path.is_file():
        raise InvalidValue(f"{path} is not a file", hint="name a Python file that declares pipelines")
    with _collecting() as found:
        try:
            runpy.run_path(str(path), run_name="millpond_pipelines")
        except (MillpondError, Exception) as error:
            raise blamed(str(path), path, error) from error
    by_name = {each.name: each for each in found}
    if not found:
        raise InvalidInput(f"{path} declares no pipeline", hint="@millpond.pipeline(source=..., sink=...)")
    if len(by_name) != len(found):
        twice = sorted({each.name for each in found if [other.name for other in found].count(each.name) > 1})
        raise InvalidInput(f"{path} declares {', '.join(twice)} twice", hint="give each a name of its own")
    for name in names:
        if name not in by_name:
            raise InvalidValue(f"{path} declares no pipeline {name!r}", hint=f"it declares {', '.join(by_name)}")
    return [by_name[name] for name in names] if names else found
