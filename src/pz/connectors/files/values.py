"""How each DuckDB type is spelled in each format, and read back without loss.

One rule per type and format, applied inside lists, structs and maps too. What a format cannot hold is refused (PZ0723)
or, where only some values do not fit, checked row by row in SQL: nothing is rounded, cut or turned into NULL in silence.
The one deliberate exception: json has no NaN and no infinities, so floating columns write them as null.

Refusals raised inside SQL travel as ``[pz <code>] <message>``; `files.faults` turns them back into errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from pz.connectors.contract import PermanentError
from pz.connectors.files.formats import Format
from pz.errors import Code
from pz.frozen import frozen
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import duckdb
    from duckdb.sqltypes import DuckDBPyType

__all__ = ["Care", "DuckType", "converted", "fault", "read_type", "reading", "writing"]


class Care(StrEnum):
    """How a csv column is read.

    ``FAST`` refuses whatever does not fit, but leaves the wording of a text that is no number to DuckDB. The other two say
    where the fault is, and are slower: ``TYPED`` lets DuckDB's reader convert (it tells the line, and rounds fractions),
    ``CHECKED`` tells file and column of every fault.
    """

    FAST = "fast"
    TYPED = "typed"
    CHECKED = "checked"


_INTEGERS = frozenset(
    {"tinyint", "smallint", "integer", "bigint", "hugeint"}
    | {"utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"}
)
_EXACT_DIGITS = 15
"""Decimal digits that a double, which is what most readers of json use, always holds."""
_NUMBER = "__pz_number_"
"""Before a column's name: its number, beside the text that the number was read from."""


@frozen
class DuckType:
    """A DuckDB type as a tree. ``kind`` is its lower-case family, ``sql`` the type as DuckDB prints it."""

    kind: str
    sql: str
    children: tuple[tuple[str, DuckType], ...] = ()
    precision: int = 0
    scale: int = 0

    @classmethod
    def parse(cls, connection: duckdb.DuckDBPyConnection, text: str) -> DuckType:
        """Resolve a type as a user or DuckDB spells it. Raises PermanentError for an unknown one."""
        import duckdb

        try:
            return cls._of(connection.type(text))
        except duckdb.Error as error:
            raise PermanentError(f"type '{text}' is not a DuckDB type", code=Code.PZ0353) from error

    @classmethod
    def _of(cls, found: DuckDBPyType) -> DuckType:
        kind = str(found.id)
        sql = str(found)
        if sql == "JSON":
            return cls("json", sql)
        if kind == "decimal":
            sizes = {name: int(str(size)) for name, size in found.children}
            return cls(kind, sql, (), sizes["precision"], sizes["scale"])
        if kind in {"list", "array", "struct", "map", "union"}:
            below = [(name, cls._of(cast("DuckDBPyType", child))) for name, child in found.children if name != "size"]
            return cls(kind, sql, tuple(below))
        return cls(kind, sql)

    def walk(self) -> Iterator[DuckType]:
        """This type and all types inside it."""
        yield self
        for _, child in self.children:
            yield from child.walk()


def _is_exact(type_: DuckType) -> bool:
    """Whether values are whole numbers or decimals, which a text may exceed in range or in digits."""
    return type_.kind in _INTEGERS or type_.kind == "decimal"


def fault(code: Code, message: str, sql_type: str) -> str:
    """SQL that fails with a coded message wherever it is evaluated; typed, so that it fits into a CASE."""
    return f"error({literal(f'[pz {code}] {message}')})::{sql_type}"


Leaf = Callable[[str, DuckType], "str | None"]
"""Gives the SQL for a value of a scalar type, or None to leave it alone."""


def _convert(expression: str, type_: DuckType, leaf: Leaf, depth: int = 0) -> str | None:
    """Apply a leaf rule through lists, arrays, structs and maps; None when nothing in the type changes."""
    if not type_.children or type_.kind == "union":
        return leaf(expression, type_)
    item = f"e{depth}"
    if type_.kind in {"list", "array"}:
        inner = _convert(item, type_.children[0][1], leaf, depth + 1)
        return None if inner is None else f"list_transform({expression}, lambda {item}: {inner})"
    if type_.kind == "struct":
        parts = {name: _convert(f"{expression}.{quote(name)}", child, leaf, depth) for name, child in type_.children}
        if not any(parts.values()):
            return None
        packed = ", ".join(f"{quote(name)} := {sql or f'{expression}.{quote(name)}'}" for name, sql in parts.items())
        return f"CASE WHEN {expression} IS NOT NULL THEN struct_pack({packed}) END"
    return _convert_map(expression, type_, leaf, depth)


def _convert_map(expression: str, type_: DuckType, leaf: Leaf, depth: int) -> str | None:
    item = f"e{depth}"
    (_, key), (_, value) = type_.children
    new_key = _convert(f"{item}.key", key, leaf, depth + 1)
    new_value = _convert(f"{item}.value", value, leaf, depth + 1)
    if new_key is None and new_value is None:
        return None
    entry = f"struct_pack(key := {new_key or f'{item}.key'}, value := {new_value or f'{item}.value'})"
    return f"map_from_entries(list_transform(map_entries({expression}), lambda {item}: {entry}))"


# Writing


def writing(format_: Format, column: str, type_: DuckType) -> str:
    """The SQL that spells a column for a format. Raises PermanentError PZ0723 for a type that it cannot hold."""
    if any(part.kind == "union" for part in type_.walk()):
        message = f"column '{column}' of type {type_.sql} cannot be told apart again in {format_}"
        raise PermanentError(message, code=Code.PZ0723, hint="select one member of the union, or cast it to varchar")
    rule = {Format.JSON: _json_leaf, Format.PARQUET: _parquet_leaf}.get(format_)
    if rule is None:
        return _delimited(format_, column, type_)
    return _convert(quote(column), type_, lambda sql, leaf: rule(column, sql, leaf)) or quote(column)


def _delimited(format_: Format, column: str, type_: DuckType) -> str:
    """Delimited text holds everything but a NUL, at which its readers stop."""
    sql = quote(column)
    if not any(part.kind in {"varchar", "json"} for part in type_.walk()):
        return sql
    refusal = fault(Code.PZ0723, f"column '{column}': {format_} cannot hold a NUL character", type_.sql)
    text = sql if type_.kind in {"varchar", "json"} else f"CAST({sql} AS VARCHAR)"
    return f"CASE WHEN contains({text}, chr(0)) THEN {refusal} ELSE {sql} END"


def _json_leaf(column: str, sql: str, type_: DuckType) -> str | None:
    if type_.kind in {"float", "double"}:
        return f"CASE WHEN isfinite({sql}) THEN {sql} END"
    if type_.kind == "decimal" and (type_.precision > _EXACT_DIGITS or type_.scale == type_.precision):
        return f"CAST({sql} AS VARCHAR)"
    if type_.kind in {"bignum", "bit", "blob", "interval"}:
        return f"CAST({sql} AS VARCHAR)"
    if type_.kind.startswith("timestamp"):
        return _iso(sql, type_)
    return None


def _iso(sql: str, type_: DuckType) -> str:
    """ISO 8601 with a ``T``; an instant in UTC with a ``Z``. Beyond the years 1 to 9999: as DuckDB prints it."""
    zoned = type_.kind == "timestamp with time zone"
    moment = f"timezone('UTC', {sql})" if zoned else sql
    fraction = "%n" if type_.kind == "timestamp_ns" else "%f"
    shape = f"%Y-%m-%dT%H:%M:%S.{fraction}{'Z' if zoned else ''}"
    plain = f"isfinite({sql}) AND year({moment}) BETWEEN 1000 AND 9999"
    return f"CASE WHEN {plain} THEN strftime({moment}, '{shape}') ELSE CAST({sql} AS VARCHAR) END"


def _parquet_leaf(column: str, sql: str, type_: DuckType) -> str | None:
    if type_.kind in {"hugeint", "uhugeint"}:
        refusal = fault(
            Code.PZ0723,
            f"column '{column}': parquet holds whole numbers of at most 38 digits; cast the column to varchar",
            "DECIMAL(38,0)",
        )
        return f"COALESCE(TRY_CAST({sql} AS DECIMAL(38,0)), CASE WHEN {sql} IS NOT NULL THEN {refusal} END)"
    if type_.kind == "timestamp_s":
        return f"CAST({sql} AS TIMESTAMP)"
    if type_.kind in {"interval", "time with time zone", "bit", "bignum"}:
        return f"CAST({sql} AS VARCHAR)"
    return None


# Reading


def read_type(format_: Format, type_: DuckType, care: Care = Care.FAST) -> str:
    """The type that the reader is asked for, so that `reading` can convert and check the value afterwards."""
    if format_ is Format.JSON:
        return _json_read_type(type_)
    if care is not Care.TYPED and _is_exact(type_):
        return "VARCHAR"
    return type_.sql


def _json_read_type(type_: DuckType) -> str:
    if type_.kind == "list":
        return f"{_json_read_type(type_.children[0][1])}[]"
    if type_.kind == "array":
        return f"{_json_read_type(type_.children[0][1])}[]"
    if type_.kind == "struct":
        return f"STRUCT({', '.join(f'{quote(name)} {_json_read_type(child)}' for name, child in type_.children)})"
    if type_.kind == "map":
        return f"MAP({', '.join(_json_read_type(child) for _, child in type_.children)})"
    if type_.kind == "decimal" and type_.precision > _EXACT_DIGITS:
        return "JSON"
    if type_.kind in _INTEGERS or type_.kind in {"decimal", "blob", "bit", "bignum", "interval"}:
        return "VARCHAR"
    return type_.sql


def converted(format_: Format, column: str, type_: DuckType, care: Care) -> str | None:
    """The select item that `reading` of this column expects below it, None where it needs nothing but the column.

    A level of its own, because DuckDB computes what stands twice in a CASE twice.
    """
    if not format_.delimited or care is not Care.FAST or not _is_exact(type_):
        return None
    return f"CAST({quote(column)} AS {type_.sql}) AS {quote(_NUMBER + column)}"


def reading(format_: Format, column: str, type_: DuckType, place: str, care: Care = Care.FAST) -> str:
    """The SQL that turns what the reader gave into the declared type.

    ``place`` is SQL text that tells the file, for the message of a value that does not fit.
    """
    if format_ is Format.PARQUET:
        return f"CAST({quote(column)} AS {type_.sql})"
    if format_.delimited:
        return _reading_cell(column, type_, place, care)
    converted = _convert(quote(column), type_, lambda sql, leaf: _json_cell(column, sql, leaf, place))
    if converted is None:
        return quote(column)
    return f"CAST({converted} AS {type_.sql})" if type_.children else converted


def _reading_cell(column: str, type_: DuckType, place: str, care: Care) -> str:
    sql = quote(column)
    if care is Care.TYPED or not _is_exact(type_):
        return sql
    if care is Care.CHECKED:
        return _checked(sql, type_, column, place)
    # A number that reads back as it is spelled has lost nothing; that is quicker to see than the absence of a fraction.
    number = quote(_NUMBER + column)
    plain = f"CAST({number} AS VARCHAR) = {sql}"
    exact = _exact(sql, type_, column, place)
    return f"CASE WHEN {plain} THEN {number} WHEN {_suspect(sql, type_.scale)} THEN {exact} ELSE {number} END"


def _json_cell(column: str, sql: str, type_: DuckType, place: str) -> str | None:
    if type_.kind == "decimal" and type_.precision > _EXACT_DIGITS:
        return _wide_json_decimal(sql, type_, column, place)
    if _is_exact(type_):
        return _checked(sql, type_, column, place)
    if type_.kind in {"blob", "bit", "bignum", "interval"}:
        return _checked_cast(sql, type_, column, place)
    return None


def _suspect(sql: str, scale: int) -> str:
    """Whether a number's text may have more fraction digits than the type keeps: cheap, and rarely true."""
    exponent = f"contains({sql}, 'e') OR contains({sql}, 'E')"
    if scale == 0:
        return f"contains({sql}, '.') OR {exponent}"
    return f"(strlen({sql}) - instr({sql}, '.') > {scale} AND contains({sql}, '.')) OR {exponent}"


def _loses_nothing(sql: str, scale: int) -> str:
    """Whether the digits beyond the scale are zeros: exact, and slow."""
    kept = f"[.][0-9]{{0,{scale}}}0*" if scale else "[.]0*"
    return f"regexp_full_match({sql}, '\\s*[+-]?[0-9]*({kept})?([eE][+]?[0-9]+)?\\s*')"


def _checked(sql: str, type_: DuckType, column: str, place: str) -> str:
    """A number's cast that fails with file and column where it does not fit or would round."""
    exact, cast = _exact(sql, type_, column, place), _checked_cast(sql, type_, column, place)
    return f"CASE WHEN {_suspect(sql, type_.scale)} THEN {exact} ELSE {cast} END"


def _exact(sql: str, type_: DuckType, column: str, place: str) -> str:
    # Nested in the caller's CASE, not joined by AND: DuckDB is free to evaluate the slow half of a conjunction first.
    cast, lossy = _checked_cast(sql, type_, column, place), _lossy(type_, column, place)
    return f"CASE WHEN {_loses_nothing(sql, type_.scale)} THEN {cast} ELSE {lossy} END"


def _lossy(type_: DuckType, column: str, place: str) -> str:
    return _located(column, f"a number has a fraction that the type {type_.sql} would lose", place, type_.sql)


def _checked_cast(sql: str, type_: DuckType, column: str, place: str) -> str:
    does_not_fit = _located(column, f"a value does not fit the type {type_.sql}", place, type_.sql)
    return f"COALESCE(TRY_CAST({sql} AS {type_.sql}), CASE WHEN {sql} IS NOT NULL THEN {does_not_fit} END)"


def _wide_json_decimal(sql: str, type_: DuckType, column: str, place: str) -> str:
    """A decimal of more than 15 digits: exact from a json string or whole number; a fraction was parsed as a double."""
    text = f"({sql} ->> '$')"
    inexact = f"json_type({sql}) = 'DOUBLE' AND length(regexp_replace({text}, '[^0-9]', '', 'g')) > {_EXACT_DIGITS}"
    refusal = _located(
        column,
        f"a number has more than {_EXACT_DIGITS} digits; write it as a json string to keep all",
        place,
        type_.sql,
    )
    return f"CASE WHEN {inexact} THEN {refusal} ELSE {_checked(text, type_, column, place)} END"


def _located(column: str, what: str, place: str, sql_type: str) -> str:
    start = literal(f"[pz {Code.PZ0722}] file '")
    end = literal(f"', column '{column}': {what}")
    return f"error({start} || {place} || {end})::{sql_type}"
