"""How a command runs: options that belong to all commands, and how each ending becomes a message and an exit code.

The options of all commands may stand anywhere on the line, `millpond put grid/meters --pond ./p` as well as
`millpond --pond ./p put grid/meters`: they are moved to the front before parsing, up to a `--`.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from millpond.cli.exits import Exit, exit_of
from millpond.cli.interrupting import ended_by_interrupt
from millpond.cli.output import Output, leave_stdout_quietly
from millpond.errors import MillpondError

FLAGS = ("--json", "--quiet", "-q", "--verbose", "-v")
VALUED = ("--pond", "--token", "--token-file", "--ca", "--client-certificate", "--client-key")


def options_first(arguments: Sequence[str]) -> list[str]:
    """The same line with the options of all commands in front."""
    front: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for word in waiting:
        if word == "--":
            rest += [word, *waiting]
        elif word in FLAGS or word.startswith(tuple(f"{name}=" for name in VALUED)):
            front.append(word)
        elif word in VALUED:
            front += [word, *(value for value in [next(waiting, None)] if value is not None)]
        else:
            rest.append(word)
    return front + rest


class Shell(TyperGroup):
    """The group of all commands."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run one command and end the process."""
        line = options_first(sys.argv[1:] if args is None else args)
        output = Output(json="--json" in line, verbose=bool({"--verbose", "-v"} & set(line)))
        try:
            with ended_by_interrupt():
                code = super().main(line, prog_name or "millpond", complete_var, standalone_mode=False, **extra)
                sys.stdout.flush()
            sys.exit(code if isinstance(code, int) else Exit.OK)
        except BrokenPipeError:
            leave_stdout_quietly()
            sys.exit(Exit.OK)
        except Exception as error:
            sys.exit(_explain(error, output))

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the line names."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # `| head` has seen enough, and that is no failure. (typer would make it one.)
            leave_stdout_quietly()
            return Exit.OK
        except KeyboardInterrupt:
            return Exit.INTERRUPTED


def _explain(error: Exception, output: Output) -> Exit:
    """Say what went wrong and what to do; the exit code for it."""
    if isinstance(error, MillpondError):
        output.error(error.code, error.message, error.hint, **getattr(error, "more", {}))
        if output.verbose:
            _show_trace(error, output)
        return exit_of(error)
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        asked = context.command_path if context is not None else "millpond"
        message = error.format_message()
        if not message:  # a command without its arguments shows its help instead
            return Exit.INVALID
        output.error("usage", message, f"{asked} --help shows how")
        return Exit.INVALID
    if isinstance(error, typer.Abort):
        output.error("aborted", "nothing was done")
        return Exit.INVALID
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        output.error("unavailable", f"{error.strerror or error}{where}", "look at the disk and at the rights to it")
        return Exit.UNAVAILABLE
    output.error(
        "error",
        f"{type(error).__name__}: {error}",
        "this is a fault in Millpond; --verbose shows where, nothing that was acknowledged is lost by it",
    )
    if output.verbose:
        _show_trace(error, output)
    return Exit.INTERNAL


def _show_trace(error: Exception, output: Output) -> None:
    output.detail("".join(traceback.format_exception(error)).rstrip())


def configure_logging(output: Output) -> None:
    """What the rooms below have to say goes to stderr: warnings always, more with --verbose."""
    level = logging.DEBUG if output.verbose else logging.ERROR if output.quiet else logging.WARNING
    logger = logging.getLogger("millpond")
    logger.handlers = [_Talk(output)]
    logger.setLevel(level)
    logger.propagate = False


class _Talk(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.WARNING:
            self._output.warn(text)
        else:
            self._output.detail(text)
