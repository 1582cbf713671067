"""The text of a WHERE clause, in Spark's SQL, as a predicate."""

from millpond.query.sql.where import SQL_BYTES_MAX, parse_where

__all__ = ["SQL_BYTES_MAX", "parse_where"]
