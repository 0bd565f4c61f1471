"""Landing one partition batch by batch, so that a resume token covers exactly the rows that are durable.

The rows since the last checkpoint lie in the partition's segment table, the rows that a token covers in its part table.
A batch is committed before the token is asked for; then, in one transaction, the segment joins the part table and the
token is written. A crash in between loses the segment and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pz.durable import Step
from pz.sqltext import qualified, quote
from pz.staging import meta
from pz.staging.completion import SCHEMA, count_rows, table_exists
from pz.staging.meta import Checkpoint, Ledger
from pz.staging.partition_ledger import Arrival, part_table, segment_table
from pz.staging.transaction import Transaction, transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

__all__ = ["SegmentWriter"]

_BATCH = "__pz_batch"


class SegmentWriter:
    """One partition being read, on one cursor.

    >>> writer = SegmentWriter(cursor, node_id, partition_id)
    >>> if writer.checkpoint is None or not partition.try_resume(writer.checkpoint.token): writer.restart()
    >>> for batch in partition.read(options, cancel):
    ...     writer.append(batch)
    ...     if (token := partition.try_get_checkpoint()) is not None: writer.save(token)
    >>> ledger.complete(cursor, [writer.arrival()])

    ``projection`` is the select list that lands a batch (casts to declared types). Costs grow with the rows, not with the
    number of checkpoints.
    """

    def __init__(self, cursor: DuckDBPyConnection, node_id: str, partition_id: str, *, projection: str = "*") -> None:
        self._cursor = cursor
        self._node_id = node_id
        self._partition_id = partition_id
        self._projection = projection
        self._part_name = part_table(node_id, partition_id)
        self._segment_name = segment_table(node_id, partition_id)
        self._part = qualified(SCHEMA, self._part_name)
        self._segment = qualified(SCHEMA, self._segment_name)
        self._has_part = table_exists(cursor, self._part_name)
        self._has_segment = table_exists(cursor, self._segment_name)
        self._segment_rows = 0
        self.checkpoint = self._trusted()
        """The token to continue from, after a recount of the rows it covers; None when there is none to trust."""
        if self.checkpoint is None:
            self.restart()
        elif self._has_segment:
            self._drop_segment()

    @property
    def rows(self) -> int:
        """Rows that are durable so far, the resumed prefix included."""
        return self._covered + self._segment_rows

    @property
    def _covered(self) -> int:
        return 0 if self.checkpoint is None else self.checkpoint.row_count

    def restart(self) -> None:
        """Forget the partition's prefix and token: it is read from its beginning."""
        with transaction(self._cursor, Step.STAGE_ROWS) as tx:
            meta.erase(tx, Checkpoint, self._node_id, partition_ids=[self._partition_id])
            for table in (self._part, self._segment):
                tx.execute(f"DROP TABLE IF EXISTS {table}")
        self.checkpoint = None
        self._segment_rows = 0
        self._has_part = self._has_segment = False

    def append(self, batch: pa.RecordBatch | pa.Table) -> int:
        """Commit a batch; return its rows. Ask the partition for its token only after this."""
        import pyarrow as pa

        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        self._cursor.register(_BATCH, table)
        try:
            with transaction(self._cursor, Step.STAGE_ROWS) as tx:
                verb = f"INSERT INTO {self._segment}" if self._has_segment else f"CREATE TABLE {self._segment} AS"
                tx.execute(f"{verb} SELECT {self._projection} FROM {_BATCH}")
        finally:
            self._cursor.unregister(_BATCH)
        self._has_segment = True
        self._segment_rows += table.num_rows
        return int(table.num_rows)

    def save(self, token: str) -> None:
        """Write a checkpoint: the token covers every row appended so far."""
        point = Checkpoint(self._node_id, self._partition_id, token, self.rows)
        with transaction(self._cursor, Step.WRITE_CHECKPOINT) as tx:
            if self._has_segment:
                self._join_segment(tx)
            meta.record(tx, point)
        self._has_part, self._has_segment = self._has_part or self._has_segment, False
        self.checkpoint = point
        self._segment_rows = 0

    def arrival(self) -> Arrival:
        """The whole partition, for `PartitionLedger.complete`; both of its tables go with the move."""
        landed = ((self._part_name, self._has_part), (self._segment_name, self._has_segment))
        return Arrival(self._partition_id, tables=tuple(name for name, exists in landed if exists))

    def _join_segment(self, tx: Transaction) -> None:
        if self._has_part:
            tx.execute(f"INSERT INTO {self._part} SELECT * FROM {self._segment}")
            tx.execute(f"DROP TABLE {self._segment}")
        else:
            tx.execute(f"ALTER TABLE {self._segment} RENAME TO {quote(self._part_name)}")

    def _trusted(self) -> Checkpoint | None:
        """The stored checkpoint, if the part table holds exactly the rows it speaks of."""
        points = Ledger(self._cursor).checkpoints(self._node_id, self._partition_id)
        if not points:
            return None
        held = count_rows(self._cursor, self._part) if self._has_part else 0
        return points[0] if held == points[0].row_count else None

    def _drop_segment(self) -> None:
        with transaction(self._cursor, Step.STAGE_ROWS) as tx:
            tx.execute(f"DROP TABLE {self._segment}")
        self._has_segment = False
