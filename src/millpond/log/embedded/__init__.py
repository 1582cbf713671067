"""The log of one machine: a journal that all streams share, and segments in memory."""
