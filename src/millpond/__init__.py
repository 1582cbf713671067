"""Millpond: streams come in, are held, and settle into an open table; Spark SQL sees both as one."""
