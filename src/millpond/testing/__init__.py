"""Shipped for tests, ours and those of plug-ins: faults under the byte layer, a clock that stands still, contract
suites that an engine must pass, and a state machine that compares a pond with a list and a dict."""

from millpond.testing.durable_disk import DurableDisk
from millpond.testing.faulty_storage import Crash, FaultyStorage
from millpond.testing.manual_clock import ManualClock
from millpond.testing.power_cut import VARIANTS, Variant
from millpond.testing.steps import Step

__all__ = ["Crash", "DurableDisk", "FaultyStorage", "ManualClock", "Step", "VARIANTS", "Variant"]
