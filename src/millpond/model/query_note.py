"""What is put on record of a query, as a value: what it asked of one stream, and what it had to read of the archive."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.predicate import Predicate


@dataclass(frozen=True, slots=True)
class QueryNote:
    """Objects and bytes are those of the settled half. `predicate`: with the literals that the query was asked with."""

    predicate: Predicate
    objects_read: int
    objects_total: int
    bytes_read: int
    bytes_total: int
