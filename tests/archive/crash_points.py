"""Where to crash a workload whose steps are known from a clean run."""

from __future__ import annotations

import itertools

from millpond.testing import Step


def crash_points(steps: list[Step], *, each: bool) -> list[tuple[int, bool]]:
    """Before every durable step. After one is the same as before the next, unless deltalake writes in between, as it
    does before its file is synced. Unless each is wanted: of the many with one name the first and the last."""
    durable = [step for step in steps if step.durable]
    points = []
    for step, following in itertools.zip_longest(durable, durable[1:]):
        points.append((str(step), step.durable_number, False))
        if following is None or following.kind == "sync_file":
            points.append((str(step), step.durable_number, True))
    last = {(name, after): number for name, number, after in points}
    first = {(name, after): number for name, number, after in reversed(points)}
    return [
        (number, after) for name, number, after in points if each or number in (first[name, after], last[name, after])
    ]
