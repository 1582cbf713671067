"""The options of `format("millpond")` for reading, checked: an option that is misspelt is an error, not a surprise.

Spark hands options over with names in any case.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.errors import InvalidValue
from millpond.model.units import Bytes, parse_bytes

# As users write them, with what each is for.
WHERE = {
    "pond": "the URL of a served pond, or the directory of a pond that is open in this process",
    "stream": "the stream's name",
    "token": "who reads, for a served pond that asks; MILLPOND_TOKEN if it is not given",
    "ca": "a file with who signed the server's certificate",
    "certificate": "a file with our own certificate, for mutual TLS",
    "key": "a file with its key",
}
HOW = {
    "startingOffsets": "earliest, latest, archive, an ISO time, or offsets as JSON",
    "maxRecordsPerTrigger": "at most so many records in a micro-batch",
    "maxBytesPerTrigger": "at most about so much in a micro-batch, e.g. 64MB",
    "group": "a consumer group whose position follows the query",
    "failOnDataLoss": "whether the query fails if records it has not read are gone; true unless said otherwise",
}
# A word for what is earliest wherever a stream is archived: it says that the archive is meant to be read.
ARCHIVE = "archive"


@dataclass(frozen=True)
class Where:
    """Which stream."""

    pond: str
    stream: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class SourceOptions:
    """How a query reads it. `start` is a word, a time, or offsets."""

    where: Where
    start: str | Mapping[int, int] = "earliest"
    start_place: Mapping[str, object] = field(default_factory=dict)
    records_max: int | None = None
    bytes_max: int | None = None
    group: str | None = None
    fail_on_data_loss: bool = True


def read_where(given: Mapping[str, str]) -> Where:
    """Which stream is meant; for all kinds of reading and writing."""
    found = {name.lower(): value for name, value in given.items()}
    for name in ("pond", "stream"):
        if not found.get(name):
            raise InvalidValue(f'.option("{name}", ...) is missing', hint=f"{name}: {WHERE[name]}")
    token = found.get("token") or os.environ.get("MILLPOND_TOKEN") or None
    return Where(found["pond"], found["stream"], token, found.get("ca"), found.get("certificate"), found.get("key"))


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a streaming query."""
    check_names(given, {**WHERE, **HOW})
    found = {name.lower(): value for name, value in given.items()}
    start, place = _start(found.get("startingoffsets", "earliest"))
    return SourceOptions(
        read_where(given),
        start,
        place,
        _records(found.get("maxrecordspertrigger")),
        _bytes(found.get("maxbytespertrigger")),
        found.get("group") or None,
        _boolean("failOnDataLoss", found.get("failondataloss", "true")),
    )


def check_names(given: Mapping[str, str], known: Mapping[str, str]) -> None:
    """`InvalidValue` if an option is not known."""
    lower = {name.lower() for name in known}
    for name in given:
        if name.lower() not in lower:
            raise InvalidValue(f"no option {name!r}", hint=f"options: {', '.join(known)}")


def _start(text: str) -> tuple[str | dict[int, int], dict[str, object]]:
    """Where to begin, and of what stream the offsets were said to be."""
    if not text.lstrip().startswith("{"):
        return text.strip(), {}
    try:
        found = json.loads(text)
        offsets = found.pop("offsets", None)
        if offsets is None:
            offsets, found = found, {}
        if any(isinstance(offset, bool) or not isinstance(offset, int) for offset in offsets.values()):
            raise ValueError("offsets are whole numbers")
        return {int(streamlet): offset for streamlet, offset in offsets.items()}, found
    except (ValueError, AttributeError) as error:
        raise InvalidValue(
            f"startingOffsets {text[:80]!r}: {error}", hint='offsets per streamlet, e.g. {"0": 120, "1": 98}'
        ) from None


def _records(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or not 0 < int(text) < 2**63:
        raise InvalidValue(f"maxRecordsPerTrigger {text!r}", hint="a whole number of records, 1 or more")
    return int(text)


def _bytes(text: str | None) -> int | None:
    size = None if text is None else parse_bytes(Bytes(int(text)) if text.strip().isdecimal() else text)
    if size is not None and size < 1:
        raise InvalidValue(f"maxBytesPerTrigger {text!r}", hint="1 byte or more, e.g. 64MB")
    return size


def _boolean(name: str, text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise InvalidValue(f"{name} {text!r}", hint="true or false")
