"""The docs are held to the code: their Python runs, their links lead somewhere, their tables are those of the code, and
each promise in `guarantees.md` names a test that is there."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from docs import generate
from millpond.client.pond import RemotePond
from millpond.log.engine import LogStatus
from millpond.settings import settings_table
from millpond.storage import LocalStorage
from millpond.testing import Crash, FaultyStorage, ManualClock, Variant
from millpond.wire.status import PondStatus, SettleState, StreamStatus
from tests.serving import Served, serving

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [path for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if path.exists()]

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What an example asks of a server by the ports that it has unless told otherwise.
SERVER = re.compile(r":707[01]\b")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
# A test as guarantees.md names it: file::test, or file::class::test.
PROOF = re.compile(r"`((?:tests/[\w/]+\.py)::[\w:]+)`")
# Parts of the specification (K6) and invariants (I3).
ID = re.compile(r"\b([KCSFOEBI]\d{1,2})\b")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[tuple[int, str]]:
    """The Python on a page, each block with the number of its first line."""
    text = page.read_text()
    return [(text.count("\n", 0, found.start(1)) + 1, found[1]) for found in BLOCK.finditer(text)]


def needs_spark(page: Path) -> bool:
    return any("spark" in line.split("#")[0] for _, block in blocks_of(page) for line in block.splitlines())


def pages_with_code() -> list[Any]:
    found = []
    for page in PAGES:
        if blocks_of(page):
            marks = [pytest.mark.spark] if needs_spark(page) else []
            found.append(pytest.param(page, id=name_of(page), marks=marks))
    return found


@dataclass
class ReadmeServer:
    """The server that the README starts, on ports of its own, with what its shell commands have put there."""

    served: Served

    def addressed(self, text: str) -> str:
        """A text of the README with the ports of this server."""
        return text.replace(":7070", f":{self.served.rest_port}").replace(":7071", f":{self.served.flight_port}")

    def run(self) -> list[str]:
        """What the README's curl commands print."""
        block = next(block for block in SHELL.findall((ROOT / "README.md").read_text()) if "curl" in block)
        commands = [line for line in block.replace("\\\n", " ").splitlines() if line.startswith("curl ")]
        printed = []
        for command in commands:
            # A followed stream has no end of its own: curl itself is told when to stop.
            limit = (
                " --silent --show-error --max-time 3" if "follow=true" in command else " --silent --show-error --fail"
            )
            done = subprocess.run(
                ["bash", "-c", self.addressed(command).replace("curl ", f"curl{limit} ", 1)],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == (28 if "follow=true" in command else 0), done.stderr
            printed.append(done.stdout)
        return printed


@pytest.fixture(scope="module")
def readme_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadmeServer]:
    with serving(tmp_path_factory.mktemp("readme") / "pond") as served:
        found = ReadmeServer(served)
        created, acknowledged, page, followed = found.run()
        assert json.loads(created)["schema"] == "vid string, city string, temp double"
        assert json.loads(acknowledged)["durability"] == "disk"
        assert [record["vid"] for record in json.loads(page)["records"]] == ["m-17"]
        assert json.loads(followed)["vid"] == "m-17"
        yield found


def test_curl_alone_puts_and_gets_as_the_readme_says(readme_server: ReadmeServer) -> None:
    with readme_server.served.client() as client:
        assert client.get("/v1/streams/grid/meters/count").json()["count"] >= 1


# Whoever comes first starts Spark, which takes minutes where many run at once.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", pages_with_code())
def test_the_python_on_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Blocks of a page share their names, as a reader would type them one after the other."""
    monkeypatch.chdir(tmp_path)
    spark = request.getfixturevalue("spark") if needs_spark(page) else None
    names: dict[str, Any] = {"__name__": "docs"}
    try:
        for line, block in blocks_of(page):
            if SERVER.search(block):
                block = request.getfixturevalue("readme_server").addressed(block)
            # Blank lines in front, so that a traceback names the line of the page.
            exec(compile("\n" * (line - 1) + block, str(page), "exec"), names)
    finally:
        for left in names.values():
            if isinstance(left, millpond.Pond | RemotePond):
                left.close()
        if spark is not None:
            for view in [table.name for table in spark.catalog.listTables() if table.isTemporary]:
                spark.catalog.dropTempView(view)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", [page for page in PAGES if generate.parts_of(page.read_text())], ids=name_of)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    before = page.read_text()
    assert generate.rendered(before) == before, "run: python docs/generate.py"


def test_every_generated_part_is_on_a_page() -> None:
    shown = [part for page in PAGES for part in generate.parts_of(page.read_text())]
    assert sorted(shown) == sorted(generate.PARTS)


def test_every_public_name_is_explained() -> None:
    text = (DOCS / "python.md").read_text() + (DOCS / "spark.md").read_text()
    missing = [name for name in millpond.__all__ if not re.search(rf"`(millpond\.)?{name}\b", text)]
    assert not missing


@pytest.mark.parametrize(
    "kind", [millpond.Pond, millpond.Stream, millpond.StreamReader], ids=lambda kind: kind.__name__
)
def test_every_method_that_users_call_is_explained(kind: type) -> None:
    text = (DOCS / "python.md").read_text() + (DOCS / "spark.md").read_text()
    inner = {
        "served_streams",
        "group_desk",
        "prepare",
        "on_change",
        "live",
        "door",
        "redefine",
        "halves",
        "settling",
        "archive",
        "log",
        "pond_id",
    }
    inner |= {"submit", "submit_json", "submit_batch", "note_query", "relayouting"}  # for doors, which cannot wait
    methods = [name for name in vars(kind) if not name.startswith("_") and name not in inner]
    assert not [name for name in methods if not re.search(rf"\b{name}\b", text)]


def test_every_setting_is_documented() -> None:
    text = (DOCS / "settings.md").read_text()
    assert not [name for name, _, _ in settings_table() if f"`{name}`" not in text]


def test_every_error_code_is_documented() -> None:
    pages = {name: (DOCS / name).read_text() for name in ("python.md", "operate.md")}
    codes = [each.code for each in generate.error_classes()]
    assert len(set(codes)) == len(codes)
    assert not [code for code in codes if f"`{code}`" not in pages["python.md"]]
    # What an operator has to look at has a cure on the page for operators.
    for_operators = [
        each.code
        for base in (millpond.errors.Backpressure, millpond.errors.Unavailable, millpond.errors.Damaged)
        for each in generate.error_classes(base)
        if not each.__subclasses__()
    ]
    assert not [code for code in [*for_operators, "format-too-new"] if f"`{code}`" not in pages["operate.md"]]


@pytest.mark.parametrize("kind", [PondStatus, StreamStatus, SettleState, LogStatus])
def test_every_figure_of_a_status_is_explained(kind: type) -> None:
    text = (DOCS / "operate.md").read_text()
    assert not [each.name for each in fields(kind) if f"`{each.name}`" not in text]


# Guarantees.


@cache
def names_of_tests(path: str) -> frozenset[str]:
    """Functions, and state machines: classes that are a test each."""
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    machines = {
        node.name for node in classes if any(isinstance(b, ast.Attribute) and b.attr == "TestCase" for b in node.bases)
    }
    return frozenset(functions | machines)


def is_a_test(proof: str) -> bool:
    """Whether `file::test` or `file::class::test` is there; a class may have the test from a contract suite."""
    path, *names = proof.split("::")
    if not (ROOT / path).exists():
        return False
    if len(names) == 1:
        return names[0] in names_of_tests(path)
    if not names[-1].startswith("test_"):
        return False
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    return hasattr(getattr(module, names[0], None), names[1])


def guarantee_rows() -> list[str]:
    """The rows of the tables in guarantees.md whose last column is the proof."""
    rows: list[str] = []
    proven = False
    for line in (DOCS / "guarantees.md").read_text().splitlines():
        if not line.startswith("|"):
            proven = False
        elif line.rstrip().endswith("| proof |"):
            proven = True
        elif proven and not re.fullmatch(r"\|[-:|]+", line):
            rows.append(line)
    return rows


def test_every_guarantee_names_a_test_that_is_there() -> None:
    rows = guarantee_rows()
    assert len(rows) > 20
    unproven = [row for row in rows if not PROOF.search(row.split("|")[-2])]
    assert not unproven, unproven
    lost = sorted({proof for proof in PROOF.findall((DOCS / "guarantees.md").read_text()) if not is_a_test(proof)})
    assert not lost, lost


def test_every_part_of_the_specification_that_is_promised_has_a_test() -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    suites = (ROOT / "src" / "millpond" / "testing").glob("*.py")
    proven = {found for path in (*tests, *suites) for found in ID.findall(path.read_text())}
    promised = set(ID.findall((DOCS / "guarantees.md").read_text()))
    assert promised
    assert not sorted(promised - proven)


# What guarantees.md says and no other test shows.

NUMBERS = pa.schema([("n", pa.int64())])


def test_a_clock_that_jumps_back_changes_stamps_and_nothing_else(pond_dir: Path) -> None:
    clock = ManualClock()
    with millpond.open(pond_dir, clock=clock, background=False) as pond:
        stream = pond.create_stream("numbers", NUMBERS, keys=["n"])
        stream.append({"n": 1})
        clock.set_wall(clock.now_micros() - 3_600_000_000)
        ack = stream.append({"n": 2})
        assert ack.ranges == {0: millpond.OffsetRange(1, 2)}
        stream.settle()
        stream.append({"n": 3})
        rows = [row for batch in stream.read() for row in batch.to_pylist()]
        assert [row["n"] for row in rows] == [1, 2, 3]
        assert [row["_offset"] for row in rows] == [0, 1, 2]
        assert rows[1]["_ingest_time"] < rows[0]["_ingest_time"]
    with millpond.open(pond_dir, clock=clock, background=False) as pond:
        assert pond.stream("numbers").append({"n": 4}).ranges == {0: millpond.OffsetRange(3, 4)}
        assert pond.verify().ok


def test_a_disk_ack_makes_everything_before_it_safe(tmp_path: Path) -> None:
    """I1: what was sent at a weaker durability before it, and sits under its offset, is on disk as well."""
    storage = FaultyStorage(LocalStorage(), root=tmp_path)
    pond = millpond.open(tmp_path / "pond", storage=storage, background=False, flush_seconds=3_600)
    stream = pond.create_stream("numbers", NUMBERS)
    for n, durability in enumerate(("memory", "os", "memory", "disk")):
        stream.append({"n": n}, durability=durability)  # type: ignore[arg-type]
    storage.power_cut(Variant.STRICT)
    with pytest.raises((Crash, millpond.MillpondError)):
        pond.close()
    with millpond.open(tmp_path / "pond", background=False) as pond:
        assert pond.stream("numbers").scan()["n"].to_pylist() == [0, 1, 2, 3]


def test_damage_to_the_very_last_group_after_a_crash_is_cut_and_kept_aside(tmp_path: Path) -> None:
    """The limit of I1 that guarantees.md names; the same damage in front of anything else stops the open."""
    for last in (True, False):
        root = tmp_path / f"last-{last}"
        storage = FaultyStorage(LocalStorage(), root=root.parent)
        pond = millpond.open(root, storage=storage, background=False)
        stream = pond.create_stream("numbers", NUMBERS)
        journal = root / "journal" / "000000000001.journal"
        stream.append({"n": 1})
        position = journal.stat().st_size
        stream.append({"n": 2})
        if not last:
            stream.append({"n": 3})
        storage.crash()
        with pytest.raises((Crash, millpond.MillpondError)):
            pond.close()
        damaged = bytearray(journal.read_bytes())
        damaged[position + 80] ^= 1
        journal.write_bytes(damaged)
        if last:
            with millpond.open(root, background=False) as pond:
                assert pond.stream("numbers").scan()["n"].to_pylist() == [1]
                assert "torn tail" in pond.status().warnings[0]
            assert journal.with_name(f"{journal.name}.torn-{position}").exists()
        else:
            with pytest.raises(millpond.errors.Damaged, match=str(position)):
                millpond.open(root)


def test_every_decision_is_listed() -> None:
    index = (DOCS / "adr" / "README.md").read_text()
    records = sorted(path.name for path in (DOCS / "adr").glob("[0-9]*.md"))
    assert records
    assert [name for name in records if f"({name})" not in index] == []
    numbers = [name.split("-")[0] for name in records]
    assert numbers == [f"{number:04d}" for number in range(1, len(records) + 1)]
    for name in records:
        text = (DOCS / "adr" / name).read_text()
        assert [part for part in ("## Context", "## Decision", "## Consequences") if part not in text] == [], name
