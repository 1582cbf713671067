"""Whatever joins, pauses, dies or is lost on the way: each record is committed once, and outputs are those of commits
(C8).

`make fault` runs 2,000 examples.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from millpond.testing.consume_machine import ConsumeMachine

ConsumeMachine.scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None


class TestGroups(ConsumeMachine.TestCase):
    """Some."""

    settings = settings(max_examples=40, stateful_step_count=40)


@pytest.mark.long
@pytest.mark.timeout(0)
class TestGroupsForLong(ConsumeMachine.TestCase):
    """As many as the profile says."""
