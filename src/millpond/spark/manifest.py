"""Directories of files that Spark wrote, in which a file counts only if a manifest names it.

    out/part-00000-….csv                        written once, to its final name
    out/_millpond/00000000000000000000.json     a commit: which files it added, how long each is, of which format

A commit is the next manifest. It is written aside, synced, and given its name by a link, which fails if the name is
taken: so a manifest is there whole or not at all, and of two writers each gets a number of its own. The data set is
what all manifests together name, whatever else lies in the directory.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from millpond.errors import Damaged, InvalidValue
from millpond.storage import LocalStorage

DIRECTORY = "_millpond"
_NAME = re.compile(r"\d{20}\.json\Z")


class NamedFile(msgspec.Struct, frozen=True):
    """A file of a data set; its path is below the data set's directory."""

    path: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """One commit. `options`: those that the files were written with; `schema`: of the frame, in Spark's JSON."""

    format: str
    schema: str
    files: tuple[NamedFile, ...]
    options: dict[str, str] = {}
    partitioned_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSet:
    """A directory, as its manifests say it is."""

    root: str
    manifests: Sequence[Manifest]

    @property
    def paths(self) -> list[str]:
        """Every file, each of which is there with the length that was committed."""
        found = []
        for file in (file for manifest in self.manifests for file in manifest.files):
            path = os.path.join(self.root, file.path)
            if not os.path.exists(path) or os.path.getsize(path) != file.bytes:
                raise Damaged(f"{path} is not there with {file.bytes} bytes", hint="restore it from a backup")
            found.append(path)
        return found


def read_data_set(root: str) -> DataSet:
    """The data set in a directory; without manifests it is empty."""
    directory, storage = os.path.join(root, DIRECTORY), LocalStorage()
    names = sorted(name for name in storage.list(directory) if _NAME.match(name))
    manifests = []
    for name in names:
        try:
            manifests.append(msgspec.json.decode(storage.read(os.path.join(directory, name)), type=Manifest))
        except msgspec.MsgspecError as error:
            raise Damaged(f"{directory}/{name}: {error}", hint="restore it from a backup") from error
    return DataSet(root, manifests)


def check_alike(known: DataSet, fresh: Manifest) -> None:
    """`InvalidValue` unless more files of this kind may join those that are there."""
    for manifest in known.manifests[-1:]:
        for what, there, wanted in (
            ("format", manifest.format, fresh.format),
            ("columns", manifest.schema, fresh.schema),
            ("options", manifest.options, fresh.options),
            ("partitioning", manifest.partitioned_by, fresh.partitioned_by),
        ):
            if there != wanted:
                raise InvalidValue(
                    f"{known.root} holds files of other {what}: {there}, not {wanted}",
                    hint="write to a directory of its own",
                )


def commit(root: str, manifest: Manifest) -> int:
    """Make the files of a manifest part of the data set, durably; the number of the commit."""
    storage, directory = LocalStorage(), os.path.join(root, DIRECTORY)
    storage.make_directory(directory)
    aside = os.path.join(directory, f".{secrets.token_hex(8)}")
    storage.put(aside, msgspec.json.encode(manifest))
    try:
        number = sum(1 for name in storage.list(directory) if _NAME.match(name))
        while True:
            try:
                os.link(aside, os.path.join(directory, f"{number:020d}.json"))
                break
            except FileExistsError:
                number += 1
        storage.sync_directory(directory)
    finally:
        storage.remove(aside)
    return number


def reported_files(text: str) -> tuple[NamedFile, ...]:
    """What `java/OneCommit.java` reports."""
    parts = text.split("\0")[:-1]
    return tuple(NamedFile(path, int(size)) for path, size in zip(parts[::2], parts[1::2], strict=True))


def checked_options(given: Mapping[str, str]) -> dict[str, str]:
    """Options for Spark's own format, by lower case names: the same whoever writes them."""
    return {name.lower(): value for name, value in sorted(given.items())}
