"""The settled half of a stream: Parquet objects, their index, and the Delta table that says which of them count."""
