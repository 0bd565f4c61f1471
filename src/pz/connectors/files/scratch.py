"""A private DuckDB for looking at files and for writing batches: bounded, in UTC, gone when closed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pz.sqltext import literal

if TYPE_CHECKING:
    import duckdb

__all__ = ["open_scratch", "scratch"]

_MEMORY_LIMIT = "512MB"


def open_scratch(directory: Path | None = None, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory, or one in ``directory`` where rows spill to disk instead of filling memory."""
    import duckdb

    where = ":memory:" if directory is None else str(directory / "scratch.duckdb")
    connection = duckdb.connect(where, config={"memory_limit": _MEMORY_LIMIT})
    if threads is not None:
        connection.execute(f"SET threads = {threads:d}")
    spill = tempfile.gettempdir() if directory is None else str(directory / "spill")
    connection.execute(f"SET temp_directory = {literal(spill)}")  # else a folder in the working directory
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET arrow_lossless_conversion = true")  # else bit, timetz and 128-bit numbers change on the way
    return connection


@contextmanager
def scratch() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that lives as long as the block."""
    connection = open_scratch()
    try:
        yield connection
    finally:
        connection.close()
