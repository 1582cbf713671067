"""Predicates of this room: a caller's `where` made ready, and the terms by which records are found by value.

Ready means bound to the stored schema and folded, so that both halves are handed the same tree: literals of the
column's own type, nothing that was not understood, None for "all records".
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.model.bind import bind
from millpond.model.predicate import FALSE, TRUE, And, Compare, Predicate, truth
from millpond.model.schema import RAW_EVENTS, stored_schema
from millpond.query.sql import parse_where

Where = str | Predicate | None


def ready(where: Where, schema: pa.Schema, *, loose: bool = False) -> Predicate | None:
    """`where` over a stream whose user columns are `schema`; system columns may be named, too.

    `loose`: terms that are not understood, or do not fit the schema, count as true. For callers who filter again."""
    if where is None:
        return None
    stored = stored_schema(schema)
    predicate = parse_where(where, stored) if isinstance(where, str) else where
    folded = truth(bind(predicate, stored, loose=loose), loose=loose)
    return None if folded == TRUE else folded


def sifting(keep: str, schema: pa.Schema | None) -> Predicate:
    """A stream's own filter over what is sent to it, None being raw events; the system's columns are not known yet."""
    sent = RAW_EVENTS if schema is None else schema
    return truth(bind(parse_where(keep, sent), sent))


def is_never(predicate: Predicate | None) -> bool:
    """Whether no record at all can match."""
    return predicate == FALSE


def both(*terms: Predicate | None) -> Predicate | None:
    """All of the terms that are there."""
    there = tuple(term for term in terms if term is not None)
    return None if not there else there[0] if len(there) == 1 else And(there)


def equals(column: str, value: Any) -> Predicate:
    return Compare("=", column, value)
