"""Rows as json text, by the rules of json files: spelled by DuckDB, never rounded, never cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pz.connectors.contract import Column
from pz.connectors.files.formats import Format
from pz.connectors.files.scratch import open_scratch
from pz.connectors.files.values import DuckType, writing
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowEncoder"]

_BATCH = "__pz_sent"
_PIECE = 16_384


class RowEncoder:
    """Spells batches in files of a folder. Call `close` once."""

    def __init__(self, columns: Sequence[Column], folder: Path) -> None:
        self._connection = open_scratch()
        types = [(column.name, DuckType.parse(self._connection, column.type)) for column in columns]
        self._rows = ", ".join(f"{writing(Format.JSON, name, type_)} AS {quote(name)}" for name, type_ in types)
        self._casts = ", ".join(f"CAST({quote(name)} AS {type_.sql}) AS {quote(name)}" for name, type_ in types)
        self._file = folder / "rows.ndjson"

    @contextmanager
    def lines(self, batch: pa.RecordBatch) -> Iterator[BinaryIO]:
        """The rows of a batch as lines of json, each with its line end, in order."""
        with self._registered(batch):
            copied = (
                f"COPY (SELECT {self._rows} FROM (SELECT {self._casts} FROM {_BATCH})) TO {literal(str(self._file))}"
            )
            self._connection.execute(f"{copied} (FORMAT json)")  # durable: ok - the file lives as long as the batch
        try:
            with self._file.open("rb") as lines:
                yield lines
        finally:
            self._file.unlink(missing_ok=True)  # durable: ok - the file lives as long as the batch

    def keys(self, batch: pa.RecordBatch, key: str) -> list[str | None]:
        """The texts of one column, in order."""
        with self._registered(batch):
            sql = f"SELECT CAST({quote(key)} AS VARCHAR) FROM (SELECT {self._casts} FROM {_BATCH})"
            found: list[str | None] = self._connection.sql(sql).to_arrow_table().column(0).to_pylist()
        return found

    def close(self) -> None:
        """Release the database that spells the values."""
        self._connection.close()

    @contextmanager
    def _registered(self, batch: pa.RecordBatch) -> Iterator[None]:
        """In several pieces, so that more than one thread can spell them."""
        import pyarrow as pa

        pieces = [batch.slice(start, _PIECE) for start in range(0, batch.num_rows, _PIECE)]
        self._connection.register(_BATCH, pa.Table.from_batches(pieces, batch.schema))
        try:
            yield
        finally:
            self._connection.unregister(_BATCH)
