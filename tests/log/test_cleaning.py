"""Letting go of journal files: nothing that is live goes with them, whatever happens meanwhile."""

from __future__ import annotations

import threading

from tests.log.conftest import Pool, append, definition, files, numbers


def test_a_stream_made_while_a_cleaning_waits_keeps_its_records(pool: Pool) -> None:
    """I1: a cleaning judges files by the streams of the moment, not by those of when it was asked for."""
    log = pool()
    append(log, 0)
    with log._cleaner._one_at_a_time:
        waiting = threading.Thread(target=log.release, args=(20, {0: 500}))
        waiting.start()
        while log.starts(20) != {0: 500}:
            waiting.join(0.001)
        log.add_stream(definition(21))
        for start in range(0, 5_000, 500):
            append(log, start, stream_id=21)
        assert len(files(pool)) > 1
    waiting.join()
    log.close()
    again = pool(streams=[(definition(20), {0: 500}), (definition(21), {})])
    assert numbers(again, 0, 5_000, 21) == list(range(5_000))
