"""Pure values: names, schemas, offsets, boundaries, predicates, durations and sizes. No I/O, no threads."""
