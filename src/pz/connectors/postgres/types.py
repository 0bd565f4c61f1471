"""How every PostgreSQL type is read: the expression that is selected, and the Arrow and DuckDB type that it arrives as.

The rule in one sentence: what DuckDB can hold exactly arrives as its own type, everything else as the text that PostgreSQL
prints, and what neither can hold is refused before anything moves, with the cast to write. `READ_AS` is the table; the
documentation is generated from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from pz.connectors.postgres.catalog import Attribute, PgType
from pz.errors import Code, PermanentError
from pz.frozen import frozen
from pz.sqltext import quote

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["READ_AS", "UNBOUNDED_NUMERIC", "Fix", "ReadColumn", "canonical_type", "numeric_shape", "read_columns"]

UNBOUNDED_NUMERIC = (38, 9)
"""Precision and scale of a numeric without declared ones."""

MAX_PRECISION = 38
MOST_UNITS = 18
"""Digits that fit a bigint: the driver makes text of a numeric, at several times the cost of a bigint."""

READ_AS: Mapping[str, str] = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "oid": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "text": "VARCHAR",
    "varchar": "VARCHAR",
    "bpchar": "VARCHAR",
    "bytea": "BLOB",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "interval": "INTERVAL",
    "uuid": "UUID",
    "json": "JSON",
    "jsonb": "JSON",
}
"""The types with a counterpart of their own; numeric, money and arrays are computed, all others are read as text."""

_SELECTED_AS = {"oid": "int8"}
_ELEMENTS = frozenset(READ_AS) - {"oid", "json", "jsonb", "interval", "bpchar"}
_ALIASES = {
    "TEXT": "VARCHAR",
    "STRING": "VARCHAR",
    "INT": "INTEGER",
    "BOOL": "BOOLEAN",
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
    "DATETIME": "TIMESTAMP",
    "NUMERIC": "DECIMAL",
    "REAL": "FLOAT",
    "FLOAT8": "DOUBLE",
    "FLOAT4": "FLOAT",
    "BYTEA": "BLOB",
    "DECIMAL": "DECIMAL(18,3)",
}


class Fix(StrEnum):
    """What has to be done to a column after it arrived from ADBC."""

    NOTHING = "nothing"
    DECIMAL = "decimal"
    """Text to a decimal."""
    UNITS = "units"
    """The unscaled number to a decimal."""
    MOMENT = "moment"


@frozen
class ReadColumn:
    """How one column is read. ``guard`` is a condition that no row may fulfil; ``refused`` says what it means.

    ``sent`` is what is selected in place of ``expression``, for `fix` to make the value of.
    """

    name: str
    expression: str
    duckdb: str
    fix: Fix = Fix.NOTHING
    guard: str | None = None
    refused: str = ""
    unbounded: bool = False
    not_null: bool = False
    sent: str | None = None

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that batches carry."""
        return arrow_type(self.duckdb)

    @property
    def selected(self) -> str:
        """The expression under the column's name."""
        bare, sent = quote(self.name), self.sent or self.expression
        return bare if sent == bare else f"{sent} AS {bare}"

    @property
    def as_text(self) -> ReadColumn:
        """The same for values of which the declared digits are not certain: they come as text, which tells."""
        return replace(self, fix=Fix.DECIMAL, sent=None) if self.fix is Fix.UNITS else self


def arrow_type(duckdb: str) -> pa.DataType:
    """The Arrow type that stands for a DuckDB type in batches of this source."""
    import pyarrow as pa

    if duckdb.endswith("[]"):
        return pa.list_(arrow_type(duckdb[:-2]))
    found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", duckdb)
    if found:
        return pa.decimal128(int(found[1]), int(found[2]))
    return {
        "BOOLEAN": pa.bool_(),
        "SMALLINT": pa.int16(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "VARCHAR": pa.string(),
        "BLOB": pa.binary(),
        "DATE": pa.date32(),
        "TIME": pa.time64("us"),
        "TIMESTAMP": pa.timestamp("us"),
        "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
        "INTERVAL": pa.month_day_nano_interval(),
        "UUID": pa.uuid(),
        "JSON": pa.json_(pa.string()),
    }[duckdb]


def canonical_type(declared: str) -> str:
    """A declared DuckDB type in the spelling used here."""
    text = re.sub(r"\s+", " ", declared.strip().upper())
    if text.endswith("[]"):
        return canonical_type(text[:-2]) + "[]"
    text = re.sub(r"^(?:NUMERIC|DECIMAL) ?\( ?(\d+) ?, ?(\d+) ?\)$", r"DECIMAL(\1,\2)", text)
    text = re.sub(r"^(?:NUMERIC|DECIMAL) ?\( ?(\d+) ?\)$", r"DECIMAL(\1,0)", text)
    text = re.sub(r"^(?:VARCHAR|CHAR|TEXT) ?\( ?\d+ ?\)$", "VARCHAR", text)
    while text in _ALIASES:
        text = _ALIASES[text]
    return text


def read_columns(
    columns: tuple[Attribute, ...], declared: Mapping[str, str] | None, *, subject: str, money_scale: int = 2
) -> tuple[ReadColumn, ...]:
    """How each column is read: all of them in order, or exactly the declared ones as declared.

    Raises:
        PermanentError: PZ0740, naming every column that cannot be held and the cast to write, and every declared one that is
            not there.
    """
    natural: dict[str, ReadColumn | str] = {column.name: _natural(column, money_scale) for column in columns}
    found: list[ReadColumn] = []
    problems: list[str] = []
    gone: list[str] = []
    for name, wanted in declared.items() if declared is not None else dict.fromkeys(natural).items():
        attribute = next((column for column in columns if column.name == name), None)
        if attribute is None:
            gone.append(f"there is no column {quote(name)}")
            continue
        read = natural[name] if wanted is None else _declared(attribute, canonical_type(wanted), natural[name])
        if isinstance(read, str):
            problems.append(read)
        else:
            found.append(read)
    if problems or gone:
        hints = (
            ["rename it under `columns:` as it is called at the source now, or take it out there and in the SQL"]
            if gone
            else []
        )
        hints += (
            ["declare the column under `columns:` as varchar (or another type that holds it), or cast it in `query:`"]
            if problems
            else []
        )
        raise PermanentError(f"{subject}: " + "; ".join([*gone, *problems]), hint="; ".join(hints), code=Code.PZ0740)
    return tuple(found)


def numeric_shape(type_: PgType) -> tuple[int, int] | None:
    """Precision and scale that hold every value of a numeric with a modifier; None without one."""
    if type_.modifier < 4:
        return None
    precision = ((type_.modifier - 4) >> 16) & 0xFFFF
    scale = ((type_.modifier - 4) & 0x7FF) ^ 1024
    scale -= 1024  # eleven bits, signed
    if scale < 0:
        return precision - scale, 0
    return max(precision, scale), scale


def _natural(column: Attribute, money_scale: int) -> ReadColumn | str:
    bare, type_ = quote(column.name), column.type.storage
    if type_.element is not None:
        return _array(column, type_)
    if type_.builtin == "numeric":
        return _numeric(column, type_)
    if type_.builtin == "money":
        kind = f"DECIMAL(19,{money_scale})"
        return ReadColumn(column.name, f"{bare}::numeric", kind, Fix.DECIMAL, not_null=column.not_null)
    kind = READ_AS.get(type_.builtin, "")
    if not kind:
        # The cast of inet to text always adds the mask; its abbreviation is what the server prints.
        printed = f"abbrev({bare})" if type_.builtin == "inet" else f"{bare}::text"
        return ReadColumn(column.name, printed, "VARCHAR", not_null=column.not_null)
    expression = bare
    if type_.name in _SELECTED_AS:
        expression = f"{bare}::{_SELECTED_AS[type_.name]}"
    elif column.type.base is not None:  # the driver knows base types only
        expression = f"{bare}::{type_.name}"
    return ReadColumn(column.name, expression, kind, _fix(kind), not_null=column.not_null)


def _fix(kind: str) -> Fix:
    return Fix.MOMENT if kind.startswith(("DATE", "TIMESTAMP")) else Fix.NOTHING


def _numeric(column: Attribute, type_: PgType) -> ReadColumn | str:
    shape = numeric_shape(type_)
    precision, scale = shape or UNBOUNDED_NUMERIC
    if precision > MAX_PRECISION:
        return f"column {quote(column.name)} ({type_.shown}({precision},{scale})) has more than {MAX_PRECISION} digits"
    plain = f"{quote(column.name)}::numeric"
    in_units = shape is not None and precision <= MOST_UNITS
    return ReadColumn(
        column.name,
        plain,
        f"DECIMAL({precision},{scale})",
        Fix.UNITS if in_units else Fix.DECIMAL,
        unbounded=shape is None,
        not_null=column.not_null,
        # A division leaves zeros behind the last digit, which say nothing and take places.
        sent=f"({plain} * {10**scale})::int8" if in_units else f"trim_scale({plain})" if shape is None else None,
    )


def _array(column: Attribute, type_: PgType) -> ReadColumn | str:
    """A list for an array of one dimension; its text for more, and for vectors that count from zero."""
    bare, element = quote(column.name), type_.element
    assert element is not None
    if column.type.dimensions > 1 or type_.dimensions > 1:
        return ReadColumn(column.name, f"{bare}::text", "VARCHAR", not_null=column.not_null)
    guard = f"coalesce(array_ndims({bare}) > 1 OR array_lower({bare}, 1) <> 1, false)"
    refused = (
        f"column {quote(column.name)} holds an array of more than one dimension, or one that does not count from 1; "
        "declare it as varchar"
    )
    inner = element.storage
    if inner.builtin == "numeric":
        shape = numeric_shape(replace(inner, modifier=type_.modifier))
        precision, scale = shape or UNBOUNDED_NUMERIC
        if precision > MAX_PRECISION:
            return f"column {quote(column.name)} has elements of more than {MAX_PRECISION} digits"
        expression, kind = f"{bare}::text[]", f"DECIMAL({precision},{scale})[]"
        return ReadColumn(column.name, expression, kind, Fix.DECIMAL, guard, refused, not_null=column.not_null)
    known = inner.builtin in _ELEMENTS
    kind = READ_AS[inner.name] if known else "VARCHAR"
    plain = known and element.base is None and column.type.base is None
    cast = bare if plain else f"{bare}::{inner.name if known else 'text'}[]"
    return ReadColumn(column.name, cast, kind + "[]", _fix(kind), guard, refused, not_null=column.not_null)


# Declared type -> the natural types from which the server converts without loss, and the expression over the natural one: from
# an oid and from money itself it has other casts, or none. In parentheses, because it becomes part of others.
_CONVERSIONS: Mapping[str, Mapping[str, str]] = {
    "DOUBLE": {
        **dict.fromkeys(("FLOAT", "SMALLINT", "INTEGER", "BIGINT", "DECIMAL"), "{c}::float8"),
    },
    "BIGINT": dict.fromkeys(("SMALLINT", "INTEGER"), "{c}::int8"),
    "INTEGER": dict.fromkeys(("SMALLINT", "BIGINT"), "{c}::int4"),
    "SMALLINT": dict.fromkeys(("INTEGER", "BIGINT"), "{c}::int2"),
    "TIMESTAMP": {"TIMESTAMP WITH TIME ZONE": "({c} AT TIME ZONE 'UTC')", "DATE": "{c}::timestamp"},
    "TIMESTAMP WITH TIME ZONE": {"TIMESTAMP": "({c} AT TIME ZONE 'UTC')"},
    "JSON": {"VARCHAR": "{c}::json"},
    "UUID": {"VARCHAR": "{c}::uuid"},
}


def _declared(column: Attribute, wanted: str, natural: ReadColumn | str) -> ReadColumn | str:
    bare, is_numeric = quote(column.name), column.type.storage.builtin == "numeric"
    if isinstance(natural, ReadColumn) and natural.duckdb == wanted:
        return natural
    if wanted == "VARCHAR":
        return ReadColumn(column.name, f"{bare}::text", "VARCHAR", not_null=column.not_null)
    source = "DECIMAL" if is_numeric else natural.duckdb if isinstance(natural, ReadColumn) else ""
    source = re.sub(r"\(.*", "", source)
    shape = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", wanted)
    plain = natural.expression if isinstance(natural, ReadColumn) else f"{bare}::numeric"
    if shape and int(shape[1]) <= MAX_PRECISION and source in {"DECIMAL", "SMALLINT", "INTEGER", "BIGINT"}:
        number = f"{plain.removesuffix('::numeric')}::numeric"
        return ReadColumn(column.name, number, wanted, Fix.DECIMAL, not_null=column.not_null)
    template = _CONVERSIONS.get(wanted, {}).get(source)
    if template is None:
        return f"column {bare} is {column.shown or column.type.shown} and cannot be read as {wanted} without loss"
    return ReadColumn(column.name, template.format(c=plain), wanted, _fix(wanted), not_null=column.not_null)
