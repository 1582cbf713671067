"""The command line: parse, call the pond, print. It has no rules of its own.

Every command is a function in a module named after what it does; `shell` runs it, `session` opens the pond it is
about, `output` is the only place that prints. Whatever is slow to import (pyarrow, Spark, matplotlib) is imported by
the function that needs it, so that `millpond --help` answers at once.
"""
