"""Which DuckDB type is created as which PostgreSQL type, and which existing column a value fits into unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pz.connectors.postgres.catalog import PgType
from pz.connectors.postgres.types import numeric_shape

__all__ = ["CREATED_AS", "created_type", "fits", "silently_cut", "widened"]

CREATED_AS: Mapping[str, str] = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "UTINYINT": "smallint",
    "SMALLINT": "smallint",
    "USMALLINT": "integer",
    "INTEGER": "integer",
    "UINTEGER": "bigint",
    "BIGINT": "bigint",
    "UBIGINT": "numeric(20,0)",
    "HUGEINT": "numeric(38,0)",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "JSON": "json",
    "UUID": "uuid",
    "BLOB": "bytea",
    "BIT": "bit varying",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_S": "timestamp",
    "TIMESTAMP_MS": "timestamp",
    "TIMESTAMP_NS": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "INTERVAL": "interval",
    '"NULL"': "text",
}

_INTEGERS = {"int2": 2, "int4": 4, "int8": 8}
_WIDTHS = {"TINYINT": 2, "UTINYINT": 2, "SMALLINT": 2, "USMALLINT": 4, "INTEGER": 4, "UINTEGER": 8, "BIGINT": 8}
_DIGITS = {2: 5, 4: 10, 8: 19}
_TEXTS = frozenset({"text", "varchar", "bpchar", "name", "citext"})
_EXACT: Mapping[str, frozenset[str]] = {
    "BOOLEAN": frozenset({"bool"}),
    "FLOAT": frozenset({"float4", "float8"}),
    "DOUBLE": frozenset({"float8"}),
    "JSON": frozenset({"json", "jsonb"}) | _TEXTS,
    "UUID": frozenset({"uuid"}) | _TEXTS,
    "BLOB": frozenset({"bytea"}),
    "BIT": frozenset({"bit", "varbit"}) | _TEXTS,
    "DATE": frozenset({"date"}),
    "TIME": frozenset({"time"}),
    "TIMESTAMP": frozenset({"timestamp"}),
    "TIMESTAMP WITH TIME ZONE": frozenset({"timestamptz"}),
    "INTERVAL": frozenset({"interval"}),
}
_NOT_FROM_TEXT = frozenset(
    [
        "bool",
        "int2",
        "int4",
        "int8",
        "oid",
        "float4",
        "float8",
        "numeric",
        "money",
        "bytea",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "interval",
    ]
)


def created_type(kind: str) -> str | None:
    """The PostgreSQL type of a new column; None for a DuckDB type that has none."""
    if kind.endswith("]"):
        inner = created_type(re.sub(r"(\[\d*\])+$", "", kind))
        return None if inner is None else inner + "[]" * kind.count("[")
    if kind.startswith("DECIMAL("):
        return "numeric" + kind.removeprefix("DECIMAL")
    if kind.startswith("ENUM("):
        return "text"
    if kind.startswith(("STRUCT(", "MAP(", "UNION(")):
        return "json"
    return CREATED_AS.get(kind)


def fits(kind: str, column: PgType) -> bool:
    """Whether every value of a DuckDB type is stored in the column unchanged, or refused by the server."""
    target = column.storage
    if kind == '"NULL"':
        return True
    if kind.endswith("]"):
        return target.element is not None and fits(re.sub(r"(\[\d*\])+$", "", kind), target.element)
    if kind in {"VARCHAR"} or kind.startswith("ENUM("):
        return target.name not in _NOT_FROM_TEXT
    if kind.startswith(("STRUCT(", "MAP(", "UNION(")):
        return target.name in {"json", "jsonb"} | _TEXTS
    if kind in _WIDTHS:
        return _integer_fits(_WIDTHS[kind], target)
    if kind in {"UBIGINT", "HUGEINT"}:
        return target.name in {"int8", "numeric"}
    if kind.startswith("DECIMAL("):
        return _decimal_fits(kind, target)
    if kind.startswith("TIMESTAMP_"):
        kind = "TIMESTAMP"
    return target.name in _EXACT.get(kind, frozenset())


def silently_cut(column: PgType) -> int | None:
    """Bytes behind which the server cuts a text without a word; None for types that keep or refuse it."""
    storage = column.storage
    return {"name": 63, "char": 1}.get(storage.name) if storage.schema == "pg_catalog" else None


def widened(kind: str, column: PgType) -> str | None:
    """The wider type that `evolve` gives a column so that ``kind`` fits; None when no widening helps."""
    target = column.storage
    if column.base is not None:
        return None
    if kind in _WIDTHS and target.name in _INTEGERS and _WIDTHS[kind] > _INTEGERS[target.name]:
        return {4: "integer", 8: "bigint"}[_WIDTHS[kind]]
    if kind == "DOUBLE" and target.name == "float4":
        return "double precision"
    shape = numeric_shape(target) if target.name == "numeric" else None
    wanted = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    if shape is not None and wanted is not None:
        scale = max(int(wanted[2]), shape[1])
        whole = max(int(wanted[1]) - int(wanted[2]), shape[0] - shape[1])
        return f"numeric({whole + scale},{scale})"
    return None


def _integer_fits(width: int, target: PgType) -> bool:
    if target.name in _INTEGERS:
        return _INTEGERS[target.name] >= width
    if target.name == "numeric":
        shape = numeric_shape(target)
        return shape is None or shape[0] - shape[1] >= _DIGITS[width]
    if target.name == "oid":
        return True  # out of range is refused by the server
    return (target.name == "float8" and width <= 4) or (target.name == "float4" and width <= 2)


def _decimal_fits(kind: str, target: PgType) -> bool:
    """The scale must fit, because the server would round; too many digits before the point are refused by it."""
    scale = int(kind.removesuffix(")").rpartition(",")[2])
    if target.name == "money":
        return scale <= 2
    if target.name != "numeric":
        return scale == 0 and target.name == "int8"
    shape = numeric_shape(target)
    return shape is None or shape[1] >= scale
