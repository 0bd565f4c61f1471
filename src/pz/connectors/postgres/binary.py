"""Arrow batches as the binary form of COPY, which takes the server half of what text takes it, and us a third.

For columns whose type on the server is the one that the values have in Arrow, and where `pgpq` is installed; for all others,
and for a batch with a date or moment that the library would not get right, there is text (`pz.connectors.postgres.encode`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pz.connectors.postgres.catalog import PgType
from pz.connectors.postgres.encode import WriteColumn, ordinary
from pz.connectors.postgres.types import arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BinaryEncoder", "booleans"]

ROWS_AT_ONCE = 16_384
"""Fewer than a batch: a piece of it is on its way to the server while the next one is encoded."""

_INTEGERS = {"SMALLINT": 2, "INTEGER": 4, "BIGINT": 8}
_SAME = {
    "BOOLEAN": "bool",
    "FLOAT": "float4",
    "DOUBLE": "float8",
    "VARCHAR": "text",
    "BLOB": "bytea",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
}


_TRUTHS = bytes([0, *[1] * 255])


class BinaryEncoder:
    """Encodes batches of one relation, for one COPY after the other: `start`, any number of pieces, `finish`.

    The library holds rows back until there are enough of them: without `finish` they never come.
    """

    def __init__(self, names: Sequence[str], types: Sequence[pa.DataType], library: Any) -> None:
        import pyarrow as pa

        self._schema = pa.schema([pa.field(name, type_) for name, type_ in zip(names, types, strict=True)])
        self._library = library
        self._rows: Any = None

    @classmethod
    def of(cls, columns: Sequence[WriteColumn], targets: Sequence[PgType]) -> BinaryEncoder | None:
        """The encoder for columns of these types on the server; None where one of them needs text."""
        try:
            import pgpq
        except ImportError:  # of the extra `native`
            return None
        types = [_arrow(column.duckdb, target) for column, target in zip(columns, targets, strict=True)]
        known = [type_ for type_ in types if type_ is not None]
        return cls([column.name for column in columns], known, pgpq) if len(known) == len(types) else None

    def start(self) -> bytes:
        """What a COPY begins with."""
        self._rows = self._library.ArrowToPostgresBinaryEncoder(self._schema)
        return bytes(self._rows.write_header())

    def finish(self) -> bytes:
        """The rows that have not come yet, and what a COPY ends with."""
        return bytes(self._rows.finish())

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes] | None:
        """The rows in pieces; None for a batch that needs text."""
        import pyarrow as pa
        import pyarrow.types as kinds

        arrays = []
        for field in self._schema:
            array = batch.column(field.name)
            if isinstance(array, pa.ExtensionArray) and field.type == pa.bool_():
                array = booleans(array)
            elif array.type != field.type and kinds.is_integer(field.type) and kinds.is_signed_integer(array.type):
                array = array.cast(field.type)
            moment = kinds.is_date(field.type) or kinds.is_timestamp(field.type)
            if array.type != field.type or (moment and not ordinary(array)):
                return None
            arrays.append(array)
        return self._pieces(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield self._rows.write_batch(batch.slice(start, ROWS_AT_ONCE))


def booleans(array: pa.ExtensionArray) -> pa.Array:
    """Arrow's own booleans, a bit each, of DuckDB's, a byte each; anything else as it is.

    Arrow's cast does the same, but with ``pyarrow.compute``, whose import takes longer than most writes.
    """
    import pyarrow as pa

    if array.type.extension_name != "arrow.bool8":
        return array
    flags, count = array.storage, array.offset + len(array)
    valid, values = flags.buffers()
    if values is None:  # no rows
        return pa.array([], pa.bool_())
    truths = values.to_pybytes()[:count].translate(_TRUTHS)
    bits = 0
    for place in range(8):  # the bytes of every eighth row become one bit each of the bytes of all
        bits |= int.from_bytes(truths[place::8], "little") << place
    packed = pa.py_buffer(bits.to_bytes(-(-count // 8), "little"))
    return pa.Array.from_buffers(pa.bool_(), len(flags), [valid, packed], offset=flags.offset)


def _arrow(kind: str, target: PgType) -> pa.DataType | None:
    """The Arrow type of what is written into a column as it is; None where the server must read text."""
    import pyarrow as pa

    if target.base is not None or target.schema != "pg_catalog":
        return None
    if kind in _INTEGERS and target.name in {"int2", "int4", "int8"} and int(target.name[3]) >= _INTEGERS[kind]:
        return {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64()}[target.name]
    decimal = kind.startswith("DECIMAL(") and not kind.endswith("[]") and target.name == "numeric"
    same = kind in _SAME and {"varchar": "text"}.get(target.name, target.name) == _SAME[kind]
    return arrow_type(kind) if decimal or same else None
