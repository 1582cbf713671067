"""CloudEvents 1.0 over HTTP: binary, structured and batched, as records.

In a stream of raw events an event is its data as the body, with its attributes as headers as the binary mode has them
(`ce-id`, `ce-source`, …, `content-type`), and its time as the time: the same record in whatever mode it came. In a
stream with a schema the data is the record, and attributes go to columns called `ce_id`, `ce_source`, … where there are
such columns.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from millpond.errors import InvalidRecord
from millpond.model.definition import StreamDefinition
from millpond.model.literal import parse_timestamp

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"

_REQUIRED = ("id", "source", "specversion", "type")
_NAME = re.compile(r"[a-z0-9]{1,64}\Z")
_HINT = "a CloudEvent has id, source, specversion 1.0 and type; see the CloudEvents specification"
_COLUMN = "ce_"
_HEADER = "ce-"


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether a request is an event in binary mode: by the header that says which version it is of."""
    return "ce-specversion" in headers


def from_headers(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """An event in binary mode, as the structured mode would have it."""
    event: dict[str, Any] = {
        name.removeprefix(_HEADER): unquote(value) for name, value in headers.items() if name.startswith(_HEADER)
    }
    if "content-type" in headers:
        event["datacontenttype"] = headers["content-type"]
    _check(event, "the event")
    return {**event, "data": body}


def from_json(body: bytes, *, batched: bool) -> list[dict[str, Any]]:
    """The events of a structured or batched request."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {error}", hint=_HINT) from None
    events = found if batched else [found]
    if not isinstance(events, list):
        raise InvalidRecord("a batch of CloudEvents is a JSON array", hint=f"send one event as {STRUCTURED}")
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            raise InvalidRecord(f"event {number} is not an object", hint=_HINT)
        _check(event, f"event {number}")
    return events


def _check(event: Mapping[str, Any], place: str) -> None:
    for name in _REQUIRED:
        value = event.get(name)
        if not isinstance(value, str) or not value:
            raise InvalidRecord(
                f"{place} has no {name}" if name not in event else f"{place}: {name} = {value!r}"[:200], hint=_HINT
            )
    if event["specversion"] != "1.0":
        raise InvalidRecord(f"{place} is of CloudEvents {event['specversion'][:20]!r}", hint="specversion is 1.0")
    for name in event:
        if name not in ("data", "data_base64") and not _NAME.match(name):
            raise InvalidRecord(f"{place}: no attribute can be called {name[:80]!r}", hint="a-z and 0-9 only")
    if event.get("data") is not None and event.get("data_base64") is not None:
        raise InvalidRecord(f"{place} has data and data_base64", hint="one of the two")


def to_rows(events: Iterable[Mapping[str, Any]], definition: StreamDefinition) -> list[dict[str, Any]]:
    """The events as records of a stream."""
    make = _to_raw if definition.raw else _to_record
    return [make(event, f"event {number}", definition) for number, event in enumerate(events)]


def _attributes(event: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: _text(value) for name, value in event.items() if name not in ("data", "data_base64") and value is not None
    }


def _text(value: Any) -> str:
    """An attribute as the binary mode writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _to_raw(event: Mapping[str, Any], place: str, definition: StreamDefinition) -> dict[str, Any]:
    attributes = _attributes(event)
    headers = {_HEADER + name: value for name, value in attributes.items() if name not in ("datacontenttype", "time")}
    data = event.get("data")
    if "datacontenttype" in attributes:
        headers["content-type"] = attributes["datacontenttype"]
    elif data is not None and not isinstance(data, bytes):
        headers["content-type"] = "application/json"
    return {"time": _time(attributes.get("time"), place), "headers": headers, "body": _body(event, place)}


def _body(event: Mapping[str, Any], place: str) -> bytes:
    data = event.get("data")
    if isinstance(data, bytes):
        return data
    if event.get("data_base64") is not None:
        try:
            return base64.b64decode(event["data_base64"], validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise InvalidRecord(f"{place}: data_base64 is not base64: {error}", hint=_HINT) from None
    if data is None:
        return b""
    media = str(event.get("datacontenttype") or "application/json").partition(";")[0].strip().lower()
    if isinstance(data, str) and not (media.endswith(("/json", "+json"))):
        return data.encode()
    return msgspec.json.encode(data)


def _time(text: str | None, place: str) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise InvalidRecord(f"{place}: time = {text[:80]!r}: {error}", hint="e.g. 2026-01-31T12:00:00Z") from None


def _to_record(event: Mapping[str, Any], place: str, definition: StreamDefinition) -> dict[str, Any]:
    data = event.get("data")
    if isinstance(data, bytes) or event.get("data_base64") is not None:
        try:
            data = msgspec.json.decode(_body(event, place))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidRecord(
                f"{place}: its data is not JSON: {error}", hint="a stream of raw events takes any"
            ) from None
    if not isinstance(data, dict):
        raise InvalidRecord(f"{place}: its data is not an object", hint="its members are the record's columns")
    given = {_COLUMN + name: value for name, value in _attributes(event).items()}
    return {**data, **{name: given[name] for name in definition.sent_schema.names if name in given}}
