"""Truncation: one commit that takes every object out of the table and states where the new generation begins.

The stream's generation has been raised, and its log is empty, before this is called; readers have let go of the old
objects. What is left is the table, which other engines read, and a fence for whoever slept through it:

- the commit takes the next version, so that a settle, a merge or a load that was about to commit is refused;
- it states the boundary of the new generation, so that one that looks again before it commits finds a generation
  higher than its own and gives up;
- it ends the app transactions of the old one: no offset is beyond their last version.

A crash before the commit leaves a table that states an older generation than the stream has. Nobody here reads its
objects (see `state.py`), and whoever opens the archive, or writes to it next, makes the commit then.

The files of removed objects stay: queries that began before may still read them.
"""

from __future__ import annotations

from millpond.archive.commit_log import Refused
from millpond.archive.ledger import Ledger
from millpond.errors import SettleConflict

# Commits of other writers that were faster only mean: try again on top of them.
_COMMIT_TRIES = 5


def is_owed(ledger: Ledger) -> bool:
    """Whether the table is behind the stream's generation. Nothing is owed for a stream that never settles."""
    definition, state = ledger.definition, ledger.state
    if definition.generation == 1 or (state is None and definition.settle is None):
        return False
    return state is None or state.generation < definition.generation


def end_older_generations(ledger: Ledger) -> None:
    """Make the commit, if it is owed. Durable when it returns."""
    for _ in range(_COMMIT_TRIES):
        ledger.refresh()
        if not is_owed(ledger):
            return
        if ledger.state is None:
            ledger.create_table()
        try:
            ledger.begin_generation()
        except Refused:
            continue
        return
    raise SettleConflict(
        f"other writers committed to {ledger.definition.name} {_COMMIT_TRIES} times meanwhile",
        hint="it is truncated for all readers of the pond; its table follows with the next settle",
    )
