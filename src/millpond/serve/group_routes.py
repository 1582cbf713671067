"""The routes of consumer groups, their members, dead letters and transactions: a part of the table of `routes`."""

from __future__ import annotations

from millpond.consume.protocol import GroupChange, GroupStatus, Member, Outcome, Replayed
from millpond.serve.group_parameters import (
    AbortBody,
    CommitBody,
    EpochBody,
    JoinBody,
    LeaveQuery,
    PollBody,
    PollQuery,
    ReplayQuery,
    ResetBody,
    ResetQuery,
    SeekBody,
    Transacted,
    TransactionBody,
)
from millpond.serve.parameters import PreviewQuery
from millpond.serve.route import DELIVERIES, Route

_GROUPS = "/v1/streams/{name}/groups"
_GROUP = f"{_GROUPS}/{{group}}"
_MEMBERS = f"{_GROUP}/members"
_MEMBER = f"{_MEMBERS}/{{instance}}"

_LOOKING = (400, 404, 503)
_SENDING = (400, 404, 409, 410, 413, 415, 503, 507)

GROUP_ROUTES = (
    Route(
        "GET",
        "/v1/groups",
        "list_groups",
        "The consumer groups of all streams that the caller may read.",
        list[GroupStatus],
        errors=(503,),
    ),
    Route(
        "GET",
        _GROUPS,
        "stream_groups",
        "The consumer groups of a stream: members, positions, lag.",
        list[GroupStatus],
        right="read",
        errors=_LOOKING,
    ),
    Route(
        "GET", _GROUP, "describe_group", "Where a consumer group stands.", GroupStatus, right="read", errors=_LOOKING
    ),
    Route(
        "DELETE",
        _GROUP,
        "delete_group",
        "Forget a consumer group and its position.",
        GroupChange,
        PreviewQuery,
        right="admin",
        errors=(400, 404, 503, 507),
    ),
    Route(
        "POST",
        f"{_GROUP}/reset",
        "reset_group",
        "Move a consumer group to another place; unless `preview=false`, only say what that would mean.",
        GroupChange,
        ResetQuery,
        takes=ResetBody,
        right="admin",
        errors=_SENDING,
    ),
    Route(
        "POST",
        _MEMBERS,
        "join_group",
        "Become a member of a consumer group, which is made if it is not there.",
        Member,
        takes=JoinBody,
        status=201,
        right="read",
        errors=_SENDING,
    ),
    Route(
        "DELETE",
        _MEMBER,
        "leave_group",
        "Leave: what is not committed is handed out again at once.",
        None,
        LeaveQuery,
        status=204,
        right="read",
        errors=_LOOKING,
    ),
    Route(
        "POST",
        f"{_MEMBER}/poll",
        "poll_group",
        "The records that come next for a member, with a receipt for each delivery.",
        DELIVERIES,
        PollQuery,
        takes=PollBody,
        right="read",
        errors=(*_SENDING, 406),
    ),
    Route(
        "POST",
        f"{_MEMBER}/commit",
        "commit_group",
        "Deliveries are processed: the group goes on behind them.",
        Outcome,
        takes=CommitBody,
        right="read",
        errors=_SENDING,
    ),
    Route(
        "POST",
        f"{_MEMBER}/abort",
        "abort_group",
        "Give a number up: what is not committed is handed out again.",
        Outcome,
        takes=AbortBody,
        right="read",
        errors=_SENDING,
    ),
    Route(
        "POST",
        f"{_MEMBER}/renew",
        "renew_member",
        "Say that a member is alive.",
        None,
        takes=EpochBody,
        status=204,
        right="read",
        errors=_SENDING,
    ),
    Route(
        "POST",
        f"{_MEMBER}/seek",
        "seek_group",
        "Move the group to another place; its other members are expelled.",
        GroupChange,
        takes=SeekBody,
        right="read",
        errors=_SENDING,
    ),
    Route(
        "POST",
        "/v1/streams/{name}/replay",
        "replay",
        "Append dead records to their stream again, each once.",
        Replayed,
        ReplayQuery,
        right="admin",
        errors=(400, 404, 409, 413, 422, 503, 507),
    ),
    Route(
        "POST",
        "/v1/transactions",
        "transaction",
        "Append to several streams and commit what a member has processed: all of it or nothing.",
        Transacted,
        takes=TransactionBody,
        right="the right to `write` each stream that is appended to, and to `read` the one that was processed",
        errors=(*_SENDING, 422),
    ),
)
