"""Appends to several streams that are one: a journal group of their own, published under one lock at one moment.

The journal's group is atomic whatever streams its frames are of, so nothing more is needed for all of it to be there
after a crash, or none. Only the first append's frames carry the producer: it is remembered in one place, and a retry is
recognised there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millpond.errors import InvalidValue
from millpond.log.embedded.append import Append
from millpond.log.embedded.commit_queue import Request
from millpond.log.engine import Ack
from millpond.model.definition import Durability


class Together(Request):
    """`members` have their drafts; those of all of them, in order, are this request's."""

    def __init__(self, durability: Durability, members: Sequence[Append]) -> None:
        super().__init__(durability)
        self.members = members
        self.producer, self.sequence = members[0].producer, members[0].sequence
        if self.producer and not members[0].drafts:
            raise InvalidValue(
                f"producer {self.producer[:40]!r}, and nothing is appended to the first stream",
                hint="the producer is remembered with the first stream's records: put one that has some first",
            )
        self.drafts = [draft for member in members for draft in member.drafts]
        self.bytes = sum(member.bytes for member in members)
        self.appends = len(members)

    def shares(self) -> Iterator[tuple[Append, slice]]:
        """Each member, told its offsets, with where its drafts are among all."""
        at = 0
        for member in self.members:
            share = slice(at, at + len(member.drafts))
            member.bases = self.bases[share]
            at = share.stop
            yield member, share

    def acknowledge(self) -> None:
        for member, _ in self.shares():
            member.answer = Ack(member.ranges(), self.durability)
        self.answer = self.members[0].answer
        self.finish()

    def answers(self) -> list[Ack]:
        """Of every member, once it is finished. A retry knows the offsets of the first only."""
        assert self.answer is not None
        if not self.answer.duplicate:
            return [member.answer for member in self.members if member.answer is not None]
        return [self.answer, *(Ack({}, self.durability, duplicate=True) for _ in self.members[1:])]
