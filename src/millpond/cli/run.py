"""The command `run`: the pipelines of a file, until Ctrl-C or SIGTERM, with what they do on the terminal."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.session import Session, session_of
from millpond.errors import PipelineFailed

if TYPE_CHECKING:
    from millpond.spark.pipelines import PondAccess

# How often it is looked whether somebody wants it to stop.
LOOK_SECONDS = 0.2


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a Python file that declares pipelines")],
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="only these; all otherwise")] = None,
    once: Annotated[bool, typer.Option("--once", help="process what is there, and end")] = False,
    checkpoints: Annotated[
        Path | None, typer.Option(help="where progress is kept, if not in the pond's own directory")
    ] = None,
    memory: Annotated[str, typer.Option(help="how much memory Spark's JVM may take")] = "2g",
    cores: Annotated[
        int | None, typer.Option(min=1, help="how many cores Spark may use; all of them otherwise")
    ] = None,
) -> None:
    """Run the pipelines that a file declares, from streams to streams, on a local Spark.

    A pipeline that fails starts again by itself, after a pause. Each record counts once, whatever dies. Ctrl-C and
    SIGTERM let micro-batches finish.

    \b
    Examples:
      millpond run pipelines.py
      millpond run pipelines.py hourly alerts --pond http://127.0.0.1:7070
      millpond run pipelines.py --once --json
    """
    session = session_of(context)
    from millpond.cli.run_screen import screen_of
    from millpond.spark.pipelines import Checkpoints, Runner, load_file
    from millpond.spark.session import local_session

    pipelines = load_file(file, names or [])
    with (
        session.open(background=True) as pond,
        tempfile.TemporaryDirectory(prefix="millpond-spark-", ignore_cleanup_errors=True) as scratch,
    ):
        access = access_of(session, pond)
        kept = Checkpoints.of(pond, checkpoints)
        session.output.say(f"starting Spark for {', '.join(each.name for each in pipelines)}")
        spark = local_session(Path(scratch), memory=memory, cores=cores)
        try:
            from millpond.spark import register

            register(spark)
            screen = screen_of(session.output)
            runner = Runner(spark, access, kept, pipelines, file=file, once=once, shown=screen.show)
            with screen, _until_told(runner.stop):
                runner.start()
                while not runner.wait(LOOK_SECONDS):
                    pass
        finally:
            spark.stop()
    if runner.failed:
        raise PipelineFailed(
            f"{len(runner.failed)} of {len(pipelines)} pipelines failed: {', '.join(f.name for f in runner.failed)}",
            hint="what was wrong with each stands above",
        )


def access_of(session: Session, pond: Any) -> PondAccess:
    """The pond as `format("millpond")` is told of it."""
    from millpond.spark.pipelines import PondAccess

    given = session.access
    options = {
        "pond": session.pond if session.served else str(session.path.resolve()),
        "token": given.token,
        "ca": given.ca,
        "certificate": given.certificate,
        "key": given.key,
    }
    return PondAccess(pond, {name: str(value) for name, value in options.items() if value is not None})


@contextlib.contextmanager
def _until_told(stop: Any) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for an end; a second one does not wait for it."""

    def told(number: int, frame: FrameType | None) -> None:
        stop()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    # After Spark was started, which has a mind of its own about Ctrl-C.
    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
