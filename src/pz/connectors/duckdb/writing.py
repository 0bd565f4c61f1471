"""The write side of the connector ``duckdb``: one transaction on the file, natively or from batches.

A session stages batches in a temporary table and does everything on the file at once when it commits: the slice's mark
first, then the target's definition, the rows, the deletes, and after a snapshot the deletes of what it does not hold. Other
readers see the old table until then.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pz.connectors.batches import casts
from pz.connectors.contract import (
    AbortSemantics,
    Column,
    ConnectorError,
    NativeCopy,
    OnDelete,
    OutcomeUnknown,
    OutputProbe,
    OutputSpec,
    PermanentError,
    Settlement,
    WriteResult,
)
from pz.connectors.deletes import refuse_beyond_limit
from pz.connectors.duckdb.place import OpenCursor, Place
from pz.connectors.duckdb.statements import SLICES, Writing
from pz.durable import Step, fsync_dir, step
from pz.errors import Code
from pz.sqltext import qualified, quote

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["DuckDbSession", "DuckDbSink"]


class DuckDbSink:
    """Writes tables of one DuckDB file."""

    abort_semantics = AbortSemantics.DISCARDS_ALL

    def __init__(self, place: Place) -> None:
        self._place = place
        self._shared: OpenCursor | None = None

    def use_database(self, open_cursor: OpenCursor) -> None:
        """Work on the run's DuckDB from here on."""
        self._shared = open_cursor

    def native_copy(self, output: OutputSpec) -> NativeCopy | None:
        """The statements of the write; None where deletes must be applied, which takes a session."""
        if output.on_delete in {OnDelete.DELETE, OnDelete.SOFT}:
            return None
        writing = Writing(output, self._place.table(output.entity), "{relation}", output.columns or ())
        return NativeCopy(
            statements=(*writing.mark("0"), *writing.prepare(), *writing.write()),
            counted=writing.count_mark("{rows}"),
            mechanism="write to attached duckdb file",
            setup=(self._place.attach,),
            databases=(self._place.path,),
            landed=self._landed(writing),
        )

    def _landed(self, writing: Writing) -> int | None:
        if writing.mark_condition() is None or not self._place.path.exists():
            return None
        with self._place.cursor(self._shared) as cursor:
            return landed(self._place, cursor, writing)

    def place_of(self, output: OutputSpec) -> str:
        """The table in the file, which DuckDB finds whatever its case."""
        return self._place.name_of(output.entity)

    def begin_write(self, output: OutputSpec, schema: pa.Schema) -> DuckDbSession:
        """A session; nothing touches the target before it commits."""
        self._place.table(output.entity)
        self._place.make()
        return DuckDbSession(self._place, self._place.open_cursor(self._shared), output, schema)

    def probe_output(self, output: OutputSpec) -> OutputProbe:
        """Whether the table exists and its columns. Raises PermanentError PZ0780 when known columns do not fit."""
        import duckdb

        if not self._place.path.exists():
            return OutputProbe(False)
        self._place.require_one_name()
        table = self._place.table(output.entity)
        with self._place.cursor(self._shared) as cursor:
            columns = self._place.columns_of(cursor, table)
            if columns is not None and output.columns is not None:
                writing = Writing(output, table, "staged", output.columns)
                try:
                    for check in writing.checks():
                        cursor.execute(check).fetchall()
                except duckdb.Error as error:
                    raise self._place.explain(error) or error from error
        return OutputProbe(columns is not None, columns)

    def settle(self, output: OutputSpec, run: str, ordinal: int) -> Settlement:
        """Look for the mark that the attempt left if it committed.

        Without a slice the attempt left none, and nothing can be told.
        """
        if output.slice is None:
            return Settlement.UNKNOWN
        if not self._place.path.exists():
            return Settlement.NOT_COMMITTED
        slices = self._place.table(SLICES)
        with self._place.cursor(self._shared) as cursor:
            if self._place.columns_of(cursor, slices) is None:
                return Settlement.NOT_COMMITTED
            sql = f"SELECT count(*) FROM {slices.sql} WHERE project = ? AND output = ? AND run = ? AND ordinal = ?"
            found = cursor.execute(sql, [output.slice.project, output.entity, run, ordinal]).fetchone()
        return Settlement.COMMITTED if found is not None and found[0] else Settlement.NOT_COMMITTED

    def explain(self, error: Exception) -> ConnectorError | None:
        """DuckDB's error about the file, in words without SQL and values."""
        return self._place.explain(error)

    def close(self) -> None:
        """Nothing is held open; the run detaches the file."""


class DuckDbSession:
    """One write: batches, keys to delete and keys to keep wait in temporary tables until commit."""

    def __init__(self, place: Place, cursor: duckdb.DuckDBPyConnection, output: OutputSpec, schema: pa.Schema) -> None:
        self._place = place
        self._cursor = cursor
        self._output = output
        self._name = f"pz_batches_{uuid.uuid4().hex[:12]}"
        self._deleted = f"{self._name}_deleted"
        self._kept = f"{self._name}_kept"
        self._key_tables: set[str] = set()
        self._select = casts(output.columns)
        self._rows = 0
        self._batches = 0
        self._finished = False
        try:
            self._columns = self._stage(schema)
            self._writing = Writing(output, place.table(output.entity), self._relation(self._name), self._columns)
        except BaseException:
            self.close()
            raise

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Keep a copy of the batch."""
        self._check_open()
        self._insert(self._name, self._select, batch)
        self._rows += batch.num_rows
        self._batches += 1

    def apply_deletes(self, keys: pa.RecordBatch) -> None:
        """Put the keys aside; the rows go when the session commits, after the upserts."""
        self._check_open()
        self._put_keys(self._deleted, keys)

    def retain_only(self, keys: pa.RecordBatch) -> None:
        """Put the keys aside; rows with others go when the session commits, last, and within the output's limit."""
        self._check_open()
        self._put_keys(self._kept, keys)

    def commit(self) -> WriteResult:
        """Everything in one transaction. A slice that has landed before is left alone, and its rows are reported."""
        import duckdb

        self._check_open()
        self._finished = True
        cursor = self._cursor
        try:
            cursor.execute("BEGIN TRANSACTION")
            before = landed(self._place, cursor, self._writing)
            if before is not None:
                cursor.execute("ROLLBACK")
                return WriteResult(before, self._batches)
            with step(Step.SINK_PREPARE):
                self._run(self._writing.mark(str(self._rows)))
                self._run(self._writing.prepare())
            with step(Step.SINK_WRITE):
                self._apply()
        except BaseException as error:
            self._roll_back()
            if isinstance(error, duckdb.Error):
                raise self._told(error) from error
            raise
        self._commit()
        return WriteResult(self._rows, self._batches)

    def abort(self) -> None:
        """Forget everything; the target was never touched."""
        self._check_open()
        self._finished = True

    def close(self) -> None:
        """Drop the temporary tables with their cursor."""
        self._cursor.close()

    def _apply(self) -> None:
        deletes = self._writing.deletes
        before = self._number(deletes.count_living()) if self._kept in self._key_tables else 0
        self._run(self._writing.write())
        if self._deleted in self._key_tables:
            self._number(self._writing.delete(self._relation(self._deleted)))
        if self._kept in self._key_tables:
            removed = self._number(deletes.all_but(self._relation(self._kept)))
            target = f"target '{self._place.table(self._output.entity).label}'"
            refuse_beyond_limit(self._output.options, target, removed, before)

    def _commit(self) -> None:
        import duckdb

        try:
            with step(Step.SINK_COMMIT):
                self._cursor.execute("COMMIT")
                fsync_dir(self._place.path.parent)  # the name of the log file that holds the commit
        except duckdb.TransactionException as error:
            # A commit that fails in the transaction's own terms was rolled back: this is certain, not doubtful.
            raise self._place.explain(error) or error from error
        except (duckdb.Error, OSError) as error:
            message = f"the commit to DuckDB file '{self._place.shown}' was not confirmed"
            raise OutcomeUnknown(message, code=Code.PZ0704) from error

    def _stage(self, schema: pa.Schema) -> tuple[Column, ...]:
        import pyarrow as pa

        view = f"{self._name}_in"
        self._cursor.register(view, pa.RecordBatchReader.from_batches(schema, []))
        create = f"CREATE TEMP TABLE {quote(self._name)} AS SELECT {self._select} FROM {quote(view)}"
        self._cursor.execute(create).fetchall()  # durable: ok - private to the session
        self._cursor.unregister(view)
        found = self._cursor.execute(f"DESCRIBE {self._relation(self._name)}").fetchall()
        return tuple(Column(str(row[0]), str(row[1])) for row in found)

    def _put_keys(self, table: str, keys: pa.RecordBatch) -> None:
        """Add to a table of keys, which are of the types of the rows."""
        if table not in self._key_tables:
            listed = ", ".join(quote(key) for key in self._output.keys)
            sql = f"CREATE TEMP TABLE {quote(table)} AS SELECT {listed} FROM {self._relation(self._name)} LIMIT 0"
            self._cursor.execute(sql).fetchall()  # durable: ok - private to the session
            self._key_tables.add(table)
        self._insert(table, "*", keys)

    def _insert(self, table: str, select: str, batch: pa.RecordBatch) -> None:
        import duckdb
        import pyarrow as pa

        view = f"{self._name}_in"
        self._cursor.register(view, pa.Table.from_batches([batch]))
        try:
            self._cursor.execute(
                f"INSERT INTO {self._relation(table)} BY NAME SELECT {select} FROM {quote(view)}"
            ).fetchall()
        except duckdb.Error as error:
            raise self._told(error) from error
        finally:
            self._cursor.unregister(view)

    def _relation(self, name: str) -> str:
        return qualified("temp", "main", name)

    def _run(self, statements: tuple[str, ...]) -> None:
        for statement in statements:
            self._cursor.execute(statement).fetchall()  # durable: ok - inside a step of the caller

    def _number(self, statement: str) -> int:
        """The one number that a statement gives: of rows counted, or changed."""
        row = self._cursor.execute(statement).fetchone()  # durable: ok - inside a step of the caller
        return int(row[0]) if row else 0

    def _roll_back(self) -> None:
        import duckdb

        try:
            self._cursor.execute("ROLLBACK")
        except duckdb.Error:
            return  # no transaction is open any more, which is what we want

    def _told(self, error: duckdb.Error) -> Exception:
        explained = self._place.explain(error)
        if explained is not None:
            return explained
        return PermanentError(f"writing to DuckDB file '{self._place.shown}' failed ({type(error).__name__})")

    def _check_open(self) -> None:
        if self._finished:
            raise RuntimeError("the write session is already committed or aborted")


def landed(place: Place, cursor: duckdb.DuckDBPyConnection, writing: Writing) -> int | None:
    """The rows of a slice if its mark is there already."""
    condition, slices = writing.mark_condition(), place.table(SLICES)
    if condition is None or place.columns_of(cursor, slices) is None:
        return None
    row = cursor.execute(f"SELECT rows FROM {slices.sql} WHERE {condition}").fetchone()
    return None if row is None else int(row[0])
