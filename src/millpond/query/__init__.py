"""Reading without Spark: one stream's live and settled halves as one, by scan, by key, by place and by time.

`Halves` joins the two; the verbs are functions over it. Nothing here writes.
"""

from millpond.query.halves import Halves
from millpond.query.listing import SegmentListing, read_segment, segments
from millpond.query.lookup import get
from millpond.query.merged import check_within, read_merged
from millpond.query.meter import ReadMeter
from millpond.query.object_map import ObjectMap
from millpond.query.positions import Start, parse_start
from millpond.query.reader import StreamReader, read
from millpond.query.scan import QueryReport, count, draw, open_scan, plan, scan, scan_batches
from millpond.query.snapshot import Snapshot
from millpond.query.terms import Where
from millpond.query.values import parse_value

__all__ = [
    "Halves",
    "Snapshot",
    "Start",
    "parse_start",
    "Where",
    "read",
    "read_merged",
    "check_within",
    "StreamReader",
    "ReadMeter",
    "scan",
    "scan_batches",
    "open_scan",
    "count",
    "plan",
    "QueryReport",
    "draw",
    "ObjectMap",
    "get",
    "parse_value",
    "segments",
    "read_segment",
    "SegmentListing",
]
