"""A pond for others: the REST door, what a server may be told, and what it lets in."""
