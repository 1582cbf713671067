"""Files: a stream of raw events read and written as bytes by position.

A file is a raw stream of one streamlet. Each append is one or several events whose headers say which bytes they hold
(`position` to `end`), so that a place is found by a binary search over offsets that never looks at a body. The events
are ordinary records: they are acknowledged, settled, queried and dropped as those of any stream.
"""

from __future__ import annotations

from millpond.files.byte_file import ByteFile
from millpond.files.opening import WithFiles
from millpond.files.protocol import FileDesk, FileEnd, FileLock, FilePlace
from millpond.files.reading import FileReader
from millpond.files.writing import FileWriter

__all__ = [
    "ByteFile",
    "FileDesk",
    "FileEnd",
    "FileLock",
    "FilePlace",
    "FileReader",
    "FileWriter",
    "WithFiles",
]
