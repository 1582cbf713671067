"""Nobody gets past the door without a token, nor to anything without the right it takes: every request, every verb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from millpond.errors import Forbidden, Unauthenticated
from millpond.wire import bulk_requests as bulk
from millpond.wire import dataset_requests as dataset
from millpond.wire import group_requests as group
from millpond.wire import relayout_requests as relayout
from millpond.wire import requests as ask
from millpond.wire.access import RIGHTS
from millpond.wire.ticket import LiveTicket, encode_ticket
from tests.flight.conftest import SCHEMA, STREAM, Node, options, readings, told

MEMBER = {"group": "g", "instance": "i", "epoch": 1}
# What a request needs beside its stream.
FIELDS: dict[type, dict[str, Any]] = {
    ask.CreateToken: {"name": "n"},
    ask.RevokeToken: {"token": "n"},
    ask.ReportPipeline: {"name": "n"},
    ask.NoteQuery: {
        "predicate": '{"is":"const","value":true}',
        "objects_read": 0,
        "objects_total": 0,
        "bytes_read": 0,
        "bytes_total": 0,
    },
    bulk.CommitStaged: {"stages": ("a",)},
    bulk.ForgetStaged: {"prefix": "0123456789abcdef"},
    bulk.BeginLoad: {"owner": "o"},
    bulk.RenewLoad: {"load": "l"},
    bulk.CommitLoad: {"load": "l", "version": 0, "report": ""},
    bulk.AbortLoad: {"load": "l"},
    relayout.PutModel: {"model": "m", "layout": "l"},
    relayout.BeginRelayout: {"owner": "o"},
    relayout.PlanRelayout: {"relayout": "r"},
    relayout.RenewRelayout: {"relayout": "r"},
    relayout.CommitRelayout: {"relayout": "r", "start": 0, "loaded": False, "part": 0, "report": ""},
    relayout.EndRelayout: {"relayout": "r"},
    group.JoinGroup: {"group": "g", "instance": "i"},
    group.PollGroup: MEMBER,
    group.CommitGroup: MEMBER | {"number": 1},
    group.AbortGroup: MEMBER | {"number": 1},
    group.RenewMember: MEMBER,
    group.LeaveGroup: MEMBER,
    group.SeekGroup: MEMBER | {"to": "latest"},
    group.DescribeGroup: {"group": "g"},
    group.ResetGroup: {"group": "g", "to": "latest"},
    group.DeleteGroup: {"group": "g"},
    group.CommitTransaction: {"stages": (), "streams": (), "producer": "p", "sequence": 1},
    dataset.DescribeDataset: {"dataset": "d", "id": "i"},
    dataset.CreateDataset: {"definition": "{}"},
    dataset.ChangeDataset: {
        "dataset": "d",
        "id": "i",
        "version": 0,
        "change": "c",
        "piece": 0,
        "pieces": 1,
        "data": "",
    },
    dataset.DropDataset: {"dataset": "d", "id": "i"},
    dataset.DatasetEntries: {"dataset": "d", "id": "i"},
    ask.Get: {"key": "m-1"},
    ask.ReadSegment: {"segment": "x"},
}


def made(kind: type[ask.Request]) -> ask.Request:
    stream = {"stream": STREAM} if issubclass(kind, ask.NameRequest) else {}
    return kind(**stream, **FIELDS.get(kind, {}))


def every_request() -> list[ask.Request]:
    """One of each class that there is, found by looking, so that a new one is not forgotten."""

    def leaves(kind: type[ask.Request]) -> Iterator[type[ask.Request]]:
        below = kind.__subclasses__()
        yield from (leaf for each in below for leaf in leaves(each)) if below else (kind,)

    found = [made(kind) for kind in leaves(ask.Request)]
    known = {*ask.Call.__args__, *ask.Fetch.__args__, ask.Read, ask.Append}
    assert {type(each) for each in found} == known
    return found


def send(node: Node, request: ask.Request, token: str | None) -> None:
    """Send it by the verb that is for it, and wait for the answer's beginning."""
    client, how, data = node.client(), options(token), msgspec.json.encode(request)
    if isinstance(request, ask.Append):
        writer, reader = client.do_put(flight.FlightDescriptor.for_command(data), SCHEMA, how)
        with writer:
            writer.write_batch(readings(1))
            writer.done_writing()
            reader.read()
    elif isinstance(request, ask.Call):
        list(client.do_action(flight.Action(str(request.__struct_config__.tag), data), how))
    elif isinstance(request, ask.Read):
        client.do_get(flight.Ticket(data), how).read_all()
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(data), how)
        writer.done_writing()
        reader.read_all()
    else:
        client.do_get(flight.Ticket(data), how).read_all()


def refusal(act: Callable[[], object]) -> type[Exception] | None:
    """The class of our error that an action is refused with; None if it is let in, whatever becomes of it then."""
    try:
        act()
    except (flight.FlightError, pa.ArrowException) as error:
        if "get_schema" in str(error):  # whose errors pyarrow sends as they are
            return Forbidden if "has no right" in str(error) else None
        found = told(error)
        return type(found) if isinstance(found, Forbidden | Unauthenticated) else None
    except OSError as error:  # what pyarrow makes of it in `list_actions`
        return Unauthenticated if "Detail: Unauthenticated" in str(error) else None
    return None


@pytest.mark.parametrize("request_", every_request(), ids=lambda each: type(each).__name__)
def test_every_request_takes_a_token_and_its_right(node: Node, request_: ask.Request) -> None:
    node.stream.append(readings(1))
    for token in (None, "unknown"):
        assert refusal(lambda token=token: send(node, request_, token)) is Unauthenticated  # type: ignore[misc]
    if request_.right is None:
        assert refusal(lambda: send(node, request_, "none")) is None
        return
    about_all = not request_.stream
    for token in ("none", "elsewhere", *RIGHTS):
        right = token == request_.right and not about_all
        assert refusal(lambda token=token: send(node, request_, token)) is (None if right else Forbidden)  # type: ignore[misc]


def verbs(node: Node, token: str | None) -> dict[str, Callable[[], object]]:
    """Every verb of Flight, about the stream."""
    client, how, path = node.client(), options(token), flight.FlightDescriptor.for_path(STREAM)
    ticket = encode_ticket(LiveTicket(node.stream.definition.id, 1, {}, ("vid",)))

    def put() -> None:
        writer, reader = client.do_put(path, SCHEMA, how)
        with writer:
            writer.done_writing()
            reader.read()

    def exchange() -> None:
        writer, reader = client.do_exchange(path, how)
        writer.done_writing()
        reader.read_all()

    return {
        "do_put": put,
        "do_get": lambda: client.do_get(flight.Ticket(ticket), how).read_all(),
        "do_exchange": exchange,
        "get_flight_info": lambda: client.get_flight_info(path, how),
        "get_schema": lambda: client.get_schema(path, how),
        "list_flights": lambda: list(client.list_flights(options=how)),
        "list_actions": lambda: list(client.list_actions(how)),
        "do_action": lambda: list(client.do_action(flight.Action("describe", b'{"stream":"grid/meters"}'), how)),
    }


def test_every_verb_is_looked_at(node: Node) -> None:
    served = {name for name in vars(flight.FlightServerBase) if not name.startswith("_")}
    assert served - {"port", "run", "serve", "shutdown", "wait"} == set(verbs(node, None))


def test_every_verb_takes_a_token(node: Node) -> None:
    for token in (None, "unknown", "reader"):
        refused = {name: refusal(act) for name, act in verbs(node, token).items()}
        assert refused == dict.fromkeys(refused, Unauthenticated)


def test_every_verb_takes_its_right(node: Node) -> None:
    # What is listed is what the caller may read; which actions there are is no secret.
    free = {"list_flights", "list_actions"}
    for token in ("none", "elsewhere", "read", "write", "admin"):
        for name, act in verbs(node, token).items():
            allowed = name in free or token == ("write" if name == "do_put" else "read")
            assert refusal(act) is (None if allowed else Forbidden), (token, name)


def test_only_what_may_be_read_is_listed(node: Node) -> None:
    node.pond.create_stream("other/stream", SCHEMA)
    listed = {
        token: [info.descriptor.path[0].decode() for info in node.client().list_flights(options=options(token))]
        for token in ("none", "read", "write", "elsewhere")
    }
    assert listed == {"none": [], "read": [STREAM], "write": [], "elsewhere": ["other/stream"]}


def test_a_refused_put_keeps_nothing(node: Node) -> None:
    assert refusal(lambda: send(node, ask.Append(STREAM), "read")) is Forbidden
    assert node.stream.count() == 0
