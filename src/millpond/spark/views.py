"""Streams as Spark SQL views, kept in step with the pond: created, altered and dropped with their streams.

A view need not be made anew when its stream settles: every query finds the newest objects by itself.

`grid/meters` becomes `grid_meters`. Where two streams would share a view's name, the older one has it and the younger
one's carries its id as well (`grid_meters_12`). Data sets have views, too, after all streams.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from pyspark.sql import SparkSession

from millpond.errors import Forbidden, MillpondError, StreamNotFound
from millpond.model.names import view_name
from millpond.spark.planner import SessionPlanner, planner_of
from millpond.spark.provider import register
from millpond.wire.served import Change, ServedDataset, ServedPond, ServedStream, ServesDatasets

logger = logging.getLogger(__name__)

_attaching = threading.Lock()


def attach(pond: ServedPond, spark: SparkSession) -> Attachment:
    """Make every stream of the pond a view of the session, now and as streams come and go. Once is enough."""
    register(spark)
    planner = planner_of(spark)
    with _attaching:
        attached = planner.attachments.get(id(pond))
        if not isinstance(attached, Attachment):
            attached = planner.attachments[id(pond)] = Attachment(pond, planner)
    return attached


class Attachment:
    """The views of one pond in one session. Thread-safe."""

    def __init__(self, pond: ServedPond, planner: SessionPlanner) -> None:
        self._pond = pond
        self._planner = planner
        self._lock = threading.Lock()
        self._views: dict[str, tuple[str, int, int]] = {}
        self._opened: dict[str, ServedStream] = {}
        self._dataset_views: dict[str, tuple[str, str]] = {}
        self._stop = pond.on_change(self._changed)
        try:
            self._refresh()
        except BaseException:
            self._stop()
            raise

    @property
    def views(self) -> Mapping[str, str]:
        """Stream -> view."""
        with self._lock:
            return {stream: view for stream, (view, _, _) in self._views.items()}

    @property
    def dataset_views(self) -> Mapping[str, str]:
        """Data set -> view."""
        with self._lock:
            return {name: view for name, (view, _) in self._dataset_views.items()}

    def detach(self) -> None:
        """Drop the views and stop following the pond."""
        self._stop()
        self._planner.attachments.pop(id(self._pond), None)
        with self._lock:
            for view in [*(held[0] for held in self._views.values()), *(v for v, _ in self._dataset_views.values())]:
                self._planner.spark.catalog.dropTempView(view)
            self._views.clear()
            self._dataset_views.clear()

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
                self._opened.clear()
            return
        try:
            self._refresh()
        except Exception:  # the pond's own work must not fail because a session is on its way out
            logger.exception("the views of a Spark session could not follow: %s was %s", change.name, change.kind)

    def _refresh(self) -> None:
        """Bring the views in step with the pond as it is now: a change that is told late or twice does no harm."""
        with self._lock:
            wanted: dict[str, tuple[str, ServedStream, int, int]] = {}
            taken: set[str] = set()
            for stream in self._pond.served_streams():
                try:
                    definition = stream.definition
                except (Forbidden, StreamNotFound) as error:
                    _left_out(stream, error)
                    continue
                view = view_name(stream.name)
                view = view if view.lower() not in taken else f"{view}_{definition.id}"
                taken.add(view.lower())
                wanted[stream.name] = (view, stream, definition.id, definition.schema_version)
            for name, (view, _, _) in list(self._views.items()):
                if name not in wanted or wanted[name][0] != view:
                    self._drop(name)
            for name, (view, stream, stream_id, version) in wanted.items():
                if self._views.get(name) != (view, stream_id, version):
                    try:
                        frame = self._planner.frame(stream)
                    except (Forbidden, StreamNotFound) as error:
                        _left_out(stream, error)
                        self._drop(name)
                        continue
                    frame.createOrReplaceTempView(view)
                    self._views[name] = (view, stream_id, version)
                    self._opened[name] = stream
            self._refresh_datasets(taken)

    def _refresh_datasets(self, taken: set[str]) -> None:
        """As for streams; called under the lock. `taken`: the names of their views."""
        pond = self._pond
        wanted: dict[str, tuple[str, ServedDataset]] = {}
        for dataset in pond.served_datasets() if isinstance(pond, ServesDatasets) else ():
            view = view_name(dataset.name)
            view = view if view.lower() not in taken else f"{view}_{dataset.id}"
            taken.add(view.lower())
            wanted[dataset.name] = (view, dataset)
        of_streams = {view.lower() for view, _, _ in self._views.values()}
        for name, (view, made) in list(self._dataset_views.items()):
            if name not in wanted or (wanted[name][0], wanted[name][1].id) != (view, made):
                del self._dataset_views[name]
                if view.lower() not in of_streams:  # one that came meanwhile has the name now
                    self._planner.spark.catalog.dropTempView(view)
        for name, (view, dataset) in wanted.items():
            if name not in self._dataset_views:
                dataset.to_spark(self._planner.spark).createOrReplaceTempView(view)
                self._dataset_views[name] = (view, dataset.id)

    def _drop(self, name: str) -> None:
        view, _, _ = self._views.pop(name, ("", 0, 0))
        if view:
            self._planner.spark.catalog.dropTempView(view)


def _left_out(stream: ServedStream, error: MillpondError) -> None:
    """One stream without a view: dropped since it was listed, or not for this caller to read."""
    logger.warning("%s has no view: %s", stream.name, error.message)
