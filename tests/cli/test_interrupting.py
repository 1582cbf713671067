"""Ctrl-C ends a command, whatever it is waiting for."""

from __future__ import annotations

import signal
import subprocess
import sys

from millpond.cli.interrupting import ended_by_interrupt

PROGRAM = """
import sys, threading, time
from millpond.cli.interrupting import ended_by_interrupt

with ended_by_interrupt(float(sys.argv[1])):
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        if sys.argv[2] == "stuck":
            print("closing", flush=True)
            lost = threading.Lock()
            lost.acquire()
            lost.acquire()
print("closed", flush=True)
time.sleep(1)
"""


def interrupted(seconds: float, how: str, times: int = 1) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", PROGRAM, str(seconds), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for _ in range(times):
            said.append(process.stdout.readline().strip())
            process.send_signal(signal.SIGINT)
        said += process.stdout.read().split()
        return process.wait(60), said


def test_one_that_ends_in_order_is_left_alone() -> None:
    """Also after the time is up: the alarm was taken back."""
    assert interrupted(0.5, "orderly") == (0, ["ready", "closed"])


def test_one_that_waits_for_a_lock_that_nobody_gives_back_is_ended_in_time() -> None:
    assert interrupted(0.5, "stuck") == (-signal.SIGALRM, ["ready", "closing"])


def test_a_second_one_does_not_wait() -> None:
    assert interrupted(3_600, "stuck", times=2) == (130, ["ready", "closing"])


def test_whoever_handles_interrupts_goes_on_doing_so() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with ended_by_interrupt():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
