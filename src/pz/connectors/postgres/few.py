"""What is new since the last run is often nothing, or a few rows: these are read at once, on the connection that planned.

Loading DuckDB's extension, or ADBC, takes longer than such a read. The server prints what every other read selects, and the
texts are converted as those of the log are (`pz.connectors.postgres.texts`), to the same values. The server's own estimate
decides whether to try; where it was wrong, and there are more rows, nothing of the try is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import BatchOptions, CancelToken
from pz.connectors.postgres.connect import NO_LIMIT
from pz.connectors.postgres.copied import messages
from pz.connectors.postgres.partitions import Read
from pz.connectors.postgres.texts import TextColumn, TextReader
from pz.frozen import frozen

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

__all__ = ["FewRows", "few_rows"]

FEW = 1000
BYTES = 4 * 1024 * 1024
DEAREST = 50_000
"""The server's estimate of what the try may cost, in pages read one after the other: more than half a second is not risked."""

_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_MEANT = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@frozen
class FewRows:
    """The whole of a read, which is here already. A later attempt reads again, see `WholePartition`."""

    batch: pa.RecordBatch
    partition_id = "all"
    spec = "all"

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        cancel.raise_if_set()
        for start in range(0, self.batch.num_rows, options.max_rows):
            yield self.batch.slice(start, options.max_rows)


def few_rows(connection: psycopg.Connection[Any], read: Read) -> FewRows | None:
    """The rows above a stored cursor, where they are few; None for any other read. Takes as long as it takes.

    Raises:
        PermanentError: PZ0740 for a value that its column cannot hold, as from every other read.
    """
    table = read.relation.table
    if read.dataset.lower is None or table is None or table.kind not in "rpm" or not read.relation.unicode:
        return None
    columns = [TextColumn(column.as_text) for column in read.relation.pruned(read.hints)]
    selected = ", ".join(column.read.selected for column in columns)
    where = " AND ".join(read.conditions()) or "true"
    statement = f"SELECT {selected} FROM {read.relation.source} WHERE {where}"
    connection.execute(NO_LIMIT)
    if not _promising(connection, statement):
        return None
    rows = _fetched(connection, statement)
    return None if rows is None else FewRows(_converted(rows, columns, read))


def _promising(connection: psycopg.Connection[Any], statement: str) -> bool:
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}").fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return bool(plan["Plan Rows"] <= FEW and plan["Total Cost"] <= DEAREST)


def _fetched(connection: psycopg.Connection[Any], statement: str) -> list[list[bytes | None]] | None:
    """The rows as printed; None when they are too many or too large."""
    rows, size = list[list[bytes | None]](), 0
    for message in messages(connection, f"COPY ({statement} LIMIT {FEW + 1}) TO STDOUT"):
        rows.append([_plain(text) for text in bytes(message[:-1]).split(b"\t")])
        size += len(message)
        if len(rows) > FEW or size > BYTES:
            return None
    return rows


def _plain(text: bytes) -> bytes | None:
    """What stands for a value in the text form of COPY."""
    if text == b"\\N":
        return None
    return _ESCAPED.sub(lambda found: _MEANT.get(found[1], found[1]), text) if b"\\" in text else text


def _converted(rows: list[list[bytes | None]], columns: list[TextColumn], read: Read) -> pa.RecordBatch:
    import pyarrow as pa

    schema = read.relation.schema([column.read for column in columns])
    if not rows:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    reader = TextReader(columns, read.relation.subject)
    try:
        return pa.RecordBatch.from_arrays(reader.arrays(list(zip(*rows, strict=True))), schema=schema)
    finally:
        reader.close()
