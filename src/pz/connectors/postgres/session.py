"""One write: one connection, one transaction.

    Prepared   target locked for other writers of ours, slice marked, target created or fitted     begin_write
    Copying    rows flow by COPY into the target, a temporary table or a twin of the target         write_batch
    Applied    the strategy's statements, partial updates, deletes, the mark's row count            prepare
    Committed  or, when the answer is lost, settled by asking the server about the transaction      commit

Abort is ROLLBACK: nothing is left, also not after the connection was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pz.connectors.contract import (
    Column,
    CopyBlock,
    OutputSpec,
    SchemaPolicy,
    Settlement,
    WriteResult,
    WriteStrategy,
)
from pz.connectors.postgres import marks, strategy, swap
from pz.connectors.postgres.binary import BinaryEncoder
from pz.connectors.postgres.catalog import Name
from pz.connectors.postgres.connect import Server
from pz.connectors.postgres.copying import Copy
from pz.connectors.postgres.encode import Encoder, WriteColumn
from pz.connectors.postgres.fate import Transaction, fate_of
from pz.connectors.postgres.faults import lost_connection, translate, translated
from pz.connectors.postgres.fit import silently_cut
from pz.connectors.postgres.passing import wire_type
from pz.connectors.postgres.target import prepare_target
from pz.durable import Step, step
from pz.errors import Code, OutcomeUnknown, PermanentError, TransientError
from pz.sqltext import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["PostgresSession"]


class PostgresSession:
    """See the module. Deletes, partial updates and keys to keep are collected in temporary tables and applied at commit."""

    def __init__(self, server: Server, output: OutputSpec, columns: Sequence[WriteColumn]) -> None:
        self._server = server
        self._output = output
        self._name = Name.of(output.entity)
        self._finished: str | None = None
        self._closed = False
        self._rows = 0
        self._batches = 0
        self._copy: Copy | None = None
        self._landed: int | None = None
        self._transaction: Transaction | None = None
        self._deletes = False
        self._retains = False
        self._partials: dict[tuple[str, ...], str] = {}
        self._connection = server.control(patient=True)
        try:
            with self._faults():
                self._begin(columns)
        except BaseException:
            self._connection.close()
            raise

    # --- Prepared

    def _begin(self, columns: Sequence[WriteColumn]) -> None:
        output, connection = self._output, self._connection
        slice_, attempt = output.slice, output.attempt
        marked = slice_ is not None and attempt is not None and marks.wanted(output)
        if marked:
            marks.ensure_ledger(connection, self._name)
        marks.lock_output(connection, self._name)
        if marked:
            assert slice_ is not None
            assert attempt is not None
            self._landed = marks.place(connection, self._name, slice_, attempt)
        self._marked = marked
        if self._landed is not None:
            return
        self._target = prepare_target(connection, output, columns)
        self._encoder = Encoder(self._target.columns)
        self._binary = BinaryEncoder.of(self._target.columns, self._target.types)
        limits = {
            column.name: silently_cut(self._target.attribute(column.name).type) for column in self._target.columns
        }
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        self._into = self._destination()

    def _destination(self) -> str:
        """Where COPY puts the rows."""
        target, output = self._target, self._output
        evolving = output.schema_policy is SchemaPolicy.EVOLVE
        self._twin: Name | None = None
        self._staged = False
        if target.created and output.strategy is not WriteStrategy.MERGE:
            return target.name.quoted
        if output.strategy is WriteStrategy.APPEND and not evolving:
            return target.name.quoted
        if output.strategy is WriteStrategy.REPLACE and output.options.get("replace_method") == "swap":
            swap.refuse_if_attached(self._connection, target.table)
            self._twin = swap.create_twin(self._connection, target.table, output.node[:8])
            return self._twin.quoted
        if output.strategy is WriteStrategy.REPLACE and not evolving and self._holds_nothing():
            return target.name.quoted
        self._staged = True
        names = [column.name for column in target.columns]
        return strategy.create_temp(self._connection, strategy.STAGE, target, names, texts=evolving)

    def _holds_nothing(self) -> bool:
        """Whether the target can be filled as it is: there is nothing to take away, and nobody else will write before us."""
        if self._output.options.get("replace_method", "truncate") != "truncate":
            return False  # those who chose `delete` wait for nobody
        return strategy.is_blank(self._connection, self._target) and strategy.keep_blank(self._connection, self._target)

    # --- Copying

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """See `WriteSession`."""
        self._enter("write_batch")
        if batch.num_rows == 0:
            return
        self._batches += 1
        self._rows += batch.num_rows
        if self._landed is not None:
            return
        self._refuse_cut(batch)
        with self._faults():
            self._put(batch)

    def _put(self, batch: pa.RecordBatch) -> None:
        pieces = self._binary.encode(batch) if self._binary is not None else None
        if pieces is None:
            self._opened("csv").send(self._encoder.encode(batch))
            return
        copy = self._opened("binary", self._binary)
        for piece in pieces:
            copy.send(piece)

    def _refuse_cut(self, batch: pa.RecordBatch) -> None:
        if not self._limits:
            return
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, limit in self._limits.items():
            longest = pc.max(pc.binary_length(batch.column(name).cast(pa.string()))).as_py()
            if longest is not None and longest > limit:
                raise PermanentError(
                    f"{self._subject}: a text is longer than column {quote(name)}, which would cut it at {limit} byte(s)",
                    hint="shorten it in the pipeline, or make the column text",
                    code=Code.PZ0741,
                )

    def copy_columns(self) -> tuple[Column, ...]:
        """See `CopyingSession`; none where the rows have landed before."""
        if self._landed is not None:
            return ()
        target = self._target
        return tuple(Column(column.name, wire_type(target.attribute(column.name).type)) for column in target.columns)

    def write_copied(self, block: CopyBlock) -> None:
        """See `CopyingSession`."""
        self._enter("write_copied")
        self._batches += 1
        self._rows += block.rows
        with self._faults():
            self._opened("binary").write(block.data)

    def _opened(self, form: str, encoder: BinaryEncoder | None = None) -> Copy:
        """The COPY that takes rows of this form, opened for the first of them."""
        if self._copy is not None and self._copy.form != form:
            self._end_copy()
        if self._copy is None:
            names = [column.name for column in self._target.columns]
            self._copy = Copy(self._connection, self._into, names, form, encoder)
        return self._copy

    def apply_deletes(self, keys: pa.RecordBatch) -> None:
        """See `DeleteApplyingSession`."""
        self._enter("apply_deletes")
        with self._faults():
            self._end_copy()
            if not self._deletes:
                strategy.create_temp(self._connection, strategy.KEYS, self._target, self._output.keys)
                self._deletes = True
            self._send(keys, f"pg_temp.{quote(strategy.KEYS)}", self._output.keys)

    def apply_partial(self, batch: pa.RecordBatch, unchanged: Sequence[str]) -> None:
        """See `PartialUpdateSession`. Rows are grouped by the columns that they leave alone."""
        self._enter("apply_partial")
        carried = tuple(
            column.name
            for column in self._target.columns
            if column.name in batch.schema.names and column.name not in set(unchanged)
        )
        with self._faults():
            self._end_copy()
            if carried not in self._partials:
                name = f"{strategy.PARTIAL}_{len(self._partials)}"
                self._partials[carried] = strategy.create_temp(self._connection, name, self._target, carried)
            self._send(batch, self._partials[carried], carried)

    def retain_only(self, keys: pa.RecordBatch) -> None:
        """See `RetainingSession`."""
        self._enter("retain_only")
        with self._faults():
            self._end_copy()
            if not self._retains:
                strategy.create_temp(self._connection, strategy.KEPT, self._target, self._output.keys)
                self._retains = True
            self._send(keys, f"pg_temp.{quote(strategy.KEPT)}", self._output.keys)

    def _send(self, batch: pa.RecordBatch, into: str, names: Sequence[str]) -> None:
        kinds = {column.name: column for column in self._target.columns}
        encoder = Encoder([kinds[name] for name in names])
        copy = Copy(self._connection, into, names)
        try:
            copy.write(encoder.encode(batch))
            copy.end()
        finally:
            encoder.close()

    def _end_copy(self) -> None:
        if self._copy is not None:
            self._copy.end()
            self._copy = None

    # --- Applied, Committed

    def prepare(self) -> str | None:
        """See `MarkedSession`: only an append without a mark in the ledger must be recognised by its transaction."""
        self._enter("prepare")
        if self._landed is not None:
            return None
        with self._faults():
            self._end_copy()
            self._apply()
            self._transaction = Transaction.of(self._connection)
        needed = self._output.strategy is WriteStrategy.APPEND and not self._marked
        return self._transaction.mark if needed else None

    def commit(self) -> WriteResult:
        """See `WriteSession`. Prepares if nobody has.

        Raises:
            OutcomeUnknown: the answer was lost, and the server could not say what became of the transaction.
        """
        self._enter("commit")
        if self._landed is None and self._transaction is None:
            self.prepare()
        self._finished = "commit"
        if self._landed is not None:
            with self._faults():
                self._connection.rollback()
            return WriteResult(self._landed, 0)
        assert self._transaction is not None
        self._commit(self._transaction)
        return WriteResult(self._rows, self._batches)

    def _apply(self) -> None:
        connection, output, target = self._connection, self._output, self._target
        before = strategy.count_living(connection, output, target) if self._retains else 0
        if self._staged and output.schema_policy is SchemaPolicy.EVOLVE:
            strategy.widen_texts(connection, target, self._into)
        if self._twin is not None:
            swap.take_place(connection, target.table, self._twin)
        elif output.strategy is WriteStrategy.MERGE:
            strategy.merge(connection, output, target, self._into)
        elif self._staged and output.strategy is WriteStrategy.APPEND:
            strategy.insert(connection, target, self._into)
        elif self._staged:
            emptying = "DELETE FROM" if output.options.get("replace_method") == "delete" else "TRUNCATE TABLE"
            strategy.fill(connection, target, self._into, emptying)
        for carried, stage in self._partials.items():
            strategy.apply_partial(connection, output, target, stage, carried)
        if self._deletes:
            strategy.apply_deletes(connection, output, target, f"pg_temp.{quote(strategy.KEYS)}", self._into)
        if self._retains:
            strategy.remove_others(connection, output, target, f"pg_temp.{quote(strategy.KEPT)}", before)
        if self._marked and output.slice is not None:
            marks.count_rows(connection, self._name, output.slice, self._rows)

    def _commit(self, transaction: Transaction) -> None:
        import psycopg

        try:
            with step(Step.SINK_COMMIT):
                self._connection.commit()
        except psycopg.Error as failure:
            if not lost_connection(failure):
                raise translate(failure, self._subject) from failure
            self._settle(transaction, failure)

    def _settle(self, transaction: Transaction, failure: Exception) -> None:
        """Ask the server what became of the transaction whose answer was lost. Returns when it committed."""
        fate = fate_of(self._server, self._name, transaction)
        if fate is Settlement.COMMITTED:
            return
        if fate is Settlement.NOT_COMMITTED:
            raise TransientError(f"{self._subject}: the connection broke before the commit") from failure
        raise OutcomeUnknown(f"{self._subject}: the answer to COMMIT was lost") from failure

    # --- the end

    def abort(self) -> None:
        """See `WriteSession`: a rollback, or nothing where the connection is gone already."""
        import psycopg

        self._enter("abort")
        self._finished = "abort"
        try:
            if self._copy is not None:
                self._copy.cancel()
                self._copy = None
            self._connection.rollback()
        except psycopg.Error:
            self._connection.close()  # the server rolls back what a lost connection leaves

    def close(self) -> None:
        """See `WriteSession`."""
        if self._closed:
            return
        if self._finished is None:
            self.abort()
        self._closed = True
        if self._landed is None:
            self._encoder.close()
        self._connection.close()

    def _enter(self, verb: str) -> None:
        if self._closed or self._finished is not None:
            raise RuntimeError(f"{verb} after {self._finished or 'close'}: a defect of the caller")

    @property
    def _subject(self) -> str:
        return f"target {self._name}"

    @contextmanager
    def _faults(self) -> Iterator[None]:
        with translated(self._subject):
            yield
