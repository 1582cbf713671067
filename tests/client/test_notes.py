"""Notes of queries on their way to the node: one that cannot be sent holds up nobody, and nor does the end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millpond.model.predicate import Compare, In, Unknown
from millpond.model.query_note import QueryNote
from tests.client.conftest import NUMBERS, Served


def note(n: int) -> QueryNote:
    return QueryNote(Compare(">", "n", n), 1, 4, 100, 900)


def returns(call: Callable[[], None]) -> bool:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20)
    return not thread.is_alive()


def test_a_note_that_cannot_be_sent_holds_up_none_after_it(served: Served) -> None:
    pond = served.connect()
    stream = pond.create_stream("numbers", NUMBERS)
    notes = pond._connection.notes
    stream.note_query(QueryNote(Unknown("\ud800"), 1, 4, 100, 900))  # a text that is no UTF-8
    stream.note_query(note(1))
    assert returns(notes.flush)
    assert notes.dropped == 1
    assert pond.queries("numbers").num_rows == 1


def test_a_long_predicate_is_not_even_held(served: Served) -> None:
    pond = served.connect()
    stream = pond.create_stream("numbers", NUMBERS)
    stream.note_query(QueryNote(In("n", tuple(range(20_000))), 1, 4, 100, 900))
    assert pond._connection.notes.dropped == 1
    pond._connection.notes.flush()
    assert served.pond.history.dropped == 0


def test_nobody_waits_for_notes_of_a_closed_connection(served: Served) -> None:
    pond = served.connect()
    stream = pond.create_stream("numbers", NUMBERS)
    notes = pond._connection.notes
    for n in range(300):
        stream.note_query(note(n))
    pond.close()
    assert returns(notes.flush)
    notes.add("numbers", 1, note(1))
    notes.close()
    assert returns(notes.flush)
    assert notes.dropped >= 1
