"""Reading small results whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["first_row"]


def first_row(result: DuckDBPyConnection) -> tuple[Any, ...] | None:
    """The first row of a small result, which is read to its end.

    `fetchone` leaves a result open, and DuckDB 2 then refuses the connection's next `register`.
    """
    rows = result.fetchall()
    return rows[0] if rows else None
