"""What Spark's planner asks of us, answered: one `SessionPlanner` per session, one `PinnedScan` per stream and query.

The Java side asks three things. *Pin* (once per query and stream, from the optimiser): take a snapshot. *Objects* (per
scan): which objects of the snapshot may hold a matching row? *Live* (per scan): an RDD of the live ranges.

Invariants: all scans of a stream in a query share one snapshot. An error while deciding what to skip is counted and
answered by "read everything"; an error while taking a snapshot or planning the live half fails the query.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millpond.errors import MillpondError, PondClosed
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import TRUE, Predicate
from millpond.model.schema import OFFSET, stored_schema
from millpond.query.terms import both
from millpond.spark.catalyst import translate
from millpond.spark.doubt import columns_in_doubt
from millpond.spark.filters import configured_filters
from millpond.spark.jvm import Callback, Jvm, OwnViews
from millpond.spark.live import fetch_little, live_frame, tickets_for
from millpond.spark.report import LiveScan, QueryFigures, SettledScan
from millpond.spark.schema import spark_schema
from millpond.spark.workshop import Java
from millpond.wire.served import ServedStream

if TYPE_CHECKING:
    from millpond.archive.snapshot import SettledSnapshot
    from millpond.query.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Figures hold on to snapshots, so only those of the last few queries are kept.
QUERIES_KEPT = 8

# What must hold whatever the session is set to: a file that is missing or damaged fails the query instead of silently
# losing rows, and dates before 1582 mean what they say.
OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}

_planners: dict[str, SessionPlanner] = {}
_lock = threading.Lock()


def planner_of(spark: SparkSession) -> SessionPlanner:
    """The session's planner, made and installed by the first call."""
    jvm = Jvm(spark)
    with _lock:
        for session_id in [known for known, planner in _planners.items() if planner.stopped]:
            del _planners[session_id]
        found = _planners.get(jvm.session_id)
        if found is None:
            found = _planners[jvm.session_id] = SessionPlanner(spark, jvm)
        return found


def remake_views(spark: SparkSession) -> None:
    """Let the views of all ponds that are attached to a session be as their streams and data sets are now."""
    for attached in list(planner_of(spark).attachments.values()):
        attached.follow()


class SessionPlanner:
    """Thread-safe: Spark plans queries in as many threads as its users have."""

    def __init__(self, spark: SparkSession, jvm: Jvm) -> None:
        self.spark = spark
        self.jvm = jvm
        self._lock = threading.Lock()
        self._streams: dict[str, ServedStream] = {}
        self._sources: dict[str, Callable[[QueryFigures], Java]] = {}
        self._tables: dict[str, tuple[tuple[int, bytes], Java]] = {}
        self._figures: OrderedDict[str, QueryFigures] = OrderedDict()
        self.attachments: dict[int, Any] = {}
        """By the identity of the pond, so that attaching twice is attaching once. For `views` to look after."""
        self.left_views: list[OwnViews] = []
        """Those of ponds that were closed."""
        jvm.install(jvm.workshop.rule(Callback(self._pin)))

    @property
    def stopped(self) -> bool:
        return self.spark.sparkContext._jsc is None

    def add_source(self, key: str, pin: Callable[[QueryFigures], Java]) -> None:
        """Let relations of that key be pinned by `pin`, which is called once per query."""
        with self._lock:
            self._sources[key] = pin

    def frame(self, stream: ServedStream) -> DataFrame:
        """A DataFrame of the stream, live ∪ settled."""
        key, known, schema = self._opened(stream)
        return self.jvm.settled_and_live(key, stream.name, known, schema, OPTIONS)

    def relation(self, stream: ServedStream) -> Java:
        """As `frame`, as the one relation that a format gives."""
        key, known, schema = self._opened(stream)
        return self.jvm.whole(key, stream.name, known, self.jvm.struct(schema), OPTIONS)

    def _opened(self, stream: ServedStream) -> tuple[str, Java, StructType]:
        settled = stream.snapshot().settled
        key = self.key(stream, settled)
        with self._lock:
            self._streams[key] = stream
        return key, self.table(key, settled), spark_schema(stored_schema(stream.definition.schema))

    def release(self, streams: Iterable[ServedStream]) -> None:
        """Let go of streams whose pond is closed, and of their objects in the JVM."""
        gone = {id(stream) for stream in streams}
        with self._lock:
            for key in [key for key, stream in self._streams.items() if id(stream) in gone]:
                del self._streams[key]
                self._tables.pop(key, None)

    @staticmethod
    def key(stream: ServedStream, settled: SettledSnapshot) -> str:
        """What tells streams apart in the JVM. A root alone is one on each node."""
        return f"{stream.pond_id} {settled.root}"

    def table(self, key: str, settled: SettledSnapshot) -> Java:
        """The snapshot's objects in the JVM: loaded anew only if they, or their order, have changed."""
        objects = settled.objects
        state = (settled.version, objects.digest)
        with self._lock:
            known = self._tables.get(key)
        if known is None or known[0] != state:
            pairs = zip(map(str, objects.sizes.tolist()), objects.paths, strict=True)
            blob = "\0".join(text for pair in pairs for text in pair)
            doubtful = "\0".join(columns_in_doubt(settled.schema, objects.stats))
            known = (state, self.jvm.workshop.table(f"file://{settled.root}", blob, doubtful))
            with self._lock:
                self._tables[key] = known
        return known[1]

    def _pin(self, query: str, key: str) -> Java:
        """Called by the optimiser. Answers with a Java PinnedStream, or with text: why there is none."""
        try:
            with self._lock:
                source = self._sources.get(key)
                figures = self._figures_of(query)
            if source is not None:
                return source(figures)
            with self._lock:
                stream = self._streams.get(key)
            if stream is None:
                raise PondClosed(f"the pond of {key.partition(' ')[2]} is closed", hint="open and attach it again")
            snapshot = stream.snapshot()
            scan = PinnedScan(self, stream, snapshot, figures)
            rows = sum(map(len, snapshot.live.values()))
            objects = self.table(key, snapshot.settled)
            return self.jvm.workshop.pinned(objects, rows, scan.since_micros, Callback(scan.answer))
        except MillpondError as error:
            return f"!Millpond: {error} [{error.code}]"
        except Exception as error:  # an exception here would reach the user as py4j's, without its text
            logger.exception("no snapshot for a query")
            return f"!Millpond: no snapshot of the stream {key}: {type(error).__name__}: {error}"

    def _figures_of(self, query: str) -> QueryFigures:
        figures = self._figures.get(query)
        if figures is None:
            figures = self._figures[query] = QueryFigures(query)
            while len(self._figures) > QUERIES_KEPT:
                self._figures.popitem(last=False)
        return figures

    def last_query(self) -> QueryFigures | None:
        """The figures of the last query that scanned anything."""
        with self._lock:
            scanned = [figures for figures in self._figures.values() if figures.settled or figures.live]
            return scanned[-1] if scanned else None


class PinnedScan:
    """One stream in one query. Lives as long as the query's plan does in the JVM."""

    def __init__(
        self,
        planner: SessionPlanner,
        stream: ServedStream,
        snapshot: Snapshot,
        figures: QueryFigures,
        live: Mapping[int, OffsetRange] | None = None,
    ) -> None:
        """`live`: which of the live offsets, a partition for each streamlet; None means all of the snapshot's."""
        self._planner = planner
        self._stream = stream
        self._definition = stream.definition
        self._snapshot = snapshot
        self._figures = figures
        self._live_ranges = snapshot.live if live is None else live
        self._apart = live is not None

    @property
    def since_micros(self) -> int:
        """What Spark itself must filter settled records by; 0 if what is read holds no expired ones."""
        cutoff = self._snapshot.cutoff_micros
        return cutoff if cutoff is not None and bool(self._snapshot.mixed_objects.any()) else 0

    def answer(self, question: str, text: str) -> Any:
        """Called by the planner, once per scan and each time that Spark plans it anew."""
        if question == "objects":
            return self._objects(text)
        try:
            return self._live(text)
        except MillpondError as error:
            return f"!Millpond: {error} [{error.code}]"
        except Exception as error:  # an exception here would reach the user as py4j's, without its text
            logger.exception("the live half of a query could not be planned")
            return f"!Millpond: the live half of {self._stream.name}: {type(error).__name__}: {error}"

    def _objects(self, predicates: str) -> bytearray:
        """A bit per object, least significant first."""
        settled = self._snapshot.settled
        began = time.perf_counter()
        try:
            predicate = self._translate(predicates)
            filters = configured_filters(self._planner.spark)
            pruning = settled.prune(both(predicate, self._snapshot.unexpired), filters)
        except Exception:  # whatever it is: skipping only proves irrelevance (I4)
            logger.exception("could not decide what to skip; every object is read")
            self._figures.undecided += 1
            predicate, pruning = TRUE, settled.objects.prune(self._snapshot.unexpired)
        deciding, told = time.perf_counter() - began, pruning.failures
        scan = SettledScan(self._stream.name, settled, predicate, pruning.keep, pruning.skipped_by, deciding, told)
        if predicates not in self._figures.settled and not self._apart:  # neither planned anew, nor a micro-batch
            self._stream.note_query(scan.note())
        # The text tells scans apart: it is the same only if Spark plans the same scan again.
        self._figures.settled[predicates] = scan
        return bytearray(np.packbits(pruning.keep, bitorder="little").tobytes())

    def _live(self, text: str) -> Java:
        *names, predicates = text.split("\0")
        # A scan of no column counts rows; an offset is the narrowest thing that every row has.
        columns = names or [OFFSET]
        predicate = self._translate(predicates)
        definition = self._definition
        spark = self._planner.spark
        cores = spark.sparkContext.defaultParallelism
        ranges, snapshot = self._live_ranges, self._snapshot
        tickets = tickets_for(
            definition.id,
            snapshot.generation,
            ranges,
            columns,
            predicate,
            cores,
            cutoff_micros=snapshot.cutoff_micros,
            apart=self._apart,
        )
        rows = sum(map(len, ranges.values()))
        self._figures.live[text] = LiveScan(self._stream.name, rows, len(tickets))
        everything = spark_schema(stored_schema(definition.schema))
        schema = StructType([everything[name] for name in columns])
        door = self._stream.door()
        held = fetch_little(door, tickets)
        if held is not None:
            return self._planner.jvm.rows_held(held, schema)
        return self._planner.jvm.rows_of(live_frame(spark, door, tickets, schema))

    def _translate(self, predicates: str) -> Predicate:
        return translate(predicates, stored_schema(self._definition.schema).names)
