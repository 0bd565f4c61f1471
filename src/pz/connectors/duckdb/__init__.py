"""A DuckDB database file as source and as sink."""
