"""A k-d tree over four dimensions that learnt from queries, against one that takes its dimensions in turn.

Queries are about places: a square around a meter, some of them with a time or a temperature that restricts little. They
are asked, and so are on record; the analysis fits the tree anew and the settled objects are rewritten. Then other
queries of the same kind are put to both.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np

import millpond
from benchmarks.figures import report, talk, timed
from benchmarks.neighbourhoods import squares, told
from benchmarks.skipping import PLACE, READINGS, laid_out, new_pond, read_for
from millpond.model.predicate import And, Compare, Predicate

DIMENSIONS = (*PLACE, "date", "temp")
BUCKETS = 128
KM = 10.0
RECORDED, ASKED = 60, 2_000


def history() -> bool:
    """Bytes that the tree with a history reads ÷ those of the tree without one."""
    asked = workload()
    with new_pond() as pond:
        in_turn = millpond.KdTree(*DIMENSIONS, buckets=BUCKETS, split="round_robin")
        stream = laid_out(pond, "four", in_turn)
        theirs, theirs_objects = read_for(stream, asked[RECORDED:])
        for predicate in asked[:RECORDED]:
            stream.count(predicate)
        pond.alter_stream(stream.name, layout=millpond.KdTree(*DIMENSIONS, buckets=BUCKETS))
        # The readings are of long ago, by the clock of the machine.
        analysis = stream.analyse(period="3650d")
        talk(f"analysis: {analysis}")
        talk(f"laid out anew in {timed(lambda: stream.relayout(object_bytes_min='0B')):.0f} s")
        assert stream.count() == len(READINGS)
        ours, ours_objects = read_for(stream, asked[RECORDED:])
        index = stream.snapshot().settled.objects
    return report(
        "four dimensions, queries about two: bytes read, k-d tree by history ÷ in turn",
        ours,
        theirs,
        "<= 0.5",
        "bytes",
        rows=len(READINGS),
        in_turn_objects_read_per_query=round(theirs_objects / ASKED, 2),
        recorded=RECORDED,
        **told(ours_objects, ASKED, index.sizes),
    )


def workload(seed: int = 5) -> list[Predicate]:
    """Squares around meters from all over the map; half of them of most of the time, a fifth where it is not warm."""
    random = np.random.default_rng(seed)
    places = squares(READINGS, KM).predicates
    chosen = random.choice(len(places), RECORDED + ASKED, replace=len(places) < RECORDED + ASKED)
    found: list[Predicate] = []
    for at in chosen.tolist():
        terms: list[Predicate] = [places[at]]
        if random.random() < 0.5:
            since = READINGS.start + timedelta(hours=float(random.uniform(0, 0.4)) * READINGS.moments)
            terms.append(Compare(">=", "date", since))
        if random.random() < 0.2:
            terms.append(Compare("<=", "temp", float(random.uniform(8, 14))))
        found.append(And(tuple(terms)))
    return found
