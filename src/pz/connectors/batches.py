"""Record batches on their way into a DuckDB table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pz.connectors.contract import BatchOptions, CancelToken, Column
from pz.interrupter import Interrupter
from pz.sqltext import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

__all__ = ["casts", "interrupted_by", "sized"]

_EVERY = 0.05


def casts(columns: Sequence[Column] | None) -> str:
    """A SELECT list that gives incoming columns their staged types: Arrow does not carry all of them (enums, json)."""
    if columns is None:
        return "*"
    return ", ".join(f"CAST({quote(column.name)} AS {column.type}) AS {quote(column.name)}" for column in columns)


@contextmanager
def interrupted_by(cancel: CancelToken, connection: DuckDBPyConnection) -> Iterator[None]:
    """Interrupt what runs on a connection of DuckDB when ``cancel`` fires during the block, and leave it alone afterwards.

    A connection that is closed refuses to be interrupted, and a token lives longer than any of them.
    """
    interrupter = Interrupter(connection.interrupt, _EVERY, exclusive=True)
    forget = cancel.on_cancel(interrupter.start)
    try:
        yield
    finally:
        forget()
        interrupter.end()


def sized(pieces: Iterable[pa.RecordBatch], options: BatchOptions) -> Iterator[pa.RecordBatch]:
    """Small batches joined up to the sizes that the options ask for: a reader that counts rows alone gives huge ones."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        if held and (rows + piece.num_rows > options.max_rows or size + piece.nbytes > options.target_bytes):
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(piece)
        rows += piece.num_rows
        size += piece.nbytes
    if held:
        yield _joined(held)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    arrays = [pa.concat_arrays(columns) for columns in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=batches[0].schema)
