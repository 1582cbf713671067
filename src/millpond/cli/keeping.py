"""Commands that look after a pond: settle, vacuum, reindex, status, verify."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.exits import Exit
from millpond.cli.session import Session, session_of
from millpond.model.units import format_bytes

if TYPE_CHECKING:
    from millpond.wire.status import PondStatus, StreamStatus


def settle(
    context: typer.Context,
    streams: Annotated[
        list[str] | None, typer.Argument(metavar="[STREAM]...", help="all of them if none is named")
    ] = None,
) -> None:
    """Settle now: move everything acknowledged so far into the archive.

    \b
    Examples:
      millpond settle
      millpond settle grid/meters
    """
    session = session_of(context)
    reports: list[dict[str, Any]] = []
    with session.open() as pond:
        chosen = [pond.stream(name) for name in streams] if streams else pond.streams()
        with session.output.progress("settling", unit="streams", total=len(chosen)) as bar:
            for stream in chosen:
                if stream.definition.settle is None and not streams:
                    session.output.detail(f"{stream.name}: not archived")
                    continue
                report = stream.settle()
                empty = {"version": stream.snapshot().version, "objects": 0, "rows": 0, "bytes_written": 0}
                reports.append({"stream": stream.name, **(asdict(report) if report is not None else empty)})
                bar.advance(1, stream.name)
    session.output.several(reports, ["stream", "rows", "objects", "bytes_written", "version"])


def vacuum(
    context: typer.Context,
    streams: Annotated[
        list[str] | None, typer.Argument(metavar="[STREAM]...", help="all of them if none is named")
    ] = None,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="at least 1h")] = "7d",
    preview: Annotated[bool, typer.Option("--preview", help="only show what would go")] = False,
) -> None:
    """Remove the files of objects that nobody can see any more: leftovers of loads, and what was merged or truncated.

    Objects that were in a snapshot within that time stay, and so does everything while a load is under way.

    \b
    Examples:
      millpond vacuum --preview
      millpond vacuum grid/meters --older-than 30d
    """
    session = session_of(context)
    with session.open() as pond:
        chosen = [pond.stream(name) for name in streams] if streams else pond.streams()
        reports = [asdict(stream.vacuum(older_than, preview=preview)) for stream in chosen]
    session.output.several(reports, ["stream", "objects", "bytes", "preview"])


def reindex(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="STREAM", help="a stream with indexes")],
    everything: Annotated[bool, typer.Option("--all", help="also objects that every index knows")] = False,
) -> None:
    """Make index entries for settled objects that lack them, after an index was added or its files were lost.

    \b
    Examples:
      millpond alter grid/meters --index values:city
      millpond reindex grid/meters
    """
    session = session_of(context)
    with session.open() as pond:
        report = pond.stream(name).rebuild_indexes(everything=everything)
    session.output.several([asdict(report)], ["stream", "objects", "bytes"])


def status(
    context: typer.Context,
    stream: Annotated[str | None, typer.Argument(metavar="[STREAM]", help="only this one, in detail")] = None,
) -> None:
    """Show how the pond does: what is live, what has settled, how settling goes.

    \b
    Examples:
      millpond status
      millpond status grid/meters --json | jq .rows_live
    """
    session = session_of(context)
    with session.open() as pond:
        if stream is not None:
            found = pond.stream(stream).status()
            session.output.one(asdict(found), text=_one_stream(found) if not session.output.json else None)
        else:
            everything = pond.status()
            if session.output.json:
                session.output.one(asdict(everything))
            else:
                _show_pond(session, everything)


def _one_stream(found: StreamStatus) -> str:
    settling = found.settling
    lines = [
        f"{found.name} (id {found.id}, generation {found.generation}, durability {found.durability})",
        f"  live       {found.rows_live:,} records, {format_bytes(found.bytes_live)}",
        f"  settled    {found.rows_settled:,} records, {format_bytes(found.bytes_settled)} "
        f"in {found.objects:,} objects, version {found.version}",
        *(
            f"  streamlet {number}: settled up to {found.boundary.get(number, 0):,}, head {head:,}"
            for number, head in sorted(found.head.items())
        ),
    ]
    if settling.failure:
        lines.append(f"  settling failed {settling.failures} times: {settling.failure}")
    return "\n".join(lines + [f"  warning: {warning}" for warning in found.warnings])


def _show_pond(session: Session, found: PondStatus) -> None:
    log = found.log
    session.output.one(
        {
            "pond": found.path,
            "journal": f"{format_bytes(log.journal_bytes)} in {log.journal_files} files",
            "memory": f"{format_bytes(log.memory_bytes)} of {format_bytes(log.memory_quota_bytes)}",
            "appends": f"refused: {log.refused}" if log.refused else "taken",
        }
    )
    session.output.several(
        [
            {
                "stream": each.name,
                "live": each.rows_live,
                "settled": each.rows_settled,
                "objects": each.objects,
                "bytes live": format_bytes(each.bytes_live),
                "bytes settled": format_bytes(each.bytes_settled),
                "trouble": each.settling.failure or "-",
            }
            for each in found.streams
        ],
        ["stream", "live", "settled", "objects", "bytes live", "bytes settled", "trouble"],
    )
    for warning in [*found.warnings, *(f"{s.name}: {w}" for s in found.streams for w in s.warnings)]:
        session.output.warn(warning)


def verify(context: typer.Context) -> None:
    """Check every checksum and every count of the pond: journal, spill, archive, index. Changes nothing.

    Ends with exit code 6 if data is missing or wrong; what only wants a look is a warning.

    \b
    Example:
      millpond verify && echo clean
    """
    session = session_of(context)
    with session.open() as pond, session.output.progress("verifying", unit="bytes") as bar:
        report = pond.verify(lambda what, done, total: bar.at(done, total, what))
    session.output.say(
        f"{report.streams:,} streams, {report.records:,} records, {report.objects:,} objects, "
        f"{format_bytes(report.journal_bytes + report.archive_bytes)} checked: "
        f"{'as written' if report.ok else 'not as written'}, {len(report.findings)} findings"
    )
    if session.output.json:
        session.output.one({"ok": report.ok, **asdict(report)})
    else:
        for finding in report.findings:
            session.output.line(f"{finding.severity}: {finding.path}: {finding.message}")
            session.output.line(f"  hint: {finding.hint}")
    if not report.ok:
        raise typer.Exit(Exit.DAMAGED)
