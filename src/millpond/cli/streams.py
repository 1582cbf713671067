"""Commands about what there is: init, create, streams, describe, alter, truncate, drop."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.session import session_of
from millpond.errors import Forbidden, InvalidValue, StreamNotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.cli.session import AnyStream
    from millpond.model.definition import Settle

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="the name of a stream, e.g. grid/meters")]


def init(
    context: typer.Context,
    directory: Annotated[Path | None, typer.Argument(help="where; the same as --pond")] = None,
) -> None:
    """Make a pond: a directory for streams.

    \b
    Example:
      millpond init ./pond
    """
    from millpond.pond.opening import open_pond

    session = session_of(context)
    path = directory or session.path
    made = not (path / "pond.json").exists()
    with open_pond(path, background=False) as pond:
        status = pond.status()
    session.output.say(f"{'made' if made else 'there already:'} {status.path}")
    if session.output.json:
        session.output.one({"path": status.path, "id": status.id, "made": made})


def create(
    context: typer.Context,
    name: StreamName,
    schema: Annotated[str | None, typer.Option(help='columns and types, e.g. "vid string, temp double"')] = None,
    schema_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="the same from a file, or as JSON")
    ] = None,
    like: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="guess from data: NDJSON, CSV or Arrow")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="no schema: events of time, headers, body")] = False,
    key: Annotated[list[str] | None, typer.Option(help="a column to look up by; the first is the primary key")] = None,
    event_time: Annotated[str | None, typer.Option(help="the column that says when it happened")] = None,
    streamlets: Annotated[int, typer.Option(help="in how many parts, by the primary key's hash")] = 1,
    durability: Annotated[str, typer.Option(help="when an append is acknowledged: disk, os or memory")] = "disk",
    settle_every: Annotated[str, typer.Option(help="settle after so much time")] = "60s",
    settle_bytes: Annotated[str, typer.Option(help="settle when so much is live")] = "128MB",
    no_settle: Annotated[bool, typer.Option("--no-settle", help="never archive it")] = False,
    partition: Annotated[str, typer.Option(help="how much time one archive directory covers")] = "1d",
    memory: Annotated[str | None, typer.Option(help="how much of it may be held in memory")] = None,
    ttl: Annotated[str | None, typer.Option(help="how long records are kept, e.g. 30d; otherwise for good")] = None,
    keep: Annotated[str | None, typer.Option(help="store only what meets a condition: 'temp > -50'")] = None,
    only: Annotated[list[str] | None, typer.Option(help="a column to store; otherwise all are")] = None,
    index: Annotated[list[str] | None, typer.Option(help='an index: "values:city", "bloom:vid,rate=0.01"')] = None,
    layout: Annotated[str | None, typer.Option(help='which rows share an object: "kdtree:lat,lon,buckets=128"')] = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="do nothing if it is there already")] = False,
) -> None:
    """Create a stream.

    \b
    Examples:
      millpond create grid/meters --schema "vid string, city string, temp double, date timestamp" \\
          --key vid --key city --event-time date --streamlets 4
      millpond create grid/meters --like readings.ndjson --index values:city --layout kdtree:lat,lon,buckets=128
      millpond create grid/meters --like readings.ndjson --key vid
      millpond create web/hooks --raw
    """
    from millpond.model.definition import Settle, check_durability

    session = session_of(context)
    columns = _schema(schema, schema_file, like, raw)
    when: Settle | None = None if no_settle else Settle(every=settle_every, bytes=settle_bytes)
    with session.open() as pond:
        stream = pond.create_stream(
            name,
            columns,
            keys=key or (),
            event_time=event_time,
            streamlets=streamlets,
            durability=check_durability(durability),
            settle=when,
            partition=partition,
            memory=memory,
            ttl=ttl,
            keep=keep,
            only=only or None,
            indexes=index or (),
            layout=layout,
            exist_ok=exist_ok,
        )
        described = description(stream)
    session.output.say(f"created {name}: {described['schema']}")
    if session.output.json:
        session.output.one(described)


def _schema(text: str | None, file: Path | None, like: Path | None, raw: bool) -> pa.Schema | None:
    given = [option for option in (text, file, like, raw or None) if option is not None]
    if len(given) != 1:
        raise InvalidValue(
            f"{len(given) or 'none'} of --schema, --schema-file, --like and --raw given", hint="give exactly one"
        )
    if raw:
        return None
    from millpond.model.schema_text import parse_schema, parse_schema_file

    if text is not None:
        return parse_schema(text)
    if file is not None:
        return parse_schema_file(file.read_text())
    from millpond.cli.likeness import schema_like

    assert like is not None
    return schema_like(like)


def description(stream: AnyStream) -> dict[str, Any]:
    """What a stream is, as it was created and altered."""
    import msgspec

    described: dict[str, Any] = msgspec.to_builtins(stream.info())
    return described


def streams(context: typer.Context) -> None:
    """List the streams.

    \b
    Example:
      millpond streams --json | jq -r .name
    """
    session = session_of(context)
    with session.open() as pond:
        listed = [row for stream in pond.streams() if (row := _listed(stream)) is not None]
    session.output.several(listed, ["name", "records", "streamlets", "keys", "schema"])
    if not listed:
        session.output.say("no streams yet; millpond create makes one")


def _listed(stream: AnyStream) -> dict[str, Any] | None:
    """None if it was dropped since it was listed."""
    try:
        described, records = description(stream), _records(stream)
    except StreamNotFound:
        return None
    return {
        "name": described["name"],
        "records": records,
        "streamlets": described["streamlets"],
        "durability": described["durability"],
        "keys": described["keys"],
        "event_time": described["event_time"],
        "schema": described["schema"],
    }


def _records(stream: AnyStream) -> int | None:
    """How many it has; None if that is not for this caller to know."""
    try:
        status = stream.status()
    except Forbidden:
        return None
    return status.rows_live + status.rows_settled


def describe(context: typer.Context, name: StreamName) -> None:
    """Show what a stream is: columns, keys, when it settles.

    \b
    Example:
      millpond describe grid/meters
    """
    session = session_of(context)
    with session.open() as pond:
        described = description(pond.stream(name))
    if session.output.json:
        session.output.one(described)
    else:
        columns = described.pop("columns")
        described.pop("schema")
        session.output.one(described)
        session.output.several(columns, ["name", "type", "nullable"])


def alter(
    context: typer.Context,
    name: StreamName,
    add: Annotated[str | None, typer.Option(help='columns to add, e.g. "humidity double, tags array<string>"')] = None,
    ttl: Annotated[str | None, typer.Option(help='how long records are kept, e.g. 30d; "never" for good')] = None,
    index: Annotated[
        list[str] | None, typer.Option(help='all indexes from now on, e.g. values:city; or "none"')
    ] = None,
    layout: Annotated[str | None, typer.Option(help='the layout of what settles from now on; or "none"')] = None,
) -> None:
    """Add columns to a stream, or change how long records are kept, its indexes or its layout.

    New columns are null in the records that are there. A shorter ttl takes effect at once.

    \b
    Examples:
      millpond alter grid/meters --add "humidity double"
      millpond alter grid/meters --ttl 30d
      millpond alter grid/meters --index values:city --index bloom:vid
    """
    import pyarrow as pa

    from millpond.model.schema_text import parse_schema

    if add is None and ttl is None and not index and layout is None:
        raise InvalidValue("nothing to alter", hint="give --add, --ttl, --index or --layout")
    session = session_of(context)
    with session.open() as pond:
        schema = None if add is None else pa.schema([*pond.stream(name).schema, *parse_schema(add)])
        stream = pond.alter_stream(
            name,
            schema,
            ttl=... if ttl is None else None if ttl == "never" else ttl,
            indexes=... if not index else () if index == ["none"] else index,
            layout=... if layout is None else None if layout == "none" else layout,
        )
        described = description(stream)
    session.output.say(f"{name}: {described['schema']}" if ttl is None else f"{name}: {_kept(described)}")
    if session.output.json:
        session.output.one(described)


def _kept(described: dict[str, Any]) -> str:
    seconds = described["ttl_seconds"]
    return "records are kept for good" if seconds is None else f"records are kept for {seconds:,.0f} seconds"


def truncate(
    context: typer.Context,
    name: StreamName,
    preview: Annotated[bool, typer.Option("--preview", help="only say what would be discarded")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Discard all records of a stream, live and settled, and keep the stream. This cannot be undone.

    \b
    Example:
      millpond truncate grid/meters --preview
      millpond truncate grid/meters --yes
    """
    session = session_of(context)
    with session.open() as pond:
        stream = pond.stream(name)
        gone = stream.truncate(preview=True)
        records = gone.rows_live + gone.rows_settled
        if not preview:
            if not yes:
                typer.confirm(f"discard all {records:,} records of {name}?", abort=True, err=True)
            gone = stream.truncate()
            records = gone.rows_live + gone.rows_settled
    if preview:
        session.output.say(
            f"{name} would lose {records:,} records, {gone.rows_live:,} live and {gone.rows_settled:,} in "
            f"{gone.objects:,} objects; generation {gone.generation} would begin"
        )
    else:
        session.output.say(f"truncated {name}: {records:,} records discarded; this is generation {gone.generation}")
    if session.output.json:
        session.output.one(asdict(gone))


def drop(
    context: typer.Context,
    name: StreamName,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Drop a stream and everything it holds, live and settled. This cannot be undone.

    \b
    Example:
      millpond drop grid/meters --yes
    """
    session = session_of(context)
    with session.open() as pond:
        status = pond.stream(name).status()
        records = status.rows_live + status.rows_settled
        if not yes:
            typer.confirm(f"drop {name} with {records:,} records?", abort=True, err=True)
        pond.drop_stream(name)
    session.output.say(f"dropped {name} with {records:,} records")
    if session.output.json:
        session.output.one({"dropped": name, "records": records})
