"""Commands about what queries ask and how the archive is laid out for them."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.reading import Form, checked_form
from millpond.cli.session import session_of
from millpond.cli.streams import StreamName


def queries(
    context: typer.Context,
    name: StreamName,
    limit: Annotated[int, typer.Option(min=0, help="only the newest so many")] = 100,
    form: Form = None,
) -> None:
    """Print what was asked of a stream, newest last: the predicate, and what it had to read of the archive.

    Predicates hold the literals that were asked with. The setting query_history_max=0 turns the record off.

    \b
    Examples:
      millpond queries grid/meters
      millpond queries grid/meters --limit 1000 --json | jq .predicate
    """
    session = session_of(context)
    chosen = checked_form(form) or session.output.default_form()
    with session.open() as pond:
        found = pond.queries(name)
    newest = found.slice(max(0, found.num_rows - limit))
    session.output.records(newest.to_batches(), newest.schema, chosen)
    if not found.num_rows:
        session.output.say(f"no query of {name} is on record")
