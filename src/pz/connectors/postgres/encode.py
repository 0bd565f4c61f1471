"""Arrow batches as the CSV that ``COPY ... FROM STDIN (FORMAT csv)`` reads.

Values travel in the text form of their type and the server parses them, so a column may be of any type that has one. Text
is always quoted, so an empty string and NULL (nothing at all) stay apart. What Arrow's writer does not print, or prints in
a way that PostgreSQL does not read, is turned into text by DuckDB first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pz.errors import PermanentError
from pz.frozen import frozen

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

__all__ = ["FEW", "Encoder", "WriteColumn", "ordinary"]

# Years that Arrow and PostgreSQL spell alike.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FEW = 1000
"""Values that are looked at one by one sooner than `pyarrow.compute` is imported, which takes a tenth of a second."""
MICROS_PER_DAY = 86_400_000_000

BEFORE_CHRIST = "CASE WHEN contains({t}, ' (BC)') THEN replace({t}, ' (BC)', '') || ' BC' ELSE {t} END"

_PLAIN = frozenset(
    [
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "FLOAT",
        "DOUBLE",
        "VARCHAR",
        "JSON",
        "UUID",
        "BIT",
        "DATE",
        "TIMESTAMP",
        "TIMESTAMP_S",
        "TIMESTAMP_MS",
    ]
)


@frozen
class WriteColumn:
    """A column to be written, with its DuckDB type."""

    name: str
    duckdb: str


class Encoder:
    """Encodes batches of one relation. Holds a private DuckDB only where a column needs it."""

    def __init__(self, columns: Sequence[WriteColumn]) -> None:
        self._columns = tuple(columns)
        self._duckdb: DuckDBPyConnection | None = None

    def encode(self, batch: pa.RecordBatch) -> memoryview:
        """The batch as CSV lines, in the order of the encoder's columns."""
        import io

        import pyarrow as pa
        from pyarrow import csv

        arrays = [self._printable(batch.column(column.name), column) for column in self._columns]
        named = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self._columns])
        out = io.BytesIO()
        csv.write_csv(named, out, csv.WriteOptions(include_header=False))
        return out.getbuffer()

    def close(self) -> None:
        """Release the private DuckDB."""
        if self._duckdb is not None:
            self._duckdb.close()

    def _printable(self, array: pa.Array, column: WriteColumn) -> pa.Array:
        import pyarrow as pa

        kind = column.duckdb
        if kind == "TIMESTAMP WITH TIME ZONE" and pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp(array.type.unit))  # the same instant, spelled in UTC
        elif kind.endswith("]") or (kind not in _PLAIN and not kind.startswith("DECIMAL(")):
            return self._as_text(array, column)
        if kind.startswith(("DATE", "TIMESTAMP")) and not ordinary(array):
            return self._as_text(array, column)
        if isinstance(array, pa.ExtensionArray):
            return self._as_text(array, column)
        return array

    def _as_text(self, array: pa.Array, column: WriteColumn) -> pa.Array:
        import pyarrow as pa

        if self._duckdb is None:
            import duckdb

            self._duckdb = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
            self._duckdb.execute("SET TimeZone = 'UTC'")
        values = pa.table({"v": array})
        self._duckdb.register("batch", values)
        try:
            text = text_expression("v", column.duckdb)
            found = self._duckdb.sql(f"SELECT {text} AS v FROM batch").to_arrow_table()
            return found.column(0).combine_chunks()
        finally:
            self._duckdb.unregister("batch")


def text_expression(value: str, kind: str) -> str:
    """The DuckDB expression whose text PostgreSQL reads as the same value."""
    if kind.endswith("]"):
        return _array_literal(value, re.sub(r"\[\d*\]$", "", kind))
    if kind == "BLOB":
        return f"'\\x' || hex({value})"
    if kind == "TIMESTAMP_NS":
        return (
            f"CASE WHEN epoch_ns({value}) % 1000 <> 0 THEN error('nanoseconds') "
            f"ELSE {BEFORE_CHRIST.format(t=f'{value}::TIMESTAMP::VARCHAR')} END"
        )
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return BEFORE_CHRIST.format(t=f"{value}::VARCHAR")
    if kind.startswith(("STRUCT(", "MAP(", "UNION(")):
        return f"to_json({value})::VARCHAR"
    return f"{value}::VARCHAR"


def _array_literal(value: str, inner: str) -> str:
    variable = f"x{inner.count('[')}"  # one name per level: an inner lambda must not hide the outer one's
    element = text_expression(variable, inner)
    printed = f"({element})" if inner.endswith("]") else _array_element(element)
    return (
        f"CASE WHEN {value} IS NULL THEN NULL ELSE '{{' || coalesce(array_to_string(list_transform({value}, "
        f"lambda {variable}: CASE WHEN {variable} IS NULL THEN 'NULL' ELSE {printed} END), ','), '') || '}}' END"
    )


def _array_element(element: str) -> str:
    """An element of an array literal: always in quotes, so that NULL, commas and braces are only text."""
    return f"'\"' || replace(replace({element}, '\\', '\\\\'), '\"', '\\\"') || '\"'"


def ordinary(array: pa.Array) -> bool:
    """Whether all dates or moments lie in the years 1 to 9999."""
    import pyarrow as pa

    if len(array) == array.null_count:
        return True
    if pa.types.is_date32(array.type):
        low, high, numbers = FIRST_DAY, LAST_DAY, array.view(pa.int32())
    elif pa.types.is_timestamp(array.type):
        per_day = {"s": 86_400, "ms": 86_400_000, "us": MICROS_PER_DAY, "ns": MICROS_PER_DAY * 1000}[array.type.unit]
        low, high, numbers = FIRST_DAY * per_day, (LAST_DAY + 1) * per_day - 1, array.view(pa.int64())
    else:
        raise PermanentError(f"a date or time arrived as {array.type}")
    if len(numbers) <= FEW:
        return all(low <= number <= high for number in numbers.to_pylist() if number is not None)
    import pyarrow.compute as pc

    ends = pc.min_max(numbers)
    return bool(ends["min"].as_py() >= low and ends["max"].as_py() <= high)
