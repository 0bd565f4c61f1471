"""Record batches on their way into a DuckDB table."""

from __future__ import annotations

from collections.abc import Sequence

from pz.connectors.contract import Column
from pz.sqltext import quote

__all__ = ["casts"]


def casts(columns: Sequence[Column] | None) -> str:
    """A SELECT list that gives incoming columns their staged types: Arrow does not carry all of them (enums, json)."""
    if columns is None:
        return "*"
    return ", ".join(f"CAST({quote(column.name)} AS {column.type}) AS {quote(column.name)}" for column in columns)
