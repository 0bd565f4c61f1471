"""The read side of the connector ``duckdb``: a table or view of an attached file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from pz.connectors.batches import interrupted_by
from pz.connectors.bounds import shaped
from pz.connectors.closest import did_you_mean
from pz.connectors.contract import (
    BatchOptions,
    CancelToken,
    Column,
    ConnectionSpec,
    ConnectorError,
    DatasetSpec,
    NativeScan,
    OutputSpec,
    Partition,
    PermanentError,
    ReadHints,
    SourceProbe,
)
from pz.connectors.duckdb.place import OpenCursor, Place, Table
from pz.connectors.files.nearby import nearby
from pz.connectors.files.paths import FileRoot
from pz.cursors import CursorError, CursorType, canonical, probe_expression
from pz.errors import Code
from pz.frozen import frozen
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["DuckDbSource"]


class DuckDbSource:
    """Reads tables of one DuckDB file."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._shared: OpenCursor | None = None

    def use_database(self, open_cursor: OpenCursor) -> None:
        """Work on the run's DuckDB from here on."""
        self._shared = open_cursor

    def schema(self, dataset: DatasetSpec) -> pa.Schema:
        """The Arrow schema of the dataset's columns."""
        sql = f"SELECT * FROM {self._relation(dataset, ReadHints())} LIMIT 0"
        with self._cursor() as cursor:
            return cursor.sql(sql).to_arrow_table().schema

    def native_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan:
        """The table behind the connection's one ATTACH. Raises PermanentError PZ0353 when the file is missing."""
        return NativeScan(
            relation=self._relation(dataset, hints), mechanism="attach duckdb file", setup=(self._place.attach,)
        )

    def reads_output(self, dataset: DatasetSpec, connection: ConnectionSpec, output: OutputSpec) -> bool:
        """See `SeesOutputs`."""
        return self._place.name_of(dataset.entity) == Place.of(connection).name_of(output.entity)

    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        """One partition: the table."""
        scan = self.native_scan(dataset, hints)
        return [TablePartition(self._place, self._shared, scan)]

    def probe(self, dataset: DatasetSpec) -> SourceProbe:
        """Columns, rows, the highest cursor and the rows without one, from one snapshot.

        Raises PermanentError PZ0331 when a declared column is missing or cannot be held by its declared type.
        """
        self._require_file()
        table = self._place.table(dataset.entity)
        with self._cursor() as cursor:
            columns = self._place.columns_of(cursor, table)
            if columns is None:
                raise PermanentError(
                    f"DuckDB file '{self._place.shown}' has no table '{table.label}'",
                    code=Code.PZ0353,
                    hint=did_you_mean(table.label, self._place.tables(cursor)) or None,
                )
            _refuse_differences(cursor, table, columns, dataset)
            rows, upper, nulls = self._facts(cursor, dataset, columns)
        declared = dataset.columns
        kept = columns if declared is None else tuple(Column(name, type_) for name, type_ in declared.items())
        return SourceProbe(columns=kept, rows=rows, upper=upper, null_cursors=nulls, partitions=1)

    def explain(self, error: Exception) -> ConnectorError | None:
        """DuckDB's error about the file, in words without SQL."""
        return self._place.explain(error)

    def close(self) -> None:
        """Nothing is held open; the run detaches the file."""

    def _cursor(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        return self._place.cursor(self._shared)

    def _require_file(self) -> None:
        if not self._place.path.exists():
            near = nearby(FileRoot(self._place.path.parent, declared=False), str(self._place.path))
            raise PermanentError(f"DuckDB file '{self._place.shown}' does not exist", code=Code.PZ0353, hint=near)

    def _relation(self, dataset: DatasetSpec, hints: ReadHints) -> str:
        self._require_file()
        table = self._place.table(dataset.entity).sql
        if dataset.columns is not None:
            casts = (f"CAST({quote(name)} AS {type_}) AS {quote(name)}" for name, type_ in dataset.columns.items())
            table = f"(SELECT {', '.join(casts)} FROM {table})"
        return shaped(table, dataset, hints)

    def _facts(
        self, cursor: duckdb.DuckDBPyConnection, dataset: DatasetSpec, columns: Iterable[Column]
    ) -> tuple[int, str | None, int | None]:
        held = {column.name.lower(): column for column in columns}.get((dataset.cursor or "").lower())
        kind = None if held is None else CursorType.from_duckdb(held.type)
        table = self._place.table(dataset.entity).sql
        if held is None or kind is None:
            return _one(cursor, f"SELECT count(*) FROM {table}")[0], None, None
        highest = probe_expression(f"max({quote(held.name)})", held.type)
        sql = f"SELECT count(*), {highest}, count(*) - count({quote(held.name)}) FROM {table}"
        rows, top, nulls = _one(cursor, sql)
        try:
            return rows, None if top is None else canonical(top, kind), nulls
        except CursorError as error:
            raise PermanentError(f"cursor column '{held.name}': {error}", code=Code.PZ0505) from error


@frozen
class TablePartition:
    """The whole table as one partition."""

    place: Place
    shared: OpenCursor | None
    scan: NativeScan

    def native_scan(self) -> NativeScan:
        """The table as a fragment."""
        return self.scan

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """Batches of the table."""
        import duckdb
        import pyarrow as pa

        with self.place.cursor(self.shared) as cursor, interrupted_by(cancel, cursor):
            try:
                for batch in cursor.sql(f"SELECT * FROM {self.scan.relation}").to_arrow_reader(options.max_rows):
                    cancel.raise_if_set()
                    yield batch
            except (duckdb.Error, OSError, pa.ArrowException) as error:  # a failing stream surfaces as any of them
                cancel.raise_if_set()
                raise self.place.explain(error) or error from error


def _one(cursor: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = cursor.execute(sql).fetchone()
    assert row is not None
    return row


def _refuse_differences(
    cursor: duckdb.DuckDBPyConnection, table: Table, columns: Iterable[Column], dataset: DatasetSpec
) -> None:
    held = {column.name.lower(): column.type for column in columns}
    found = []
    for name, declared in (dataset.columns or {}).items():
        actual = held.get(name.lower())
        if actual is None:
            found.append(f"no column '{name}'")
        elif not _holds(cursor, declared, actual):
            found.append(f"column '{name}' is {actual}, declared {declared}")
    if found:
        raise PermanentError(f"table '{table.label}' differs from `columns`: {'; '.join(found)}", code=Code.PZ0331)


def _holds(cursor: duckdb.DuckDBPyConnection, declared: str, actual: str) -> bool:
    """Whether DuckDB would turn the actual type into the declared one by itself, without being asked to cast."""
    sql = (
        f"SELECT typeof(NULL::{declared}) = {literal(actual)} OR can_cast_implicitly(NULL::{actual}, NULL::{declared})"
    )
    return bool(_one(cursor, sql)[0])
