"""The slice of an incremental read: as a SQL condition, for every connector that reads through DuckDB, and without its cursor."""

from __future__ import annotations

from collections.abc import Iterable

from pz.connectors.closest import did_you_mean
from pz.connectors.contract import DatasetSpec, ReadHints
from pz.cursors import CursorType, literal
from pz.errors import Code, PermanentError
from pz.sqltext import quote

__all__ = ["absent_cursor", "shaped", "slice_condition"]


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


def absent_cursor(subject: str, cursor: str, known: Iterable[str]) -> PermanentError:
    """The refusal of a cursor that is none of the columns of the source."""
    names = list(known)
    hint = did_you_mean(cursor, names) or f"its columns: {', '.join(names)}"
    return PermanentError(f"{subject} has no column {quote(cursor)}, the cursor", code=Code.PZ0505, hint=hint)


def shaped(inner: str, dataset: DatasetSpec, hints: ReadHints) -> str:
    """A relation with the slice, the pushed filter and the wanted columns applied; itself where there are none."""
    conditions = [condition for condition in (slice_condition(dataset), hints.predicate) if condition]
    if not conditions and hints.columns is None:
        return inner
    wanted = "*" if hints.columns is None else ", ".join(quote(name) for name in hints.columns)
    where = " AND ".join(f"({condition})" for condition in conditions)
    return f"(SELECT {wanted} FROM {inner}{f' WHERE {where}' if where else ''})"
