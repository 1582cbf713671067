"""What a check found: fine, worth a look, or in the way; and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millpond.cli.exits import Exit

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Checked:
    """One line of the doctor's answer. `exit` is how the command ends if this failed."""

    check: str
    state: State
    found: str
    mend: str = ""
    exit: Exit = Exit.UNAVAILABLE


def ok(check: str, found: str) -> Checked:
    """Nothing to do."""
    return Checked(check, "ok", found)


def warn(check: str, found: str, mend: str) -> Checked:
    """It works, but not as it should."""
    return Checked(check, "warn", found, mend)


def fail(check: str, found: str, mend: str, exit: Exit = Exit.UNAVAILABLE) -> Checked:
    """It does not work like this."""
    return Checked(check, "fail", found, mend, exit)
