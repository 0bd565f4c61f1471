"""The slice of an incremental read as a SQL condition, for every connector that reads through DuckDB."""

from __future__ import annotations

from pz.connectors.contract import DatasetSpec, ReadHints
from pz.cursors import CursorType, literal
from pz.sqltext import quote

__all__ = ["shaped", "slice_condition"]


def slice_condition(dataset: DatasetSpec) -> str | None:
    """The bounds of the slice as one condition; None when there are none.

    Rows without a cursor value stay in: what becomes of them is the engine's decision.
    """
    if dataset.cursor is None or dataset.cursor_type is None:
        return None
    column, type_ = quote(dataset.cursor), CursorType(dataset.cursor_type)
    parts = []
    if dataset.lower is not None:
        parts.append(f"{column} {'>=' if dataset.lower.inclusive else '>'} {literal(dataset.lower.value, type_)}")
    if dataset.upper is not None:
        parts.append(f"{column} {'<=' if dataset.upper.inclusive else '<'} {literal(dataset.upper.value, type_)}")
    return f"{column} IS NULL OR ({' AND '.join(parts)})" if parts else None


def shaped(inner: str, dataset: DatasetSpec, hints: ReadHints) -> str:
    """A relation with the slice, the pushed filter and the wanted columns applied; itself where there are none."""
    conditions = [condition for condition in (slice_condition(dataset), hints.predicate) if condition]
    if not conditions and hints.columns is None:
        return inner
    wanted = "*" if hints.columns is None else ", ".join(quote(name) for name in hints.columns)
    where = " AND ".join(f"({condition})" for condition in conditions)
    return f"(SELECT {wanted} FROM {inner}{f' WHERE {where}' if where else ''})"
