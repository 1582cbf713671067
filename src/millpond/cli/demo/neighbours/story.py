"""The story of the neighbour comparison, act by act, and its account: nothing is printed that was not measured."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.cli.session import Session
from millpond.model.units import format_bytes

if TYPE_CHECKING:
    from millpond.cli.demo.neighbours.comparison import Comparison
    from millpond.cli.demo.questions import Answer
    from millpond.gridpocket import Readings
    from millpond.pond.pond import Pond
    from millpond.pond.stream import Stream

STREAM, VIEW = "gridpocket/readings", "gridpocket_readings"
BUCKETS = 64
# A few months of a few thousand meters in 64 buckets make smaller objects than a pond would make by itself.
OBJECT_BYTES_MIN = 1_000_000


@dataclass
class Story:
    """One run, and its numbers."""

    session: Session
    readings: Readings
    radius_meters: float
    vid: int | None = None
    options: dict[str, Any] = field(default_factory=lambda: {"object_bytes_min": OBJECT_BYTES_MIN})
    numbers: dict[str, Any] = field(default_factory=dict)

    def tell(self, pond: Pond, picture: Path) -> None:
        """All of it, in order."""
        from millpond.cli.demo.neighbours.comparison import Comparison, choose_home
        from millpond.spark.session import local_session

        made = self.readings
        stream = self._create(pond)
        home = choose_home(made, self.radius_meters, self.vid)
        comparison = Comparison(home, self.radius_meters, made.start, made.moment(made.moments - 1))
        self._begin(stream)
        self._say("Starting Spark …")
        with tempfile.TemporaryDirectory(prefix="millpond-demo-spark-", ignore_cleanup_errors=True) as scratch:
            spark = local_session(Path(scratch))
            try:
                views = pond.attach(spark)
                self._load(pond, stream, spark)
                answers = self._compare(stream, spark, comparison)
                views.detach()
            finally:
                spark.stop()
        self._draw(picture, comparison, *answers)

    def _say(self, text: str) -> None:
        self.session.output.say(text)

    def _create(self, pond: Pond) -> Stream:
        from millpond import Boxes, KdTree, Values
        from millpond.gridpocket import SCHEMA

        return pond.create_stream(
            STREAM,
            SCHEMA,
            keys=["vid", "city"],
            event_time="date",
            partition="30d",
            layout=KdTree("latitude", "longitude", buckets=BUCKETS),
            indexes=[Boxes("latitude", "longitude"), Values("city")],
        )

    def _begin(self, stream: Stream) -> None:
        """The first readings are appended: the layout is fitted to what settles first."""
        made = self.readings
        first = made.moments - self._rest.moments
        for batch in made.batches(0, first * made.meters):
            stream.append(batch)
        stream.settle()
        self._say(
            f"{made.meters:,} meters have sent their first {first} readings to {STREAM}; they settled in "
            f"{stream.status().objects} objects, by latitude and longitude."
        )

    @property
    def _rest(self) -> Readings:
        """All but those of the first day, or but the first."""
        made = self.readings
        first = min(timedelta(days=1) // made.every, made.moments // 2) or 1
        return replace(made, start=made.moment(first), period=made.period - first * made.every)

    def _load(self, pond: Pond, stream: Stream, spark: Any) -> None:
        from millpond.gridpocket import frame
        from millpond.spark import register

        register(spark)
        made = self._rest
        self._say(f"Loading {len(made):,} more, from {made.start:%d %B %Y} on, made by Spark's tasks …")
        began = time.monotonic()
        options = {"pond": pond.path, "stream": STREAM, "to": "archive"}
        frame(spark, made).write.format("millpond").options(**options).mode("append").save()
        took = time.monotonic() - began
        status = stream.status()
        self._say(
            f"  {status.rows_settled:,} rows in {status.objects} objects, {format_bytes(status.bytes_settled)}, "
            f"after {took:.1f} s: {len(made) / took:,.0f} rows/s"
        )
        self.numbers |= {
            "rows": status.rows_settled,
            "objects": status.objects,
            "bytes": status.bytes_settled,
            "load_seconds": round(took, 1),
        }

    def _compare(self, stream: Stream, spark: Any, comparison: Comparison) -> tuple[Answer, Answer]:
        from millpond.cli.demo.questions import ask

        text = comparison.by_day(VIEW)
        self._say(f"\n{comparison.home}, against similar homes within {comparison.radius_meters / 1000:g} km:")
        for line in text.splitlines():
            self._say(f"    {line}")
        ask(spark, text)  # Spark compiles the plan; what counts is the second time
        answer = ask(spark, text)
        without = self._without(stream, spark, comparison)
        skipped = ", ".join(f"{count} by {index}" for index, count in answer.skipped_by.items())
        self._say(
            f"  with filters     {answer.objects_read:>5} of {answer.objects_total} objects, "
            f"{format_bytes(answer.bytes_read)} of {format_bytes(answer.bytes_total)}, {answer.seconds:.2f} s"
            f"{f'; skipped {skipped}' if skipped else ''}"
        )
        self._say(
            f"  without filters  {answer.objects_total:>5} of {answer.objects_total} objects, "
            f"{format_bytes(answer.bytes_total)}, {without:.2f} s"
        )
        homes = ask(spark, comparison.by_home(VIEW))
        mine = next(row["kwh"] for row in homes.rows if row["vid"] == comparison.home.vid)
        others = [row["kwh"] for row in homes.rows if row["vid"] != comparison.home.vid]
        self.numbers |= {
            "meter": comparison.home.vid,
            "neighbours": len(others),
            "kwh": round(mine, 1),
            "kwh_of_neighbours": round(sum(others) / max(1, len(others)), 1),
            "objects_read": answer.objects_read,
            "objects_total": answer.objects_total,
            "bytes_read": answer.bytes_read,
            "bytes_total": answer.bytes_total,
            "seconds_with": round(answer.seconds, 3),
            "seconds_without": round(without, 3),
        }
        self._say(
            f"\nIt took {mine:,.0f} kWh; the {len(others)} neighbours took "
            f"{self.numbers['kwh_of_neighbours']:,.0f} kWh on average."
        )
        return answer, homes

    def _without(self, stream: Stream, spark: Any, comparison: Comparison) -> float:
        """Seconds of the same question to Spark's own reader of the same objects."""
        from millpond.spark.session import query

        settled = stream.snapshot().settled
        paths = [os.path.join(settled.root, path) for path in settled.objects.paths]
        spark.read.parquet(*paths).createOrReplaceTempView("without_filters")
        text = comparison.by_day("without_filters")
        query(spark, text)
        began = time.monotonic()
        query(spark, text)
        took = time.monotonic() - began
        spark.catalog.dropTempView("without_filters")
        return took

    def _draw(self, path: Path, comparison: Comparison, by_day: Answer, by_home: Answer) -> None:
        note = (
            f"Spark SQL over {self.numbers['rows']:,} readings: {by_day.objects_read} of {by_day.objects_total} "
            f"objects and {format_bytes(by_day.bytes_read)} of {format_bytes(by_day.bytes_total)} were read."
        )
        try:
            from millpond.cli.demo.neighbours.picture import draw

            draw(path, comparison, by_day.table, by_home.table, note)
        except ImportError as error:
            self.session.output.warn(f"no picture: {error.name} is not installed (pip install 'millpond[demo]')")
            return
        self.numbers["picture"] = os.fspath(path)
