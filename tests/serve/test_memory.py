"""A server takes memory so that it can give it back; who starts it may choose otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from millpond.serve.memory import save_memory
save_memory()
import pyarrow as pa
print(pa.default_memory_pool().backend_name)
"""


@pytest.mark.parametrize(("chosen", "found"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")])
def test_batches_are_taken_from_a_heap_that_any_thread_gives_back(chosen: dict[str, str], found: str) -> None:
    bare = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=bare | chosen, capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == found
