"""Cells as JSON: exact both ways for every Arrow type, and ordered for the types a cursor can have."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_schema", "canonical", "decode_array", "duck_types", "encode_array", "order_key", "parse_canonical"]

Cell = Any
"""A JSON value: the encoded form of one cell."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def arrow_schema(columns: dict[str, str]) -> pa.Schema:
    """The Arrow schema that DuckDB gives to columns of these DuckDB types."""
    import duckdb

    listed = ", ".join(f'NULL::{kind} AS "{name.replace(chr(34), chr(34) * 2)}"' for name, kind in columns.items())
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT {listed}").to_arrow_table().schema


def duck_types(schema: pa.Schema) -> list[tuple[str, str]]:
    """Columns of an Arrow schema with the type names that DuckDB prints."""
    known = [(field.name, _duck_type(field.type)) for field in schema]
    if all(name for _, name in known):
        return [(column, str(name)) for column, name in known]
    import duckdb

    with duckdb.connect() as connection:
        connection.register("empty", schema.empty_table())
        described = connection.sql("SELECT column_name, column_type FROM (DESCRIBE empty)").fetchall()
    return [(str(name), str(kind)) for name, kind in described]


def _duck_type(kind: pa.DataType) -> str | None:
    """The usual types without opening a database, which costs more than all else that a probe does."""
    import pyarrow as pa

    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    named = {
        pa.bool_(): "BOOLEAN",
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.float64(): "DOUBLE",
        pa.string(): "VARCHAR",
        pa.date32(): "DATE",
        pa.timestamp("us"): "TIMESTAMP",
        pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
    }
    return named.get(kind)


def encode_array(array: pa.Array) -> list[Cell]:
    """Cells of a column: whole numbers for times, text for decimals, an Arrow stream for what JSON has no word for."""
    import pyarrow as pa

    kind = array.type
    if _is_temporal(kind):
        return list(array.view(_integer_of(kind)).to_pylist())
    if pa.types.is_decimal(kind):
        return [None if value is None else str(value) for value in array.to_pylist()]
    if _is_plain(kind):
        return list(array.to_pylist())
    return [_pack(array.slice(index, 1)) if array[index].is_valid else None for index in range(len(array))]


def decode_array(cells: Sequence[Cell], kind: pa.DataType) -> pa.Array:
    """The inverse of `encode_array`."""
    import pyarrow as pa

    if _is_temporal(kind):
        return pa.array(cells, _integer_of(kind)).view(kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if cell is None else Decimal(cell) for cell in cells], kind)
    if _is_plain(kind):
        return pa.array(cells, kind)
    parts = [pa.nulls(1, kind) if cell is None else _unpack(cell) for cell in cells]
    return pa.concat_arrays(parts) if parts else pa.array([], kind)


def order_key(cell: Cell, kind: pa.DataType) -> Any:
    """A key by which encoded cells of a cursor column sort as their values do."""
    import pyarrow as pa

    return Decimal(cell) if pa.types.is_decimal(kind) else cell


def canonical(cell: Cell, kind: pa.DataType) -> str:
    """The canonical text of an encoded cursor value."""
    import pyarrow as pa

    if pa.types.is_date32(kind):
        return (EPOCH.date() + timedelta(days=cell)).isoformat()
    if pa.types.is_timestamp(kind):
        micros = cell * 1_000_000 // _PER_SECOND[kind.unit]
        return (EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return str(cell)


def parse_canonical(text: str, kind: pa.DataType) -> Cell:
    """The encoded cell of a canonical cursor value."""
    import pyarrow as pa

    if pa.types.is_date32(kind):
        return (date.fromisoformat(text[:10]) - EPOCH.date()).days
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
        micros = (moment - EPOCH) // timedelta(microseconds=1)
        return micros * _PER_SECOND[kind.unit] // 1_000_000
    return int(text) if pa.types.is_integer(kind) else text


def _is_temporal(kind: pa.DataType) -> bool:
    import pyarrow as pa

    checks = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time, pa.types.is_duration)
    return any(check(kind) for check in checks)


def _is_plain(kind: pa.DataType) -> bool:
    import pyarrow as pa

    checks = (
        pa.types.is_integer,
        pa.types.is_float32,
        pa.types.is_float64,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return any(check(kind) for check in checks)


def _integer_of(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _pack(array: pa.Array) -> str:
    import pyarrow as pa

    batch = pa.record_batch([array], names=["v"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def _unpack(cell: str) -> pa.Array:
    import pyarrow as pa

    with pa.ipc.open_stream(base64.b64decode(cell)) as reader:
        return reader.read_next_batch().column(0)
