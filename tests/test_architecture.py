"""The shape of the house, held by tests: direction of imports, homes of third parties, size and names of modules.

The contracts are in pyproject.toml under `tool.importlinter`; they see every import statement, also those inside
functions. What they cannot see is an import by name (`importlib.import_module`), so those are looked for here.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "millpond"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Past 400 lines a file is looked at for its second reason to exist; past this it has one.
LINES_MAX = 500

# Names that say nothing about what is inside, and so attract everything.
EMPTY_NAMES = {"util", "utils", "common", "helper", "helpers", "manager", "managers", "misc"}

# `attach`, `to_spark` and the generator's frame: where a lower room reaches up, lazily and by name.
REACHES_UP = {("", "spark"), ("pond", "spark"), ("client", "spark"), ("gridpocket", "spark")}


def linter_config() -> dict[str, Any]:
    config: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return config


def rooms_from_top() -> dict[str, int]:
    """Each room of the layers contract with its floor, counted from the top."""
    (contract,) = [c for c in linter_config()["contracts"] if c["type"] == "layers"]
    return {
        room.strip().strip("()"): floor for floor, layer in enumerate(contract["layers"]) for room in layer.split("|")
    }


def third_party_homes() -> dict[str, set[str]]:
    """Each third party that has a home, with the modules (or `package.**`) it may be imported from."""
    return {
        contract["forbidden_modules"][0]: {line.split(" -> ")[0] for line in contract["ignore_imports"]}
        for contract in linter_config()["contracts"]
        if contract["type"] == "forbidden"
    }


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """`millpond.log.embedded.journal` -> `log`; the package itself is ``""``."""
    return [*module.split("."), ""][1]


def imports_by_name(source: str) -> Iterator[str]:
    """The modules that code imports by a literal name: `import_module("x")`, `__import__("x")`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def test_rooms_import_only_what_is_below_them() -> None:
    lint = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_imports_by_name_keep_to_the_same_order() -> None:
    floors, homes = rooms_from_top(), third_party_homes()

    def may_import(module: str, name: str) -> bool:
        top, room, target = name.split(".")[0], room_of(module), room_of(name)
        if top in homes:
            packages = tuple(home.removesuffix("**") for home in homes[top] if home.endswith(".**"))
            return module in homes[top] or module.startswith(packages)
        if top != "millpond" or room in (target, "testing") or (room, target) in REACHES_UP:
            return True
        return target != "testing" and floors.get(room, -1) < floors.get(target, len(floors))

    wrong = [
        f"{dotted(path)} imports {name}"
        for path in MODULES
        for name in imports_by_name(path.read_text())
        if not may_import(dotted(path), name)
    ]
    assert not wrong, f"imports by name that the contracts would refuse as statements: {wrong}"


def test_no_module_is_longer_than_its_reason() -> None:
    lengths = {dotted(path): len(path.read_text().splitlines()) for path in MODULES}
    too_long = {module: lines for module, lines in lengths.items() if lines > LINES_MAX}
    assert not too_long, f"over {LINES_MAX} lines; split each by its second reason: {too_long}"


def test_every_module_is_named_for_what_it_does() -> None:
    nameless = [dotted(path) for path in MODULES if EMPTY_NAMES & set(dotted(path).split("."))]
    assert not nameless, f"names that say nothing: {nameless}"


def test_every_directory_of_modules_is_a_package() -> None:
    """A directory without `__init__.py` would be invisible to the contracts above."""
    lost = [str(path.relative_to(ROOT)) for path in MODULES if not (path.parent / "__init__.py").exists()]
    assert not lost, f"no __init__.py beside {lost}"


def test_importing_millpond_does_not_import_spark() -> None:
    code = "import sys, millpond; print(*sorted({'pyspark', 'py4j'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "", f"import millpond pulls in {run.stdout.strip()}"
