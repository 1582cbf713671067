"""What a data set is, as its file `dataset.json` says: where its files are, how they are read, and what is indexed.

The file is one JSON object around the definition, with a checksum of it:

    {"crc32": 1234567890, "dataset": "{\"format\": 1, \"id\": \"5f0c91d2\", \"name\": \"weather\", …}"}

How files are read decides what rows they hold. So everything that has a say in it is here: the schema in Spark's JSON
(inferred once, then kept), every option, the time zone among them, and those settings of the session that bear on
reading (`reading`). An index made under one reading says nothing about another.
"""

from __future__ import annotations

import msgspec

from millpond.archive.checksums import checksum
from millpond.archive.index.entries import IndexFile
from millpond.errors import Damaged, FormatTooNew
from millpond.model.spec import PlainSpec, Spec, spec_of

FORMAT = 1
FORMATS = ("csv", "json", "parquet", "orc", "text")


class EntriesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of entries, and the checksum of it."""

    name: str
    crc32: int

    @property
    def index_file(self) -> IndexFile:
        return IndexFile(self.name, self.crc32)


class DatasetDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Immutable. `version` counts the changes of it and of its entries."""

    format: int = FORMAT
    id: str
    name: str
    path: str
    """A directory, a file or a pattern, absolute, or a URL."""
    files: str
    """The format of the files: one of `FORMATS`."""
    options: dict[str, str]
    schema: str
    """The columns in the files, in Spark's JSON."""
    partitions: str
    """The columns in the names of directories, in Spark's JSON."""
    typed: tuple[str, ...] = ()
    """Those of them whose types were given. The others' are what Spark infers of the names that are there."""
    reading: dict[str, str]
    indexes: tuple[PlainSpec, ...]
    created_micros: int
    version: int = 0
    indexed_micros: int = 0
    entries: tuple[EntriesFile, ...] = ()

    @property
    def specs(self) -> tuple[Spec, ...]:
        return tuple(map(spec_of, self.indexes))

    @property
    def directory(self) -> str:
        """Readable by its name, unique by its id."""
        return f"{self.name.replace('/', '.')}-{self.id}"

    @property
    def drops_rows(self) -> bool:
        """Whether rows that cannot be parsed are left out. Then which rows there are depends on the columns read."""
        mode = next((value for name, value in self.options.items() if name.lower() == "mode"), "")
        return mode.upper() == "DROPMALFORMED"


class _OnDisk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    crc32: int
    dataset: str


class _Version(msgspec.Struct, frozen=True):
    format: int


def encode_dataset(definition: DatasetDefinition) -> bytes:
    text = msgspec.json.encode(definition)
    return msgspec.json.format(msgspec.json.encode(_OnDisk(checksum(text), text.decode())))


def decode_dataset(data: bytes, path: str) -> DatasetDefinition:
    """`Damaged` if it is not what was written."""
    try:
        outer = msgspec.json.decode(data, type=_OnDisk)
        text = outer.dataset.encode()
        if checksum(text) != outer.crc32:
            raise Damaged(f"{path}: checksum mismatch", hint=_HINT)
        written = msgspec.json.decode(text, type=_Version).format
        if written > FORMAT:
            raise FormatTooNew(
                f"{path} says format {written}; this Millpond knows up to {FORMAT}",
                hint="open the pond with the version of Millpond that wrote it, or a newer one",
            )
        return msgspec.json.decode(text, type=DatasetDefinition)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Damaged(f"{path} cannot be read: {error}", hint=_HINT) from None


_HINT = "the files themselves are as they were: remove this directory and index them again"
