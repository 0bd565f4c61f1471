"""Moves of data by pz, measured against the best that plain DuckDB does for the same move. Run with `make bench`."""
