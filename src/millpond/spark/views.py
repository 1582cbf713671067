"""Streams as Spark SQL views, kept in step with the pond: created, altered and dropped with their streams.

A view need not be made anew when its stream settles: every query finds the newest objects by itself.

`grid/meters` becomes `grid_meters`. Where two streams would share a view's name, the older one has it and the younger
one's carries its id as well (`grid_meters_12`). Data sets have views, too, after all streams.

Invariant: a view of somebody else's, be it another pond's or the user's own, is neither replaced nor dropped. Where one
has the name, ours is called otherwise, as if that were of an older stream, and keeps the name that it got. Whose a view
is, the session's catalog says, which all of them share (`java/OwnViews.java`): no list of ours could know the user's.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from millpond.errors import Forbidden, MillpondError, StreamNotFound
from millpond.model.names import view_name
from millpond.spark.planner import SessionPlanner, planner_of
from millpond.spark.provider import register
from millpond.wire.served import Change, ServedPond, ServedStream, ServesDatasets

logger = logging.getLogger(__name__)

_attaching = threading.Lock()


def attach(pond: ServedPond, spark: SparkSession) -> Attachment:
    """Make every stream of the pond a view of the session, now and as streams come and go. Once is enough."""
    register(spark)
    planner = planner_of(spark)
    with _attaching:
        while planner.left_views:  # of ponds that are closed: one that is opened again shall have its names
            planner.left_views.pop().drop_all()
        attached = planner.attachments.get(id(pond))
        if not isinstance(attached, Attachment):
            attached = planner.attachments[id(pond)] = Attachment(pond, planner)
    return attached


@dataclass(frozen=True)
class _View:
    """A view that was made: its name, and what it shows (the id of a stream or data set, and as of which version).
    `yielding`: a better name was somebody else's."""

    name: str
    shows: tuple[int | str, int]
    yielding: bool


@dataclass(frozen=True)
class _Wanted:
    """What should have a view. `name` is the best one; `frame` may find that it is not there any more, or forbidden."""

    of: str
    name: str
    shows: tuple[int | str, int]
    frame: Callable[[], DataFrame]

    def names(self) -> Iterator[str]:
        """What the view may be called, best first."""
        yield self.name
        yield f"{self.name}_{self.shows[0]}"
        yield from (f"{self.name}_{self.shows[0]}_{number}" for number in itertools.count(2))


class Attachment:
    """The views of one pond in one session. Thread-safe."""

    def __init__(self, pond: ServedPond, planner: SessionPlanner) -> None:
        self._pond = pond
        self._planner = planner
        self._lock = threading.Lock()
        self._own = planner.jvm.views()
        self._opened: dict[str, ServedStream] = {}
        self._views: dict[str, _View] = {}
        self._dataset_views: dict[str, _View] = {}
        self._stop = pond.on_change(self._changed)
        try:
            self._refresh()
        except BaseException:
            self._stop()
            raise

    @property
    def views(self) -> Mapping[str, str]:
        """Stream -> view. One that somebody else has replaced or dropped since is not among them."""
        return self._still_there(self._views)

    @property
    def dataset_views(self) -> Mapping[str, str]:
        """Data set -> view."""
        return self._still_there(self._dataset_views)

    def _still_there(self, views: Mapping[str, _View]) -> dict[str, str]:
        with self._lock:
            there = set() if self._planner.stopped else self._own.names
            return {of: view.name for of, view in views.items() if view.name.lower() in there}

    def detach(self) -> None:
        """Drop the views and stop following the pond."""
        self._stop()
        self._planner.attachments.pop(id(self._pond), None)
        with self._lock:
            for view in (*self._views.values(), *self._dataset_views.values()):
                self._own.drop(view.name)
            self._views.clear()
            self._dataset_views.clear()

    def follow(self) -> None:
        """Bring the views in step with the pond. Changes that a pond tells of are followed without it."""
        self._refresh()

    def _changed(self, change: Change) -> None:
        if self._planner.stopped:
            self._stop()
            self._planner.attachments.pop(id(self._pond), None)
            return
        if change.kind == "closed":
            # The views stay, and say that it is closed: opened and attached again, the pond is found under them.
            self._stop()
            self._planner.attachments.pop(id(self._pond), None)
            with self._lock:
                self._planner.release(self._opened.values())
                self._planner.left_views.append(self._own)
                self._opened.clear()
            return
        try:
            self._refresh()
        except Exception:  # the pond's own work must not fail because a session is on its way out
            logger.exception("the views of a Spark session could not follow: %s was %s", change.name, change.kind)

    def _refresh(self) -> None:
        """Bring the views in step with the pond as it is now: a change that is told late or twice does no harm."""
        with self._lock:
            taken: set[str] = set()
            self._bring(self._views, list(self._wanted_streams()), taken)
            self._bring(self._dataset_views, list(self._wanted_datasets()), taken)

    def _wanted_streams(self) -> Iterator[_Wanted]:
        for stream in self._pond.served_streams():
            try:
                definition = stream.definition
            except (Forbidden, StreamNotFound) as error:
                _left_out(stream.name, error)
                continue
            shows = definition.id, definition.schema_version
            yield _Wanted(stream.name, view_name(stream.name), shows, partial(self._frame, stream))

    def _frame(self, stream: ServedStream) -> DataFrame:
        frame = self._planner.frame(stream)
        self._opened[stream.name] = stream
        return frame

    def _wanted_datasets(self) -> Iterator[_Wanted]:
        for dataset in self._pond.served_datasets() if isinstance(self._pond, ServesDatasets) else ():
            frame = partial(dataset.to_spark, self._planner.spark)
            yield _Wanted(dataset.name, view_name(dataset.name), (dataset.id, dataset.types), frame)

    def _bring(self, held: dict[str, _View], wanted: Sequence[_Wanted], taken: set[str]) -> None:
        """Bring `held` in step with what is wanted, in this order. `taken`: names that views before these have, in
        lower case, as Spark compares them; the names of these are added."""
        there = self._own.names - taken
        lasting = {one.of: one.shows[0] for one in wanted}
        for of, made in list(held.items()):
            # One that somebody else has replaced, or whose name has gone to one before, is not there any more.
            if made.name.lower() not in there:
                del held[of]
            elif lasting.get(of) != made.shows[0]:
                self._own.drop(held.pop(of).name)
        for one in wanted:
            view: _View | None = held.get(one.of)
            best = next(name for name in one.names() if name.lower() not in taken)
            if view is not None and view.name.lower() in taken:  # one before it among these has it now
                del held[one.of]
                view = None
            elif view is not None and view.name != best and not view.yielding:
                self._own.drop(held.pop(one.of).name)
                view = None
            if view is None or view.shows != one.shows:
                try:
                    frame = one.frame()
                except (Forbidden, StreamNotFound) as error:
                    _left_out(one.of, error)
                    if view is not None:
                        self._own.drop(held.pop(one.of).name)
                    continue
                view = held[one.of] = self._made(frame, one, taken, view)
            taken.add(view.name.lower())

    def _made(self, frame: DataFrame, wanted: _Wanted, taken: set[str], view: _View | None) -> _View:
        """Make the view, under the name that it has or the best that is free."""
        if view is not None and self._own.make(frame, view.name):
            return replace(view, shows=wanted.shows)
        strange = ""
        for name in wanted.names():
            if name.lower() in taken:
                continue
            if self._own.make(frame, name):
                if strange:
                    logger.warning(
                        "the view of %s is called %s: the session has another view %s", wanted.of, name, strange
                    )
                return _View(name, wanted.shows, bool(strange))
            strange = strange or name
        raise AssertionError("names do not end")


def _left_out(stream: str, error: MillpondError) -> None:
    """One stream without a view: dropped since it was listed, or not for this caller to read."""
    logger.warning("%s has no view: %s", stream, error.message)
