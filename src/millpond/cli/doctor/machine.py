"""Checks of the machine: Python, packages, Java, Spark, memory, open files, ports, clock.

Each returns one `Checked`. Bounds are those below which Millpond as it is set up by default would not do its work.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from millpond.cli.doctor.findings import Checked, fail, ok, warn
from millpond.clock import SystemClock
from millpond.errors import MillpondError
from millpond.model.units import format_bytes

PYTHONS = ((3, 11), (3, 12))
# What Millpond leans on below the public interface, by the minor version it was tried with.
PINNED = {"pyspark": "4.3.", "deltalake": "1.6.", "pyarrow": "26."}
JAVA_MINIMUM = 17
# A pond's quota of live records, and as much again for Arrow's pool and the process itself.
MEMORY_MINIMUM_BYTES = 2_000_000_000
# Every object, segment and connection that is open at one time is one file.
FILES_MINIMUM = 4_096
# 2024: before any release. A clock that says less was never set.
CLOCK_MINIMUM_MICROS = 1_704_067_200_000_000


def check_python() -> Checked:
    """The interpreter."""
    found = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro} ({sys.executable})"
    if sys.version_info[:2] not in PYTHONS:
        return fail("python", found, "use Python 3.11 or 3.12")
    return ok("python", found)


def check_packages() -> Checked:
    """The packages whose inner workings matter."""
    found: list[str] = []
    wrong: list[str] = []
    for name, wanted in PINNED.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = "missing"
        found.append(f"{name} {version}")
        if not version.startswith(wanted):
            wrong.append(f"{name} {wanted}*")
    if wrong:
        return fail("packages", ", ".join(found), f"install {', '.join(wrong)}: pip install --force-reinstall millpond")
    return ok("packages", ", ".join(found))


def check_java() -> Checked:
    """The Java that Spark would start: JAVA_HOME first, then the path."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    mend = f"install Java {JAVA_MINIMUM} or newer (openjdk-17-jre-headless), or point JAVA_HOME at it"
    if java is None:
        return fail("java", "none on the path, and JAVA_HOME is not set", mend)
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return fail("java", f"{java}: {error}", mend)
    match = re.search(r'version "(\d+)[^"]*"', said)
    if match is None:
        return fail("java", f"{java} does not say its version", mend)
    if int(match[1]) < JAVA_MINIMUM:
        return fail("java", f"{match[0]} ({java})", mend)
    return ok("java", f"{match[0]} ({java})")


def check_spark(start: bool) -> Checked:
    """Whether Spark is there and, if asked, whether it starts and answers."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return fail("spark", "pyspark is not installed", "pip install 'pyspark==4.3.*'")
    if not start:
        return ok("spark", f"pyspark {version} (not started; --spark starts it)")
    from millpond.spark.session import local_session, query

    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="millpond-doctor-") as scratch:
            session = local_session(Path(scratch), cores=1, memory="512m")
            try:
                query(session, "SELECT 1")
            finally:
                session.stop()
    except MillpondError as error:
        return fail("spark", error.message, error.hint)
    return ok("spark", f"pyspark {version}, started and answered in {time.monotonic() - began:.1f} s")


def check_memory() -> Checked:
    """What is free, within the limit of the container if there is one."""
    available = _available_bytes()
    if available is None:
        return ok("memory", "unknown on this system")
    found = f"{format_bytes(available)} available"
    if available < MEMORY_MINIMUM_BYTES:
        mend = "open ponds with a smaller memory_bytes, and Spark with less memory, or end what takes it"
        return warn("memory", found, mend)
    return ok("memory", found)


def _available_bytes() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(r"MemAvailable:\s+(\d+) kB", text)
    available = int(match[1]) * 1024 if match else None
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        left = int(limit.read_text()) - int(used.read_text())
    except (OSError, ValueError):  # no container, or "max"
        return available
    return left if available is None else min(available, left)


def check_open_files() -> Checked:
    """How many files the process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{'unlimited' if soft == resource.RLIM_INFINITY else soft} open files allowed"
    if soft != resource.RLIM_INFINITY and soft < FILES_MINIMUM:
        return warn("open files", found, f"ulimit -n {FILES_MINIMUM if hard >= FILES_MINIMUM or hard < 0 else hard}")
    return ok("open files", found)


def check_ports() -> Checked:
    """Whether a port can be opened on loopback and reached: live records go to Spark's workers that way."""
    try:
        with socket.socket() as listener, socket.socket() as caller:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            caller.settimeout(2)
            caller.connect(listener.getsockname())
    except OSError as error:
        return fail("ports", f"127.0.0.1: {error}", "allow connections to 127.0.0.1; Spark reads live records there")
    return ok("ports", "127.0.0.1 can be listened on and reached")


def check_clock() -> Checked:
    """Whether wall time is set and goes at the pace of time."""
    clock = SystemClock()
    before, began = clock.now_micros(), clock.monotonic_seconds()
    while clock.monotonic_seconds() - began < 0.01:
        pass
    passed = clock.now_micros() - before
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(before / 1e6))
    if before < CLOCK_MINIMUM_MICROS:
        return fail("clock", f"{shown}: it was never set", "set the clock (chrony, systemd-timesyncd)")
    if not 0 < passed < 1_000_000:
        return warn(
            "clock", f"{shown}: it jumped by {passed / 1e6:.3f} s just now", "let the clock be slewed, not stepped"
        )
    return ok("clock", shown)
