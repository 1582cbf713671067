"""How files are opened, listed and deleted: the same words for a pond in this process and for one that is served.

A mode says what comes of it: `"r"` a reader, `"a"` and `"x"` a writer. Bytes always; text is `io.TextIOWrapper` around
it.
"""

from __future__ import annotations

import abc
import contextlib
from typing import Any, Literal, overload

from millpond.errors import InvalidValue, StreamExists, StreamNotFound
from millpond.files.protocol import FileDesk
from millpond.files.reading import FileReader
from millpond.files.writing import FileWriter
from millpond.model.definition import Durability
from millpond.model.units import Duration, parse_seconds


class WithFiles(abc.ABC):
    """What a pond has for files. The pond says where a file is asked about, and makes and drops streams."""

    @abc.abstractmethod
    def _file_desk(self, name: str, lease_seconds: float) -> FileDesk:
        """Of the file of that name; `StreamNotFound` or `NotAFile` otherwise."""

    @abc.abstractmethod
    def _file_names(self) -> list[str]: ...

    @abc.abstractmethod
    def create_stream(self, name: str, *, durability: Durability = "disk", file: bool = False) -> Any: ...

    @abc.abstractmethod
    def drop_stream(self, name: str) -> None: ...

    @overload
    def open_file(self, name: str, mode: Literal["r", "rb"] = "r", *, follow: bool = False) -> FileReader: ...

    @overload
    def open_file(
        self,
        name: str,
        mode: Literal["a", "ab", "x", "xb"],
        *,
        exclusive: bool = False,
        lease: Duration = "10s",
        durability: Durability = "disk",
    ) -> FileWriter: ...

    def open_file(
        self,
        name: str,
        mode: str = "r",
        *,
        exclusive: bool = False,
        lease: Duration = "10s",
        follow: bool = False,
        durability: Durability = "disk",
    ) -> FileReader | FileWriter:
        """Open a file: `"r"` reads, `"a"` appends and makes it if it is not there, `"x"` makes a new one. Bytes always.

        Every append is all or nothing, and safe when it returns. `exclusive`: hold it alone, until it is closed or its
        holder is gone; a served pond keeps the lock for `lease` after each sign of life. `follow`: at the end, a read
        waits for more. `durability`: of a file that is made here.
        """
        lease_seconds = parse_seconds(lease)
        match mode:
            case "r" | "rb":
                if exclusive:
                    raise InvalidValue("a file that is read is held by nobody", hint="exclusive is for writers")
                return FileReader(self._file_desk(name, lease_seconds), follow=follow)
            case "a" | "ab" | "x" | "xb":
                if follow:
                    raise InvalidValue("a file that is appended to is not followed", hint='open it again with "r"')
                if mode.startswith("x"):
                    self.create_stream(name, durability=durability, file=True)
                return FileWriter(self._found_or_made(name, lease_seconds, durability), exclusive=exclusive)
        raise InvalidValue(f"no mode {mode!r} for a file", hint='"r" reads, "a" appends, "x" makes one and appends')

    def _found_or_made(self, name: str, lease_seconds: float, durability: Durability) -> FileDesk:
        try:
            return self._file_desk(name, lease_seconds)
        except StreamNotFound:
            with contextlib.suppress(StreamExists):  # another one was quicker
                self.create_stream(name, durability=durability, file=True)
            return self._file_desk(name, lease_seconds)

    def files(self, prefix: str = "") -> list[str]:
        """The names of the files, those that begin with `prefix`."""
        return [name for name in self._file_names() if name.startswith(prefix)]

    def delete_file(self, name: str) -> None:
        """Delete a file, whoever has it open, as `drop_stream` drops a stream; `NotAFile` if it is one of records."""
        self._file_desk(name, 0.0)
        self.drop_stream(name)
