"""The OpenAPI 3.1 document: made from the table of routes and the types of messages, so that it cannot say otherwise.

What the table does not know is written here: the forms of records, the headers of an append, and the answers to errors,
which are the same on every route.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from millpond.consume.protocol import Receipt
from millpond.log.engine import Ack
from millpond.model.names import NAME_LENGTH_MAX, PATTERN
from millpond.serve import cloudevents
from millpond.serve.forms import ARROW, CSV, EVENTS, JSON, NDJSON
from millpond.serve.problems import MEDIA_TYPE, Problem
from millpond.serve.route import DELIVERIES, RECORDS, TEXT, Route
from millpond.serve.routes import ROUTES

_DESCRIPTIONS = {
    400: "The request is wrong: the same again changes nothing.",
    401: "A token is asked for, and none or an unknown one was shown.",
    403: "The token has no right to this, or the request is addressed to another host or origin.",
    404: "There is no such stream, or nothing of that name.",
    405: "Not by this method.",
    406: "Records are not given in a form that is accepted.",
    409: "It is there already, or the sequence is older than what is remembered; of a group: the caller is no member "
    "any more, or the group works in another way.",
    410: "The offsets are no longer held.",
    413: "Over a bound; the detail says which.",
    415: "Records in a form that is not read.",
    422: "A record does not fit; nothing of the request was kept.",
    429: "Too many requests: Retry-After says when to come back.",
    500: "An error in Millpond itself.",
    503: "Not now: Retry-After says when to come back.",
    507: "The disk is full; nothing of the request was kept.",
}
# On every route that asks who calls; and on those that do not.
_ALWAYS = (401, 403, 429)
_FOR_ANYONE = (403, 429)
_RETRY = {
    "Retry-After": {
        "description": "Seconds after which to try again.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}
_STREAM_NAME: dict[str, Any] = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX, "pattern": PATTERN},
    "example": "grid/meters",
    "description": "A stream's name. Its slashes may stand as they are, or as %2F.",
}
_PATH_NAMES = {"group": "A consumer group's name, percent-encoded.", "instance": "A member's name, percent-encoded."}
_RECORD = {"type": "object", "description": "From column to value; see the types of a stream."}
_RECORD_LINES = {"type": "string", "description": "One JSON object a line."}


@cache
def document() -> dict[str, Any]:
    """The whole document, as plain values."""
    types: list[Any] = [Problem, Ack, Receipt]
    for route in ROUTES:
        types += [kind for kind in (route.gives, route.takes) if kind not in (RECORDS, TEXT, DELIVERIES, None)]
        types.append(route.query)
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type, components)
    queries = {route.query.__name__ for route in ROUTES}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millpond",
            "version": "1",
            "summary": "A record is sent once, acknowledged when it is safe, readable at once, "
            "and settles once into an open table.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {name: _plainer(schema) for name, schema in components.items() if name not in queries},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Made by `millpond token create`."}
            },
        },
    }


def _operation(route: Route, by_type: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route, components), *_header_parameters(route)],
        "responses": _responses(route, by_type),
    }
    if route.right is None:
        operation["security"] = []
    else:
        # A server that was never given a token asks for none.
        operation["security"] = [{"token": []}, {}]
        operation["description"] = f"Takes {_right(route)}."
    if route.takes == RECORDS:
        operation["requestBody"] = _records_in()
    elif route.takes is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": by_type[id(route.takes)]}}}
    return operation


def _plainer(schema: Any) -> Any:
    """A schema without `prefixItems`, which many readers of OpenAPI do not know: any item may be of any kind."""
    if isinstance(schema, list):
        return [_plainer(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plainer(value) for name, value in schema.items()}
    if "prefixItems" in found:
        found["items"] = {"anyOf": found.pop("prefixItems")}
    return found


def _right(route: Route) -> str:
    if route.right not in ("read", "write", "admin"):
        return str(route.right)
    return f"the right to `{route.right}` {'the stream' if route.of_stream else 'the pond as a whole'}"


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    found = [_STREAM_NAME] if route.of_stream else []
    for name, text in _PATH_NAMES.items():
        if f"{{{name}}}" in route.path:
            schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"}
            found.append({"name": name, "in": "path", "required": True, "schema": schema, "description": text})
    if "{id}" in route.path:
        schema = {"type": "string", "minLength": 1, "maxLength": 64}
        found.append(
            {"name": "id", "in": "path", "required": True, "schema": schema, "description": "Its id or its name."}
        )
    return found


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    described = components[route.query.__name__]
    required = described.get("required", ())
    found = []
    for name, schema in described.get("properties", {}).items():
        plain = _without_null(schema)
        text = plain.pop("description", "")
        found.append({"name": name, "in": "query", "required": name in required, "schema": plain, "description": text})
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is left out is not null."""
    schema = dict(schema)
    kinds = [kind for kind in schema.pop("anyOf", ()) if kind != {"type": "null"}]
    if schema.get("default", 0) is None:
        del schema["default"]
    for kind in kinds:
        schema.update(kind)
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value is not None]
        schema.setdefault("type", "string")
    return schema


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    if route.takes != RECORDS and route.handler != "transaction":
        return []
    return [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
            "description": "Names this append: sent again with the same key, it gets the first answer.",
        }
    ]


def _records_in() -> dict[str, Any]:
    event = {"type": "object", "required": ["id", "source", "specversion", "type"]}
    text = {"type": "string"}
    return {
        "required": True,
        "description": "Records, by content type. A stream of raw events takes any content type as one event.",
        "content": {
            JSON: {"schema": {"oneOf": [_RECORD, {"type": "array", "items": _RECORD}]}},
            NDJSON: {"schema": _RECORD_LINES},
            CSV: {"schema": text},
            ARROW: {"schema": {**text, "contentMediaType": ARROW}},
            cloudevents.STRUCTURED: {"schema": event},
            cloudevents.BATCHED: {"schema": {"type": "array", "items": event}},
        },
    }


def _records_out(route: Route) -> dict[str, Any]:
    records: dict[str, Any] = {"records": {"type": "array", "items": _RECORD}}
    if route.handler == "read":
        records["next"] = {"type": "string", "description": "Where the next page starts."}
    text = {"type": "string"}
    content: dict[str, Any] = {
        JSON: {"schema": {"type": "object", "required": list(records), "properties": records}},
        NDJSON: {"schema": _RECORD_LINES},
        CSV: {"schema": text},
        ARROW: {"schema": text},
    }
    if route.handler == "read":
        content[EVENTS] = {"schema": text}
    return content


def _deliveries_out(receipt: Any) -> dict[str, Any]:
    delivery = {
        "type": "object",
        "required": ["receipt", "records"],
        "properties": {"receipt": receipt, "records": {"type": "array", "items": _RECORD}},
    }
    deliveries = {"deliveries": {"type": "array", "items": delivery}}
    return {
        JSON: {"schema": {"type": "object", "required": ["deliveries"], "properties": deliveries}},
        NDJSON: {"schema": {"type": "string", "description": "One delivery a line."}},
        ARROW: {"schema": {"type": "string", "description": "A batch for each delivery."}},
    }


def _responses(route: Route, by_type: dict[int, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if route.gives == RECORDS:
        good["content"] = _records_out(route)
        if route.handler == "read":
            following = {"description": "Where the next page starts.", "schema": {"type": "string"}}
            good["headers"] = {"Millpond-Next": following}
    elif route.gives == DELIVERIES:
        good["content"] = _deliveries_out(by_type[id(Receipt)])
    elif route.gives == TEXT:
        good["content"] = {"text/plain": {"schema": {"type": "string"}}}
    elif route.gives is not None:
        good["content"] = {JSON: {"schema": by_type[id(route.gives)]}}
    if route.handler == "segments":
        records = _records_out(route)
        both = {"anyOf": [by_type[id(route.gives)], records[JSON]["schema"]]}
        good["content"] = {**records, JSON: {"schema": both}}
    found = {str(route.status): good}
    if route.handler == "create":
        found["200"] = {**good, "description": "It was there already, with the same columns."}
    statuses = {*route.errors, *(_FOR_ANYONE if route.right is None else _ALWAYS), 400}
    for status in sorted(statuses):
        found[str(status)] = _problem(route, status, by_type)
    return found


def _problem(route: Route, status: int, by_type: dict[int, Any]) -> dict[str, Any]:
    if route.handler == "readyz" and status == 503:
        return {"description": "Not ready, and why.", "content": {JSON: {"schema": by_type[id(route.gives)]}}}
    content = {MEDIA_TYPE: {"schema": by_type[id(Problem)]}}
    found: dict[str, Any] = {"description": _DESCRIPTIONS[status], "content": content}
    if status in (429, 503):
        found["headers"] = _RETRY
    return found
