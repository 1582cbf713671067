"""Index kinds that are installed with other packages are found by name, and by nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KIND = """
import pyarrow as pa
from millpond import Values

class Cities(Values):
    name = "cities"

class Wrong:
    name = "wrong"
"""
PROGRAM = """
import millpond, pyarrow as pa, sys
schema = pa.schema([("city", pa.string())])
with millpond.open(sys.argv[1], background=False) as pond:
    stream = pond.create_stream("s", schema, indexes=["cities:city"])
    stream.append([{"city": "a"}, {"city": "z"}])
    stream.settle()
    assert stream.explain("city = 'm'").objects_read == 0
    for name, message in (("wrong", "no index kind called 'wrong'"), ("broken", "no_such_module"), ("os", "known are")):
        try:
            pond.create_stream("t", schema, indexes=[f"{name}:city"])
        except Exception as error:
            assert message in str(error), error
        else:
            raise AssertionError(name)
with millpond.open(sys.argv[1], background=False) as pond:
    assert pond.stream("s").archive.snapshot().warnings == ()
    assert pond.stream("s").explain("city = 'm'").objects_read == 0
print("well")
"""


def test_a_kind_of_another_package_is_an_entry_point(tmp_path: Path) -> None:
    (tmp_path / "village.py").write_text(KIND)
    info = tmp_path / "village-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: village\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[millpond.indexes]\ncities = village:Cities\nwrong = village:Wrong\nbroken = no_such_module:Kind\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "pond")], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "well\n", done.stderr
