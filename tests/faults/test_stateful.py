"""Whatever hypothesis thinks of doing to a pond, a list and a dict would hold the same (I1, I2, I3, K6).

To run a failing example again, paste the `@reproduce_failure` line or the printed steps; `make fault` runs 2,000.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from millpond.testing.stateful import PondStateMachine

# The model says what is durable; a disk in memory is as good as a real one, and quicker.
PondStateMachine.scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None


class TestPond(PondStateMachine.TestCase):
    """Some."""

    settings = settings(max_examples=40, stateful_step_count=40)


@pytest.mark.long
@pytest.mark.timeout(0)
class TestPondForLong(PondStateMachine.TestCase):
    """As many as the profile says."""
