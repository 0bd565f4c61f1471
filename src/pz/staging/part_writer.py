"""Landing one partition batch by batch, so that a resume token covers exactly the rows that are durable.

All rows go into the partition's part table, each batch in a transaction of its own; only then the token is asked for, and
written with the number of rows that it covers. Rows are never changed, so those are the first that many of the table: what
a crash leaves behind them is cut off before the read continues. Nothing is copied, however many checkpoints there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pz.durable import Step
from pz.sqltext import qualified, quote
from pz.staging import meta
from pz.staging.completion import SCHEMA, count_rows, table_exists
from pz.staging.meta import Checkpoint, Ledger
from pz.staging.partition_ledger import Arrival, part_table
from pz.staging.transaction import transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

__all__ = ["PartWriter", "prefix"]

_BATCH = "__pz_batch"


def prefix(table: str, rows: int) -> str:
    """The first rows of a table that only ever grew, in the order in which they came: FROM-able."""
    return f"(SELECT * FROM {table} WHERE rowid < {rows:d})"


class PartWriter:
    """One partition being read, on one cursor.

    >>> writer = PartWriter(cursor, node_id, partition_id)
    >>> if writer.checkpoint is None or not partition.try_resume(writer.checkpoint.token): writer.restart()
    >>> for batch in partition.read(options, cancel):
    ...     writer.append(batch)
    ...     if (token := partition.try_get_checkpoint()) is not None: writer.save(token)
    >>> ledger.complete(cursor, [writer.arrival()])

    ``projection`` is the select list that lands a batch (casts to declared types).
    """

    def __init__(self, cursor: DuckDBPyConnection, node_id: str, partition_id: str, *, projection: str = "*") -> None:
        self._cursor = cursor
        self._node_id = node_id
        self._partition_id = partition_id
        self._projection = projection
        self._name = part_table(node_id, partition_id)
        self._part = qualified(SCHEMA, self._name)
        self._exists = table_exists(cursor, self._name)
        self.rows = 0
        """Rows that are durable so far, the resumed prefix included."""

        self.checkpoint = self._trusted()
        """The token to continue from, after a recount of the rows it covers; None when there is none to trust."""
        if self.checkpoint is None:
            self.restart()
        else:
            self.rows = self.checkpoint.row_count
            self._cut(self.rows)

    def restart(self) -> None:
        """Forget the partition's prefix and token: it is read from its beginning."""
        with transaction(self._cursor, Step.STAGE_ROWS) as tx:
            meta.erase(tx, Checkpoint, self._node_id, partition_ids=[self._partition_id])
            tx.execute(f"DROP TABLE IF EXISTS {self._part}")
        self.checkpoint = None
        self.rows = 0
        self._exists = False

    def append(self, batch: pa.RecordBatch | pa.Table) -> int:
        """Commit a batch; return its rows. Ask the partition for its token only after this."""
        import pyarrow as pa

        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        self._cursor.register(_BATCH, table)
        try:
            with transaction(self._cursor, Step.STAGE_ROWS) as tx:
                verb = f"INSERT INTO {self._part}" if self._exists else f"CREATE TABLE {self._part} AS"
                tx.execute(f"{verb} SELECT {self._projection} FROM {_BATCH}")
        finally:
            self._cursor.unregister(_BATCH)
        self._exists = True
        self.rows += table.num_rows
        return int(table.num_rows)

    def save(self, token: str) -> None:
        """Write a checkpoint: the token covers every row appended so far."""
        point = Checkpoint(self._node_id, self._partition_id, token, self.rows)
        with transaction(self._cursor, Step.WRITE_CHECKPOINT) as tx:
            meta.record(tx, point)
        self.checkpoint = point

    def arrival(self) -> Arrival:
        """The whole partition, for `PartitionLedger.complete`; its table goes with the move."""
        return Arrival(self._partition_id, tables=(self._name,) if self._exists else ())

    def _trusted(self) -> Checkpoint | None:
        """The stored checkpoint, if the part table begins with as many rows as it speaks of."""
        points = Ledger(self._cursor).checkpoints(self._node_id, self._partition_id)
        if not points:
            return None
        covered = points[0].row_count
        held = count_rows(self._cursor, prefix(self._part, covered)) if self._exists else 0
        return points[0] if held == covered else None

    def _cut(self, rows: int) -> None:
        """Drop what lies behind the first ``rows``.

        The prefix moves to a table of its own: behind deleted rows, new ones would not be counted as the first any more.
        """
        if not self._exists or count_rows(self._cursor, self._part) == rows:
            return
        kept = f"{self._name}__kept"
        with transaction(self._cursor, Step.STAGE_ROWS) as tx:
            if rows:
                tx.execute(f"CREATE TABLE {qualified(SCHEMA, kept)} AS {prefix(self._part, rows)}")
            tx.execute(f"DROP TABLE {self._part}")
            if rows:
                tx.execute(f"ALTER TABLE {qualified(SCHEMA, kept)} RENAME TO {quote(self._name)}")
        self._exists = rows > 0
