"""A process that holds a file alone: appends numbers for as long as it may, and says on stdout what became of each."""

from __future__ import annotations

import sys

import millpond
from millpond.errors import MillpondError

url, name, lease = sys.argv[1:4]
with millpond.connect(url) as pond:
    file = pond.open_file(name, "a", exclusive=True, lease=lease)
    print("holding", flush=True)
    for line in sys.stdin:
        try:
            file.append(line.rstrip("\n").encode())
            print("appended", flush=True)
        except MillpondError as error:
            print(error.code, flush=True)
