"""A Delta table to which something happens at the moment of a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millpond.archive.table import Added, DeltaLog, Removed


class Meddling(DeltaLog):
    """Lets another writer in just before, or breaks the answer just after, a commit."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.before: Any = None
        self.after: Any = None

    def commit(
        self,
        added: Sequence[Added],
        removed: Sequence[Removed],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        **more: Any,
    ) -> None:
        if self.before is not None:
            act, self.before = self.before, None
            act()
        super().commit(added, removed, transactions, metadata, **more)
        if self.after is not None:
            act, self.after = self.after, None
            act()
