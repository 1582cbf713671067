"""How a figure is reported: value, baseline, ratio, target, and whether the target is met."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable


def report(name: str, value: float, baseline: float, target: str, unit: str, **more: object) -> bool:
    """Print one figure. `target` is e.g. ">= 0.5" and is compared with value / baseline."""
    ratio = value / baseline
    sign, bound = target.split()
    met = ratio >= float(bound) if sign == ">=" else ratio <= float(bound)
    line = {"figure": name, "ratio": round(ratio, 3), "target": target, "met": met, "unit": unit}
    line |= {"value": _short(value), "baseline": _short(baseline), **more}
    print(json.dumps(line, ensure_ascii=False), flush=True)
    return met


def _short(number: float) -> float:
    return float(f"{number:.4g}")


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def median_of(count: int, action: Callable[[], object]) -> float:
    """The median time of several runs, after one that warms up."""
    action()
    return statistics.median(timed(action) for _ in range(count))


def talk(message: str) -> None:
    """Say something to whoever watches; figures alone go to stdout."""
    print(message, file=sys.stderr, flush=True)
