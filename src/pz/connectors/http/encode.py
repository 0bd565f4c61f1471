"""Rows as json text, by the rules of json files: spelled by DuckDB, never rounded, never cut."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pz.connectors.contract import Column
from pz.connectors.files.formats import Format
from pz.connectors.files.scratch import open_scratch
from pz.connectors.files.values import DuckType, writing
from pz.frozen import frozen
from pz.sqltext import quote

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Lines", "RowEncoder"]

_BATCH = "__pz_sent"
_PIECE = 8_192
"""Rows that are spelled at once: few, because the first ones of a batch are waited for."""

_AHEAD = "256KiB"
"""How much DuckDB spells before it gives the first piece, in the thread that sends; its own 1 MB is half of a batch here."""


@frozen
class Lines:
    """Rows as json, one a line, in one piece of memory. Row ``n`` is from ``bounds[n]`` to ``bounds[n + 1]``.

    A row holds no other line end than the one behind it: json escapes those inside texts.
    """

    text: memoryview
    bounds: Sequence[int]

    @classmethod
    def of(cls, column: pa.Array) -> Lines:
        """From an array of large strings, which is kept alive by what is returned."""
        _, offsets, text = column.buffers()
        bounds = memoryview(offsets).cast("q")[column.offset : column.offset + len(column) + 1]
        return cls(memoryview(text), bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __iter__(self) -> Iterator[bytes]:
        return (self.between(row, row + 1) for row in range(len(self)))

    def between(self, start: int, end: int) -> bytes:
        """The lines of some rows."""
        return bytes(self.text[self.bounds[start] : self.bounds[end]])


class RowEncoder:
    """Spells batches. Call `close` once."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._connection = open_scratch(threads=1)  # more would take the processor from whoever sends
        self._connection.execute(f"SET streaming_buffer_size = '{_AHEAD}'")
        self._connection.execute("SET arrow_large_buffer_size = true")  # rows of a piece may be longer than 2 GiB
        types = [(column.name, DuckType.parse(self._connection, column.type)) for column in columns]
        cells = ", ".join(f"{quote(name)} := {writing(Format.JSON, name, type_)}" for name, type_ in types)
        self._casts = ", ".join(f"CAST({quote(name)} AS {type_.sql}) AS {quote(name)}" for name, type_ in types)
        line = f"CAST(to_json(struct_pack({cells})) AS VARCHAR) || chr(10)"
        self._spelling = f"SELECT {line} FROM (SELECT {self._casts} FROM {_BATCH})"

    def lines(self, batch: pa.RecordBatch) -> Generator[Lines, None, None]:
        """The rows of a batch in order and in pieces; the next piece is spelled while the present one is sent."""
        with self._registered(batch), ThreadPoolExecutor(1, thread_name_prefix="pz-http-rows") as pool:
            pieces = self._connection.sql(self._spelling).to_arrow_reader(_PIECE)
            pending = pool.submit(next, pieces, None)
            while (piece := pending.result()) is not None:
                pending = pool.submit(next, pieces, None)
                yield Lines.of(piece.column(0))

    def keys(self, batch: pa.RecordBatch, key: str) -> list[str | None]:
        """The texts of one column, in order. Not while `lines` of another batch are still read."""
        with self._registered(batch):
            sql = f"SELECT CAST({quote(key)} AS VARCHAR) FROM (SELECT {self._casts} FROM {_BATCH})"
            found: list[str | None] = self._connection.sql(sql).to_arrow_table().column(0).to_pylist()
        return found

    def close(self) -> None:
        """Release the database that spells the values."""
        self._connection.close()

    @contextmanager
    def _registered(self, batch: pa.RecordBatch) -> Iterator[None]:
        import pyarrow as pa

        self._connection.register(_BATCH, pa.Table.from_batches([batch]))
        try:
            yield
        finally:
            self._connection.unregister(_BATCH)
