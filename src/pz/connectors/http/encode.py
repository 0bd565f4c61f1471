"""Rows as json text, by the rules of json files: spelled by DuckDB, never rounded, never cut."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
_PIECE = 32_768


class RowEncoder:
    """Spells batches in files of a folder. Call `close` once."""

    def __init__(self, columns: Sequence[Column], folder: Path) -> None:
        self._connection = open_scratch(threads=1)  # more would take the processor from whoever sends
        types = [(column.name, DuckType.parse(self._connection, column.type)) for column in columns]
        self._rows = ", ".join(f"{writing(Format.JSON, name, type_)} AS {quote(name)}" for name, type_ in types)
        self._casts = ", ".join(f"CAST({quote(name)} AS {type_.sql}) AS {quote(name)}" for name, type_ in types)
        self._folder = folder

    def lines(self, batch: pa.RecordBatch) -> Generator[BinaryIO, None, None]:
        """The rows of a batch as lines of json, each with its line end, in order and in pieces.

        The next piece is spelled while the present one is sent. A piece is valid until the next one is asked for.
        """
        pieces = [batch.slice(start, _PIECE) for start in range(0, batch.num_rows, _PIECE)]
        with ThreadPoolExecutor(1, thread_name_prefix="pz-http-rows") as pool:
            pending = [pool.submit(self._spell, piece, number) for number, piece in enumerate(pieces[:1])]
            for number in range(len(pieces)):
                file = pending.pop().result()
                pending += [pool.submit(self._spell, piece, number + 1) for piece in pieces[number + 1 : number + 2]]
                with file.open("rb") as lines:
                    yield lines
                file.unlink()  # durable: ok - the file lives as long as its piece

    def keys(self, batch: pa.RecordBatch, key: str) -> list[str | None]:
        """The texts of one column, in order. Not while `lines` of another batch are still read."""
        with self._registered(batch):
            sql = f"SELECT CAST({quote(key)} AS VARCHAR) FROM (SELECT {self._casts} FROM {_BATCH})"
            found: list[str | None] = self._connection.sql(sql).to_arrow_table().column(0).to_pylist()
        return found

    def close(self) -> None:
        """Release the database that spells the values."""
        self._connection.close()

    def _spell(self, piece: pa.RecordBatch, number: int) -> Path:
        file = self._folder / f"rows-{number}.ndjson"
        with self._registered(piece):
            copied = f"COPY (SELECT {self._rows} FROM (SELECT {self._casts} FROM {_BATCH})) TO {literal(str(file))}"
            self._connection.execute(f"{copied} (FORMAT json)")  # durable: ok - the file lives as long as its piece
        return file

    @contextmanager
    def _registered(self, batch: pa.RecordBatch) -> Iterator[None]:
        import pyarrow as pa

        self._connection.register(_BATCH, pa.Table.from_batches([batch]))
        try:
            yield
        finally:
            self._connection.unregister(_BATCH)
