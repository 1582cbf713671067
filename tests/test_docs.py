"""The docs are held to the code: their Python runs, their links lead somewhere, their tables are those of the code, and
each promise in `guarantees.md` names a test that is there."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import millpond
from docs import generate
from millpond.settings import settings_table

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [path for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if path.exists()]

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
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


@pytest.mark.parametrize("page", pages_with_code())
def test_the_python_on_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Blocks of a page share their names, as a reader would type them one after the other."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "docs"}
    if needs_spark(page):
        names["spark"] = request.getfixturevalue("spark")
    try:
        for line, block in blocks_of(page):
            # Blank lines in front, so that a traceback names the line of the page.
            exec(compile("\n" * (line - 1) + block, str(page), "exec"), names)
    finally:
        for left in names.values():
            if isinstance(left, millpond.Pond):
                left.close()


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
    inner = {"served_streams", "on_change", "live", "door", "redefine", "halves", "settling", "archive", "log"}
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


# Guarantees.


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def is_a_test(proof: str) -> bool:
    """Whether `file::test` or `file::class::test` is there; a class may have the test from a contract suite."""
    path, *names = proof.split("::")
    if not (ROOT / path).exists() or not names[-1].startswith("test_"):
        return False
    if len(names) == 1:
        return names[0] in functions_in(path)
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
