"""The position of a consumer group that a streaming query moves, so that its lag is seen where all others' are.

The truth is the query's checkpoint; the group follows it, behind each batch that Spark has committed. Nobody else may
work in such a group: consumers of it would be thrown to wherever the query is. The group has no members, so nothing
expires and nothing need be renewed while a batch takes its time. Moving a group from outside takes the right to
administrate the stream, which is asked for before the query begins.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.consume.face import ConsumerFace
from millpond.consume.protocol import GroupDesk, GroupSpec, Join
from millpond.errors import Forbidden, GroupConflict, GroupNotFound, InvalidValue

_INSTANCE = "spark"


class GroupPosition:
    """One group of one stream, as one query has it."""

    def __init__(self, pond: object, stream: str, group: str) -> None:
        if not isinstance(pond, ConsumerFace):
            raise InvalidValue(f"group {group!r}: this pond has no consumer groups", hint="leave the option out")
        self._desk: GroupDesk = pond.group_desk()
        self._stream, self._group = stream, group
        self._check_may_move()
        try:
            self._check_free()
        except GroupNotFound:
            return  # made where the query begins

    def make(self, start: Mapping[int, int]) -> None:
        """Let it be there, at `start` if it is new: a query that has committed nothing yet has its lag, too."""
        try:
            self._check_free()
        except GroupNotFound:
            spec = GroupSpec(self._stream, self._group, start=dict(start))
            self._desk.leave(self._desk.join(Join(spec, _INSTANCE)))

    def move(self, to: Mapping[int, int]) -> None:
        """Everything before these offsets is processed."""
        self.make(to)
        self._desk.reset(self._stream, self._group, dict(to), preview=False)

    def _check_may_move(self) -> None:
        """The first commit comes when a batch is done: too late to hear that it is not allowed."""
        try:
            self._desk.reset(self._stream, self._group, "earliest", preview=True)
        except GroupNotFound:
            return  # the right was looked at before
        except Forbidden as error:
            raise Forbidden(
                f"group {self._group!r} of {self._stream} cannot follow the query: {error.message}",
                hint=f"give the query a token with the rights to read and to admin {self._stream}, or leave out the "
                'option "group": the checkpoint says where the query is without it',
            ) from error

    def _check_free(self) -> None:
        status = self._desk.group(self._stream, self._group)
        if status.members:
            raise GroupConflict(
                f"group {self._group!r} of {self._stream} has consumers: "
                f"{', '.join(member.instance for member in status.members)}",
                hint="a streaming query has a group of its own: name another one",
            )
