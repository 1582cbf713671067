"""Data sets of a pond that is served elsewhere: none. They are indexed and read where their pond is open.

An index is built and used by the Spark session that reads the files, and kept in the pond's directory; a node has
neither that session nor, as a rule, those files.
"""

from __future__ import annotations

from typing import Any, NoReturn

from millpond.errors import InvalidInput


class WithoutDatasets:
    """The methods of `millpond.Pond` that a connected pond refuses."""

    def index(self, path: Any, **_: Any) -> NoReturn:
        """Not on a connected pond."""
        raise _refused(f"index {path}")

    def dataset(self, name_or_path: Any) -> NoReturn:
        """Not on a connected pond."""
        raise _refused(f"open the data set {name_or_path}")

    def datasets(self) -> NoReturn:
        """Not on a connected pond."""
        raise _refused("list data sets")

    def drop_dataset(self, name: str) -> NoReturn:
        """Not on a connected pond."""
        raise _refused(f"drop the data set {name}")


def _refused(what: str) -> InvalidInput:
    return InvalidInput(
        f"a connected pond cannot {what}", hint="open a pond in the process that runs Spark: millpond.open(directory)"
    )
