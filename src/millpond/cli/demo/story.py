"""The story that the demonstration tells, act by act, and its account: nothing is printed that was not measured."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.cli.session import Session
from millpond.model.units import format_bytes

if TYPE_CHECKING:
    from millpond.cli.demo.inflow import Inflow
    from millpond.cli.demo.questions import Answer
    from millpond.pond.pond import Pond
    from millpond.pond.stream import Stream
    from millpond.spark.pipelines import Runner

STREAM, HOURLY = "demo/meters", "demo/hourly"
LOOK_EVERY_SECONDS = 2.0
# While Spark is asked: enough to see counts grow, little enough that Spark has the cores.
TRICKLE_BATCHES_PER_SECOND = 1.0
# Enough of an answer to see what it is.
ROWS_SHOWN = 6


@dataclass
class Story:
    """One run of the demonstration, and its numbers."""

    session: Session
    rows: int
    threads: int
    options: dict[str, Any] = field(default_factory=dict)  # of the pond
    numbers: dict[str, Any] = field(default_factory=dict)

    def tell(self, pond: Pond, picture: Path) -> None:
        """All of it, in order."""
        import millpond
        from millpond.cli.demo.inflow import Inflow
        from millpond.cli.demo.town import SCHEMA, TOWNS, Country

        country = Country.settle_down(self.rows)
        stream = pond.create_stream(
            STREAM,
            SCHEMA,
            keys=["vid", "city"],
            event_time="date",
            streamlets=4,
            settle=millpond.Settle(every="5s", bytes="32MB"),
            partition="6h",
        )
        self._say(
            f"{country.meters:,} meters in {len(TOWNS)} towns report by the hour to the stream {STREAM}; "
            "an append is acknowledged once it is synced to disk."
        )
        inflow = Inflow(stream, country)
        self._append(stream, inflow, country.vids[country.meters // 2].as_py())
        answers = self._ask_spark(pond, stream, inflow)
        self._account(pond, stream)
        self._draw(picture, answers)

    def _say(self, text: str) -> None:
        self.session.output.say(text)

    def _append(self, stream: Stream, inflow: Inflow, meter: str) -> None:
        self._say(f"\nAppending {self.rows:,} readings from {self.threads} threads in batches of 10,000:")
        seen, then = 0, time.monotonic()

        def look() -> None:
            nonlocal seen, then
            acked, now = inflow.acked, time.monotonic()
            began = time.monotonic()
            count = stream.count()
            counted = time.monotonic() - began
            newest = stream.get(meter, limit=1)
            got = time.monotonic() - began - counted
            status = stream.status()
            reading = f"{newest.column('load')[0].as_py():.2f} kW" if newest.num_rows else "nothing yet"
            self._say(
                f"  {acked:>10,} acked  {(acked - seen) / (now - then):>9,.0f}/s   settled {status.rows_settled:>10,}"
                f"   count {count:>10,} in {counted * 1000:.0f} ms"
                f"   get {meter}: {reading} in {got * 1000:.1f} ms"
            )
            seen, then = acked, now

        took = inflow.append_all(self.rows, self.threads, look, LOOK_EVERY_SECONDS)
        self._say(
            f"  {inflow.acked:,} records, {format_bytes(inflow.bytes)}, synced and acknowledged in {took:.1f} s: "
            f"{inflow.acked / took:,.0f} records/s, {format_bytes(inflow.bytes / took)}/s (making them up included)"
        )
        self.numbers |= {
            "rows": inflow.acked,
            "bytes": inflow.bytes,
            "append_seconds": round(took, 2),
            "records_per_second": round(inflow.acked / took),
        }

    def _ask_spark(self, pond: Pond, stream: Stream, inflow: Inflow) -> dict[str, Answer]:
        from millpond.cli.demo import questions
        from millpond.spark.session import local_session

        self._say("\nStarting Spark …")
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="millpond-demo-spark-", ignore_cleanup_errors=True) as scratch:
            spark = local_session(Path(scratch))
            try:
                views = pond.attach(spark)
                self.numbers["spark_start_seconds"] = round(time.monotonic() - began, 1)
                self._say(f"  up in {time.monotonic() - began:.1f} s. Spark SQL while one thread goes on appending:")
                if not stream.status().rows_settled:  # few records, and quicker than the first settling
                    stream.settle()
                hourly = self._pipeline(pond, spark)
                with inflow.trickling(TRICKLE_BATCHES_PER_SECOND):
                    self._count_while_appending(spark, inflow)
                    towns = questions.ask(spark, questions.BY_TOWN)
                    self._show("average load by town", towns, questions.BY_TOWN)
                    small = questions.ask(spark, questions.narrow())
                    self._show("one hour of one town", small, questions.narrow())
                final = questions.ask(spark, questions.COUNT)
                found = final.rows[0]["records"]
                self._say(f"\nAppending has stopped. Acknowledged {inflow.acked:,}; Spark counts {found:,}.")
                self.numbers |= {"acked": inflow.acked, "counted": found, "narrow": _figures(small)}
                if found != inflow.acked:
                    raise AssertionError(f"{inflow.acked} records were acknowledged, but Spark counts {found}")
                self._finish_pipeline(pond, spark, hourly, inflow.acked)
                curve = questions.ask(spark, questions.CURVE)
                meters = questions.ask(spark, questions.BY_METER)
                views.detach()
                return {"towns": towns, "curve": curve, "meters": meters}
            finally:
                spark.stop()

    def _pipeline(self, pond: Pond, spark: Any, *, once: bool = False) -> Runner:
        """Spark aggregates by the hour as readings arrive, from stream to stream."""
        from millpond.cli.demo import questions
        from millpond.spark import register
        from millpond.spark.pipelines import Checkpoints, Pipeline, PondAccess, Runner

        register(spark)
        hourly = Pipeline("hourly", {}, HOURLY, sql=questions.HOURLY, mode="update", event_time="hour")
        runner = Runner(spark, PondAccess(pond, {"pond": pond.path}), Checkpoints.of(pond), [hourly], once=once)
        runner.start()
        return runner

    def _finish_pipeline(self, pond: Pond, spark: Any, runner: Runner, acked: int) -> None:
        """Let it take the rest, stopped and started once on the way: each reading counts once nevertheless."""
        from millpond.cli.demo import questions

        runner.stop()
        runner.wait()
        first = runner.reports()[0]
        rest = self._pipeline(pond, spark, once=True)
        rest.wait()
        for failed in (*runner.failed, *rest.failed):
            raise AssertionError(failed.failure)
        counted = questions.ask(spark, questions.HOURLY_READINGS).rows[0]["readings"]
        self._say(
            f"Meanwhile a pipeline aggregated by the hour, from {STREAM} to {HOURLY}: {first.batch + 1} micro-batches, "
            f"then stopped and started again for the rest: {counted:,} readings, each counted once."
        )
        self.numbers["hourly_readings"] = counted
        if counted != acked:
            raise AssertionError(f"{acked} readings were acknowledged, but the pipeline counted {counted}")

    def _count_while_appending(self, spark: Any, inflow: Inflow) -> None:
        from millpond.cli.demo import questions

        for _ in range(2):
            before = inflow.acked
            answer = questions.ask(spark, questions.COUNT)
            after, found = inflow.sent, answer.rows[0]["records"]
            self._say(
                f"  count(*) = {found:,} in {answer.seconds:.1f} s: at least the {before:,} acked before, "
                f"at most the {after:,} sent until it ended; {answer.rows_live:,} of them live"
            )
            if not before <= found <= after:
                raise AssertionError(f"a count of {found} is not between {before} and {after}")

    def _show(self, what: str, answer: Answer, text: str) -> None:
        self._say(f"\n  {what}, in {answer.seconds:.1f} s:")
        for line in text.splitlines():
            self._say(f"    {line}")
        for row in answer.rows[:ROWS_SHOWN]:
            self._say("      " + "  ".join(f"{name} {value}" for name, value in row.items()))
        if len(answer.rows) > ROWS_SHOWN:
            self._say(f"      … {len(answer.rows) - ROWS_SHOWN} more")
        skipped = answer.objects_total - answer.objects_read
        why = ", ".join(f"{count} by {column}" for column, count in answer.skipped_by.items())
        self._say(
            f"    read {answer.objects_read} of {answer.objects_total} objects, "
            f"{format_bytes(answer.bytes_read)} of {format_bytes(answer.bytes_total)}, and {answer.rows_live:,} live "
            f"records; skipped {skipped} objects{f' ({why})' if why else ''}"
        )

    def _account(self, pond: Pond, stream: Stream) -> None:
        stream.settle()
        status = pond.status()
        mine = stream.status()
        self._say(
            f"\nSettled: {mine.rows_settled:,} records in {mine.objects} objects, {format_bytes(mine.bytes_settled)}, "
            f"a Delta table at version {mine.version}."
        )
        if status.write_amplification is not None:
            self._say(
                f"Written to disk for each byte appended: {status.write_amplification:.2f} "
                f"(journal {format_bytes(status.log.journal_written_bytes)}, "
                f"archive {format_bytes(mine.settling.bytes_written)}, "
                f"merged again {format_bytes(mine.settling.compacted_bytes)})"
            )
        began = time.monotonic()
        with self.session.output.progress("verifying", unit="bytes") as bar:
            report = pond.verify(lambda what, done, total: bar.at(done, total, what))
        took = time.monotonic() - began
        self._say(f"Verified every checksum and count in {took:.1f} s: {len(report.findings)} findings.")
        self.numbers |= {
            "settled": mine.rows_settled,
            "objects": mine.objects,
            "bytes_settled": mine.bytes_settled,
            "write_amplification": status.write_amplification,
            "findings": len(report.findings),
            "verify_seconds": round(took, 1),
        }

    def _draw(self, path: Path, answers: dict[str, Answer]) -> None:
        try:
            from millpond.cli.demo.picture import draw

            title = f"Millpond demo: {self.numbers['acked']:,} meter readings, live and settled, as Spark SQL sees them"
            draw(path, answers["meters"].table, answers["towns"].table, answers["curve"].table, title)
        except ImportError as error:
            self.session.output.warn(f"no picture: {error.name} is not installed (pip install 'millpond[demo]')")
            return
        self.numbers["picture"] = os.fspath(path)


def _figures(answer: Answer) -> dict[str, Any]:
    return {
        "seconds": round(answer.seconds, 2),
        "objects_read": answer.objects_read,
        "objects_total": answer.objects_total,
        "bytes_read": answer.bytes_read,
        "bytes_total": answer.bytes_total,
        "rows_live": answer.rows_live,
    }
