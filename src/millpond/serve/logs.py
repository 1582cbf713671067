"""Structured logs: one JSON object a line, or text for people. Nothing a caller sends is ever logged as it is: requests
are known by route, caller id and status, so that no token and no record can end up in a log."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

FORMATS = ("json", "text")
# What `logging` itself puts into a record; anything else was given by `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was given beside the message."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class JsonFormatter(logging.Formatter):
    """`{"time": …, "level": …, "logger": …, "message": …}` and whatever was given beside it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class TextFormatter(logging.Formatter):
    """For a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        beside = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        line = f"{moment} {record.levelname.lower():7} {record.getMessage()}{f'  {beside}' if beside else ''}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class CutShort(Exception):
    """Ends an answer that is under way, so that its reader notices. Why is in the log already."""


def _not_said_before(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], CutShort))


def configure(form: str, level: str, out: TextIO | None = None) -> None:
    """Send all logs of this process there."""
    handler = logging.StreamHandler(out or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    ours = logging.getLogger("millpond")  # the command line has it talk to people
    ours.handlers, ours.propagate = [], True
    ours.setLevel(logging.NOTSET)
    logging.getLogger("uvicorn.error").addFilter(_not_said_before)
    # Its own words about each connection are not ours to keep.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
