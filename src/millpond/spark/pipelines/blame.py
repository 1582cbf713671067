"""Whose fault it was, for people: the line of their file and the error, without the stack of a JVM.

What fails while a pipeline is put together is a Python error with a traceback. What fails in an executor comes back as
a text in which the traceback of the user's function stands among others; what Millpond has to say stands there in
our own words.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from millpond.errors import MillpondError, PipelineFailed

# As our answers to Spark say it, with the code at the end.
_OURS = re.compile(r"Millpond: (?P<message>.*?) ?\[(?P<code>[a-z-]+)\]", re.DOTALL)
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_RAISED = re.compile(r"^(?P<error>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Warning|Exit)\b.*)$", re.MULTILINE)
_STACK = re.compile(r"\n\s*(?:at [\w.$]+\(|JVM stacktrace:|=== Streaming Query ===|\+- |SQLSTATE)")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SHOWN = 600


def blamed(what: str, file: Path | None, error: BaseException) -> MillpondError:
    """An error that says where in the user's file it happened, and what."""
    if isinstance(error, SyntaxError):
        return PipelineFailed(f"{what}:{error.lineno}: {error.msg}", hint="it is a Python file: put that right")
    said = reason(error)
    line = None if file is None else _line_of(error, file)
    place = f"{what}, line {line}" if line else what
    hint = error.hint if isinstance(error, MillpondError) else ""
    return PipelineFailed(f"{place}: {said}", hint=hint or "put that right and run it again")


def reason(error: BaseException) -> str:
    """What went wrong, in one or a few lines."""
    if isinstance(error, MillpondError):
        return error.message
    text = str(error)
    ours = _OURS.search(text)
    if ours:
        return ours["message"].strip()
    raised = _RAISED.findall(text)
    if "Traceback (most recent call last)" in text and raised:
        return str(raised[-1])[:_SHOWN]
    plain = _CONDITION.sub("", _STACK.split(text, maxsplit=1)[0].strip())
    kind = "" if type(error).__module__.startswith("pyspark") else f"{type(error).__name__}: "
    return f"{kind}{plain[:_SHOWN]}"


def _line_of(error: BaseException, file: Path) -> int | None:
    """The last line of the file that was under way when it failed."""
    wanted = str(file.resolve())
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if _same(frame.filename, wanted)]
    told = [int(found["line"]) for found in _FRAME.finditer(str(error)) if _same(found["file"], wanted)]
    return (told or frames or [None])[-1]


def _same(name: str, wanted: str) -> bool:
    return name == wanted or str(Path(name).resolve()) == wanted
