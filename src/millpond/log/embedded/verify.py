"""Checking the journal on disk: every frame of every file, and that live offsets are all there and dense."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from millpond.errors import MillpondError
from millpond.log.embedded import journal_file
from millpond.log.embedded.journal import JournalFile
from millpond.log.live import LiveStream
from millpond.model.findings import Finding
from millpond.model.offsets import OffsetRange
from millpond.storage import Storage

Progress = Callable[[int, int], None]


def verify_journal(
    storage: Storage,
    listed: Callable[[], Sequence[JournalFile]],
    pond_id: bytes,
    torn: Sequence[str],
    progress: Progress,
) -> Iterator[Finding]:
    """Read every file again, up to where it is written. `listed` gives the files of the moment: one that was let go of
    meanwhile is no loss."""
    files = listed()
    total, done = sum(file.bytes for file in files), 0
    for index, file in enumerate(files):
        name = os.path.join("journal", os.path.basename(file.path))
        size = file.bytes
        try:
            data = memoryview(storage.map(file.path))[:size]
            found = journal_file.scan(data, file.path, file.number, pond_id, last=index == len(files) - 1)
            if len(data) < size or found.torn_bytes:
                yield Finding("error", name, f"readable up to byte {found.good_end} of {size}", journal_file.RESTORE)
        except FileNotFoundError:
            if any(each is file for each in listed()):
                yield Finding("error", name, "the file is gone", journal_file.RESTORE)
        except MillpondError as error:
            yield Finding("error", name, error.message, error.hint)
        done += size
        progress(done, total)
    for path in torn:
        name = os.path.join("journal", os.path.basename(path))
        hint = "a write that a crash cut short leaves this, and none of it was acknowledged at `disk`; remove it if so"
        yield Finding("warning", name, "a torn tail that was cut off when the pond was opened", hint)


def verify_streams(streams: Mapping[int, LiveStream]) -> Iterator[Finding]:
    """Read every live record once, and count."""
    for stream in streams.values():
        generation, heads = stream.standing()
        for streamlet, stop in heads.items():
            found = _verify_streamlet(stream, generation, streamlet, stop)
            if found is not None:
                yield found


def _verify_streamlet(stream: LiveStream, generation: int, streamlet: int, stop: int) -> Finding | None:
    """What is wrong with the live records up to `stop`. If some are released meanwhile, the rest is looked at anew; if
    the stream is truncated, there is nothing left to look at."""
    while (start := stream.starts()[streamlet]) < stop:
        offsets = OffsetRange(start, stop)
        message, hint = "", "close the pond and open it again; if it stays, restore the journal from a copy"
        try:
            reached = _read_up_to(stream, generation, streamlet, offsets)
            if reached == stop:
                return None
            message = f"live records stop at offset {reached} of {offsets}"
        except MillpondError as error:
            message, hint = error.message, error.hint
        if stream.standing().generation != generation:
            return None
        if stream.starts()[streamlet] == start:
            return Finding("error", f"{stream.definition.name}, streamlet {streamlet}", message, hint)
    return None


def _read_up_to(stream: LiveStream, generation: int, streamlet: int, offsets: OffsetRange) -> int:
    """How far the records of a range are there, one after the other."""
    expected = offsets.start
    for batch in stream.read(streamlet, offsets, ["_offset"], None, False, generation):
        column = batch.column(0)
        if column[0].as_py() != expected or column[-1].as_py() != expected + len(column) - 1:
            break
        expected += len(column)
    return expected
