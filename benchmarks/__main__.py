"""`python -m benchmarks [NAME …]`: run all, or those named. One JSON line per figure; exit 1 if a target is missed."""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.append import batches, many_streams, singles
from benchmarks.consume import consume
from benchmarks.deciding import deciding
from benchmarks.flight import flight
from benchmarks.history import history
from benchmarks.memory import memory
from benchmarks.recovery import recovery
from benchmarks.rest import rest
from benchmarks.settle import settle
from benchmarks.skipping import skipping
from benchmarks.spark_scan import spark_scan
from benchmarks.spark_write import spark_write
from benchmarks.streaming import streaming

ALL: dict[str, Callable[[], bool]] = {
    "batches": batches,
    "singles": singles,
    "streams": many_streams,
    "settle": settle,
    "recovery": recovery,
    "memory": memory,
    "spark": spark_scan,
    "spark_write": spark_write,
    "streaming": streaming,
    "rest": rest,
    "flight": flight,
    "consume": consume,
    "skipping": skipping,
    "history": history,
    "deciding": deciding,
}


def main(names: list[str]) -> int:
    """Run and count what missed its target."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(ALL)}", file=sys.stderr)
        return 2
    met = [ALL[name]() for name in names or ALL]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
