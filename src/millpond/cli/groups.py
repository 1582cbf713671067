"""Commands about consumer groups: who has read how far, and moving them. What changes one shows first what it will
do."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.session import Session, session_of
from millpond.cli.streams import StreamName
from millpond.errors import InvalidValue

if TYPE_CHECKING:
    from millpond.consume.protocol import GroupChange, GroupStatus

group = typer.Typer(name="group", rich_markup_mode=None, no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="the name of a consumer group of the stream")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]
Preview = Annotated[bool, typer.Option("--preview", help="only show what would happen")]


def groups(
    context: typer.Context,
    stream: Annotated[str | None, typer.Argument(metavar="[STREAM]", help="only the groups of this one")] = None,
) -> None:
    """List consumer groups: where they stand, how many records they have not processed, who their members are.

    \b
    Examples:
      millpond groups
      millpond groups grid/meters --json | jq '{group, lag_total}'
    """
    session = session_of(context)
    with session.open() as pond:
        if stream is not None:
            pond.stream(stream)  # one that is not there has no groups, and is more likely a mistake
        found = pond.groups(stream)
    if session.output.json:
        session.output.several([{**asdict(each), "lag_total": each.lag_total} for each in found], [])
        return
    session.output.several(
        [_shown(each) for each in found],
        ["stream", "group", "strategy", "position", "lag", "members", "dead", "missed"],
    )
    if not found:
        session.output.say("no consumer groups yet; millpond consume STREAM --group NAME makes one")


def _shown(found: GroupStatus) -> dict[str, Any]:
    return {
        "stream": found.stream,
        "group": found.group,
        "strategy": found.strategy if found.by is None else f"{found.strategy} of {found.by}",
        "position": offsets_text(found.positions),
        "lag": found.lag_total,
        "members": ", ".join(member.instance for member in found.members) or "-",
        "dead": found.dead,
        "missed": found.missed,
    }


def offsets_text(offsets: dict[int, int]) -> str:
    """Offsets per streamlet, as `--to` takes them."""
    return ",".join(f"{streamlet}:{offset}" for streamlet, offset in sorted(offsets.items()))


@group.callback()
def moving() -> None:
    """Move or delete consumer groups.

    \b
    Example:
      millpond group reset grid/meters billing --to earliest --preview
    """


@group.command()
def reset(
    context: typer.Context,
    stream: StreamName,
    name: GroupName,
    to: Annotated[
        str,
        typer.Option(help="earliest, latest, a time of ingestion, an offset, or 0:OFFSET,1:OFFSET,…"),
    ],
    preview: Preview = False,
    yes: Yes = False,
) -> None:
    """Move a consumer group to another place of its stream. Says first what that means, and asks.

    \b
    Examples:
      millpond group reset grid/meters billing --to earliest --preview
      millpond group reset grid/meters billing --to 2026-01-31T12:00:00Z
      millpond group reset grid/meters billing --to 0:1000,1:2000 --yes
    """
    from millpond.query import parse_start

    session = session_of(context)
    _check_one(preview, yes)
    place = parse_start(to)
    with session.open() as pond:
        found = pond.group(stream, name)
        change = found.reset(place, preview=True)
        if not preview:
            _ask(session, yes, f"move group {name} of {stream}?", _explained(change))
            change = found.reset(place, preview=False)
    session.output.one(asdict(change), text="\n".join(_explained(change)))


@group.command()
def delete(
    context: typer.Context, stream: StreamName, name: GroupName, preview: Preview = False, yes: Yes = False
) -> None:
    """Forget a consumer group and its position. Consumers that go on make it anew, from where they are told to start.

    \b
    Examples:
      millpond group delete grid/meters billing --preview
      millpond group delete grid/meters billing --yes
    """
    session = session_of(context)
    _check_one(preview, yes)
    with session.open() as pond:
        found = pond.group(stream, name)
        change = found.delete(preview=True)
        lines = [f"forgets group {name} of {stream}, at {offsets_text(change.before)}", *_expelled(change)]
        if not preview:
            _ask(session, yes, f"delete group {name} of {stream}?", lines)
            change = found.delete()
            lines = [f"forgot group {name} of {stream}, at {offsets_text(change.before)}", *_expelled(change)]
    session.output.one(asdict(change), text="\n".join(lines))


def _check_one(preview: bool, yes: bool) -> None:
    if preview and yes:
        raise InvalidValue("both --preview and --yes are given", hint="--preview changes nothing; --yes does not ask")


def _ask(session: Session, yes: bool, question: str, lines: list[str]) -> None:
    if not yes:
        for line in lines:
            session.output.say(line)
        typer.confirm(question, abort=True, err=True)


def _explained(change: GroupChange) -> list[str]:
    would = change.preview
    lines = [
        f"group {change.group} of {change.stream} {'would go' if would else 'went'} to {offsets_text(change.after)}"
    ]
    lines.append(f"  from {offsets_text(change.before)}")
    if change.again:
        lines.append(f"  {_records(change.again)} {'would be' if would else 'to be'} processed again")
    if change.skipped:
        lines.append(f"  {_records(change.skipped)} {'would be' if would else 'to be'} skipped")
    if not change.again and not change.skipped:
        lines.append("  which is where it stands")
    return lines + _expelled(change)


def _expelled(change: GroupChange) -> list[str]:
    if not change.expelled:
        return []
    verb = "would lose" if change.preview else "lose"
    return [f"  {', '.join(change.expelled)} {verb} what they have not committed"]


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"
