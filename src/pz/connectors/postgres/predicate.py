"""Which part of a pushed filter means exactly the same in PostgreSQL as in DuckDB, in PostgreSQL's SQL.

Comparisons of a column with a constant, IN lists, BETWEEN and IS NULL, joined by AND and OR; for types whose order and
equality are the same on both sides. Whatever is not understood is left out: the engine's SQL filters again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pz.connectors.postgres.types import ReadColumn
from pz.sqltext import literal, quote

__all__ = ["pushed_predicate"]

Tree = Mapping[str, Any]

_OPERATORS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGERS = frozenset({"SMALLINT", "INTEGER", "BIGINT"})
_LITERALS = {"STRING": "text", "INTEGER": "integer", "NUMERIC": "decimal", "BOOLEAN": "boolean"}
_TYPE_NAMES = {
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
    "DATETIME": "TIMESTAMP",
    "TEXT": "VARCHAR",
    "STRING": "VARCHAR",
    "BOOL": "BOOLEAN",
}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)?")


def pushed_predicate(predicate: str, columns: Mapping[str, ReadColumn]) -> str | None:
    """A condition for the server that every row of ``predicate`` fulfils; None when nothing of it can be pushed.

    ``columns`` are those that the server knows under the same name and meaning, by lower-case name.
    """
    tree = _parse(predicate)
    if tree is None:
        return None
    terms = [_term(part, columns) for part in _conjuncts(tree)]
    return " AND ".join(term for term in terms if term is not None) or None


def _parse(predicate: str) -> Tree | None:
    import duckdb

    with duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"}) as connection:
        row = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT 1 WHERE {predicate}"]).fetchone()
    content: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
    if content.get("error"):
        return None
    found: Tree | None = content["statements"][0]["node"]["where_clause"]
    return found


def _conjuncts(tree: Tree) -> list[Tree]:
    if tree["type"] == "CONJUNCTION_AND":
        return [part for child in tree["children"] for part in _conjuncts(child)]
    return [tree]


def _term(tree: Tree, columns: Mapping[str, ReadColumn]) -> str | None:
    kind = tree["type"]
    if kind in {"CONJUNCTION_AND", "CONJUNCTION_OR"}:
        parts = [_term(child, columns) for child in tree["children"]]
        joined = f" {kind.removeprefix('CONJUNCTION_')} ".join(part for part in parts if part is not None)
        return f"({joined})" if None not in parts else None
    if kind in _OPERATORS:
        return _comparison(tree["left"], _OPERATORS[kind], tree["right"], columns)
    if kind == "COMPARE_BETWEEN":
        low = _comparison(tree["input"], ">=", tree["lower"], columns)
        high = _comparison(tree["input"], "<=", tree["upper"], columns)
        return f"({low} AND {high})" if low and high else None
    if kind in {"OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"}:
        column = _column(tree["children"][0], columns)
        return None if column is None else f"({quote(column.name)} {kind.removeprefix('OPERATOR_').replace('_', ' ')})"
    if kind == "COMPARE_IN":
        subject, *items = tree["children"]
        options = [_comparison(subject, "=", item, columns) for item in items]
        return f"({' OR '.join(o for o in options if o)})" if options and all(options) else None
    return None


def _comparison(left: Tree, operator: str, right: Tree, columns: Mapping[str, ReadColumn]) -> str | None:
    column, constant = _column(left, columns), right
    if column is None:
        column, constant, operator = _column(right, columns), left, _MIRRORED[operator]
    if column is None:
        return None
    bare, value = quote(column.name), _constant(constant, column.duckdb)
    if value is None:
        return None
    # Only equality of texts is left to the column's collation: it may find more, never less.
    collated = f'{bare} COLLATE "C"' if column.duckdb == "VARCHAR" and operator != "=" else bare
    return f"({collated} {operator} {value})"


def _column(tree: Tree, columns: Mapping[str, ReadColumn]) -> ReadColumn | None:
    names = tree.get("column_names")
    if tree["class"] != "COLUMN_REF" or not names or len(names) != 1:
        return None
    return columns.get(str(names[0]).lower())


def _constant(tree: Tree, kind: str) -> str | None:
    """The constant as a literal of the column's family; None when the two sides would not read it alike."""
    cast = None
    if tree["class"] == "CAST":
        cast, tree = _cast_type(tree), tree["child"]
        if cast is None:
            return None
    found = _spelled(tree) if tree["class"] == "CONSTANT" else None
    if found is None:
        return None
    own, text = found
    if own == "text":
        return _text_constant(text, kind, cast)
    if cast is not None:
        return None
    if own == "boolean":
        return text if kind == "BOOLEAN" else None
    return text if kind in _INTEGERS or kind.startswith("DECIMAL(") else None


def _cast_type(tree: Tree) -> str | None:
    """The type that is cast to, as DuckDB prints it; None for one that is not plain. Before DuckDB 2: resolved already."""
    if "cast_type" in tree:
        return str(tree["cast_type"]["id"])
    asked = tree["type_expr"]
    name = str(asked.get("type_name", "")).upper()
    return None if asked.get("children") or asked.get("schema") else _TYPE_NAMES.get(name, name)


def _spelled(tree: Tree) -> tuple[str, str] | None:
    """The family of a constant and its digits or text; None for others. DuckDB 2 has the spelling, earlier ones a value."""
    modern = tree.get("literal")
    if modern is not None:
        family, text = _LITERALS.get(str(modern["kind"])), str(modern["text"])
        plain = family in {"text", "boolean"} or (_NUMBER.fullmatch(text) and (family == "decimal" or _is_bigint(text)))
        return (family, text) if family is not None and plain else None
    value = tree["value"]
    own = str(value["type"]["id"])
    if value["is_null"]:
        return None
    if own == "VARCHAR":
        return "text", str(value["value"])
    if own in {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"}:
        return "integer", str(int(value["value"]))
    if own == "DECIMAL" and isinstance(value["value"], int):
        return "decimal", _decimal(value["value"], int(value["type"]["type_info"]["scale"]))
    return None


def _is_bigint(digits: str) -> bool:
    return "." not in digits and -(2**63) <= int(digits) < 2**63


def _text_constant(text: str, kind: str, cast: str | None) -> str | None:
    if kind == "VARCHAR":
        return literal(text) if cast in {None, "VARCHAR"} and "\x00" not in text else None
    if kind == "BOOLEAN" and cast == "BOOLEAN" and text in {"t", "f"}:
        return "true" if text == "t" else "false"
    if kind == "DATE" and cast in {None, "DATE"} and _DATE.fullmatch(text):
        return f"'{text}'::date"
    if kind not in {"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"} or not _MOMENT.fullmatch(text):
        return None
    if cast in {None, kind} or (cast in {"DATE", "TIMESTAMP"} and kind == "TIMESTAMP"):
        return f"'{text}'::{'timestamp' if kind == 'TIMESTAMP' else 'timestamptz'}"
    return None


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :] or '0'}"
