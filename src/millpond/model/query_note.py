"""What is put on record of a query, as a value: what it asked of one stream, and what it had to read of the archive."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.predicate import Compare, In, Like, Predicate, StartsWith, Unknown, walk

# Above what people write; a list of a million values teaches nothing, and would push out the others.
PREDICATE_BYTES_MAX = 64_000
# What a node and a literal take in JSON, about.
_NODE_BYTES = 40
_LITERAL_BYTES = 8


@dataclass(frozen=True, slots=True)
class QueryNote:
    """Objects and bytes are those of the settled half. `predicate`: with the literals that the query was asked with."""

    predicate: Predicate
    objects_read: int
    objects_total: int
    bytes_read: int
    bytes_total: int

    @property
    def too_long(self) -> bool:
        """Whether the predicate is too long to be kept, by counting. So that it need not be held until it is text."""
        size = 0
        for node in walk(self.predicate):
            literals = _literals(node)
            size += _NODE_BYTES + _LITERAL_BYTES * len(literals)
            if size > PREDICATE_BYTES_MAX:
                return True
            size += sum(len(each) for each in literals if isinstance(each, str | bytes))
        return size > PREDICATE_BYTES_MAX


def _literals(node: Predicate) -> tuple[object, ...]:
    match node:
        case Compare():
            return (node.value,)
        case In():
            return node.values
        case StartsWith():
            return (node.prefix,)
        case Like():
            return (node.pattern,)
        case Unknown():
            return (node.reason,)
    return ()
