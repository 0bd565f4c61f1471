"""What the log has of a column: what the server prints of it, where a plain read may select something else of it.

A declared column is converted by the server, and a cast to text may say more than what is printed, or less. Whatever of this
can be made of the printed text is made here, exactly; the rest is told before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pz.connectors.postgres.catalog import Attribute
from pz.connectors.postgres.texts import TextColumn
from pz.connectors.postgres.types import ReadColumn

__all__ = ["logged_column"]

AS_IT_IS = "{v}"

# What the casts of the server's own types to text say, of what is printed.
_TEXTS: Mapping[str, str] = {
    "bool": "CASE {v} WHEN 't' THEN 'true' WHEN 'f' THEN 'false' END",
    "inet": "CASE WHEN contains({v}, '/') THEN {v} ELSE {v} || CASE WHEN contains({v}, ':') THEN '/128' ELSE '/32' END END",
    "bpchar": "rtrim({v}, ' ')",
    **dict.fromkeys(("char", "name", "cidr"), AS_IT_IS),
}

# Arithmetic makes zero or infinity of what a double cannot hold; the server refuses that.
_NUMERIC_AS_DOUBLE = (
    "CASE WHEN (isinf(CAST({v} AS DOUBLE)) AND NOT contains({v}, 'Inf')) OR "
    "(CAST({v} AS DOUBLE) = 0 AND regexp_matches({v}, '[1-9]')) THEN error('out of range') ELSE {v} END"
)
_DIGITS = "[0-9a-fA-F]{{4}}(-?[0-9a-fA-F]{{4}}){{7}}"
_TEXT_AS_UUID = (
    f"CASE WHEN NOT regexp_full_match({{v}}, '{_DIGITS}|[{{{{]{_DIGITS}[}}}}]') THEN error('no uuid') "
    "ELSE regexp_replace({v}, '[{{}}]', '', 'g') END"
)
_WITHOUT_ZONE = "replace({v}, '+00', '')"
_TRIMMED = "CASE WHEN contains({v}, '.') THEN regexp_replace({v}, '[.]?0+$', '') ELSE {v} END"

_INTEGERS = dict.fromkeys(("int2", "int4", "int8", "oid"), AS_IT_IS)
_OTHERS: Mapping[str, Mapping[str, str]] = {
    "BOOLEAN": {"bool": AS_IT_IS},
    **dict.fromkeys(("SMALLINT", "INTEGER", "BIGINT"), _INTEGERS),
    "DECIMAL": {"numeric": AS_IT_IS, **_INTEGERS},
    "FLOAT": {"float4": AS_IT_IS},
    "DOUBLE": {"float8": AS_IT_IS, "float4": "CAST({v} AS FLOAT)", "numeric": _NUMERIC_AS_DOUBLE, **_INTEGERS},
    "BLOB": {"bytea": AS_IT_IS},
    "DATE": {"date": AS_IT_IS},
    "TIME": {"time": AS_IT_IS},
    "TIMESTAMP": {"timestamp": AS_IT_IS, "timestamptz": _WITHOUT_ZONE, "date": AS_IT_IS},
    "TIMESTAMP WITH TIME ZONE": {"timestamptz": AS_IT_IS, "timestamp": AS_IT_IS},
    "INTERVAL": {"interval": AS_IT_IS},
    "UUID": {"uuid": AS_IT_IS, **dict.fromkeys(("text", "varchar", "bpchar"), _TEXT_AS_UUID)},
    "JSON": {"json": AS_IT_IS, "jsonb": AS_IT_IS},
}
"""What a column is read as -> what it is on the server -> the text of the one, of the printed text of the other."""


def logged_column(attribute: Attribute, read: ReadColumn, money_scale: int) -> TextColumn | None:
    """How values of the column in the log become what a plain read has; None where the log does not tell that."""
    storage = attribute.type.storage
    element = storage.element if read.duckdb.endswith("[]") else None
    inner = element.storage if element is not None else storage
    wanted = re.sub(r"\(.*", "", read.duckdb.removesuffix("[]"))
    if wanted == "VARCHAR":
        cast = read.expression.endswith(("::text", "::text[]"))
        before = _TEXTS.get(inner.builtin) if cast and inner.own_text else AS_IT_IS
    elif inner.builtin == "money":
        before = _money(money_scale) if wanted in {"DECIMAL", "DOUBLE"} else None
    elif read.unbounded:  # as a plain read does
        before = _TRIMMED
    else:
        before = _OTHERS[wanted].get(inner.builtin)
    return None if before is None else TextColumn(read, before, inner.delimiter)


def _money(scale: int) -> str:
    """Amounts come with the currency, the separators and a sign or parentheses of the server's locale."""
    plain = "regexp_replace({v}, '[^0-9]', '', 'g')"
    digits = f"(CASE WHEN length({plain}) <= {scale} THEN lpad({plain}, {scale + 1}, '0') ELSE {plain} END)"
    sign = "CASE WHEN regexp_matches({v}, '[-(]') THEN '-' ELSE '' END"
    return f"{sign} || left({digits}, -{scale}) || '.' || right({digits}, {scale})" if scale else f"{sign} || {digits}"
