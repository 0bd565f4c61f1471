"""The list of an `accepted_values` check in the type of its column.

YAML and the column need not agree: ``[1, 2]`` may be meant for text, ``['2024-01-01']`` for an instant. DuckDB would
cast the column to the list, and fail at its first row that does not fit.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from pz.project.model import CheckDecl
from pz.sqltext import literal
from pz.staging.results import first_row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["accepted_literals"]

_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_INTEGERS = frozenset(_SIGNED) | frozenset(f"U{name}" for name in _SIGNED)


def accepted_literals(cursor: DuckDBPyConnection, check: CheckDecl, type_name: str) -> tuple[str, ...]:
    """The accepted values as SQL of the column's type, without those that no value of that type can equal."""
    found = (_fitting(cursor, _spelled(value), type_name) for value in check.values)
    return tuple(value for value in found if value is not None)


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fitting(cursor: DuckDBPyConnection, text: str, type_name: str) -> str | None:
    row = first_row(cursor.execute(f"SELECT TRY_CAST({literal(text)} AS {type_name})::VARCHAR"))
    cast = row[0] if row else None
    if cast is None:
        return None
    if type_name in _INTEGERS:
        return str(cast) if _kept(text, cast) else None
    return literal(text) if type_name == "VARCHAR" else f"{literal(text)}::{type_name}"


def _kept(text: str, cast: str) -> bool:
    """Whether the cast to a whole number kept the value; DuckDB rounds '1.5' to 2."""
    try:
        return Decimal(text) == Decimal(cast)
    except InvalidOperation:
        return True  # no number at all: 'true' is 1 to DuckDB
