"""Short hands for tests that write to and read from a PostgreSQL database through the connector."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from postgres_server import Database
from pz.connectors.contract import (
    BatchOptions,
    CancelToken,
    Column,
    ConnectionSpec,
    DatasetSpec,
    OutputSpec,
    Partition,
    ReadHints,
    Slice,
    WriteAttempt,
    WriteResult,
    WriteStrategy,
)
from pz.connectors.postgres.connector import Postgres
from pz.connectors.postgres.sink import PostgresSink
from pz.connectors.postgres.source import PostgresSource

APPEND, REPLACE, MERGE = WriteStrategy.APPEND, WriteStrategy.REPLACE, WriteStrategy.MERGE


def spec(database: Database, **options: Any) -> ConnectionSpec:
    """The connection to a test's database."""
    return ConnectionSpec("pg", {**database.options, **options}, Path("/nonexistent"))


def output(entity: str, strategy: WriteStrategy = APPEND, **fields: Any) -> OutputSpec:
    """An output without the engine's part."""
    options = fields.pop("options", {})
    return OutputSpec("pg", entity, strategy, options, **fields)


def marked(
    out: OutputSpec, *, run: str = "r1", origin: str = "r1", ordinal: int = 1, content: str = "f1"
) -> OutputSpec:
    """The same output with slice and attempt, as the engine sets them for an append."""
    node = "a" * 16
    return replace(
        out,
        node=node,
        slice=Slice("shop", origin, node, content),
        attempt=WriteAttempt(node, run, ordinal, origin),
    )


SLEEPING = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"


class Relation:
    """What a pipeline made: DuckDB types and Arrow batches."""

    def __init__(self, sql: str) -> None:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET arrow_lossless_conversion = true")
            connection.execute(f"CREATE TABLE t AS {sql}")
            described = connection.execute("SELECT column_name, column_type FROM (DESCRIBE t)").fetchall()
            self.columns = tuple(Column(name, kind) for name, kind in described)
            self.table: pa.Table = connection.sql("SELECT * FROM t").to_arrow_table()

    def batches(self, rows: int = 1000) -> list[pa.RecordBatch]:
        return list(self.table.to_batches(max_chunksize=rows))


def write(
    sink: PostgresSink,
    out: OutputSpec,
    relation: Relation | str,
    *,
    deletes: str | None = None,
    partials: Iterable[tuple[str, tuple[str, ...]]] = (),
) -> WriteResult:
    """Write a relation the way the engine does."""
    made = Relation(relation) if isinstance(relation, str) else relation
    session = sink.begin_write(replace(out, columns=made.columns), made.table.schema)
    committing = False
    try:
        for batch in made.batches():
            session.write_batch(batch)
        for sql, unchanged in partials:
            for batch in Relation(sql).batches():
                session.apply_partial(batch, unchanged)  # type: ignore[attr-defined]
        if deletes is not None:
            for batch in Relation(deletes).batches():
                session.apply_deletes(batch)  # type: ignore[attr-defined]
        committing = True
        return session.commit()
    except BaseException:
        if not committing:
            session.abort()
        raise
    finally:
        session.close()


def sink_of(database: Database, **options: Any) -> PostgresSink:
    """The write side of a test's database."""
    return Postgres().open_sink(spec(database, **options))


def rows_of(database: Database, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """All rows of a table, as text-sorted tuples."""
    return sorted(database.rows(f"SELECT {columns} FROM {table}"), key=repr)


def source_of(database: Database, **options: Any) -> PostgresSource:
    """The read side of a test's database."""
    return Postgres().open_source(spec(database, **options))


def dataset(entity: str = "t", **fields: Any) -> DatasetSpec:
    """A dataset without the engine's part."""
    return DatasetSpec("pg", entity, fields.pop("options", {}), **fields)


def read(
    source: PostgresSource,
    data: DatasetSpec,
    hints: ReadHints | None = None,
    *,
    options: BatchOptions | None = None,
    partitions: Sequence[Partition] | None = None,
) -> pa.Table:
    """Everything that the partitions of a plan yield."""
    wanted = hints or ReadHints()
    parts = partitions if partitions is not None else list(source.plan_read(data, wanted))
    batches = [batch for part in parts for batch in part.read(options or BatchOptions(), CancelToken())]
    announced = source.schema(data)
    if batches:
        assert all(batch.schema == pa.schema([announced.field(n) for n in batch.schema.names]) for batch in batches)
        return pa.Table.from_batches(batches)
    return announced.empty_table()


@contextmanager
def cancelled_when_busy(database: Database, cancel: CancelToken) -> Iterator[None]:
    """Cancel from another thread as soon as a statement sleeps on the server."""

    def watch() -> None:
        with database.connect() as connection:
            while not over.is_set() and not connection.execute(SLEEPING).fetchone():
                over.wait(0.02)  # until the other thread is where it is to be
        cancel.cancel()

    over = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def scan(source: PostgresSource, data: DatasetSpec, hints: ReadHints | None = None) -> pa.Table | None:
    """The same by DuckDB's scanner, its errors explained; None where the source offers no fragment."""
    found = source.live_scan(data, hints or ReadHints())
    if found is None:
        return None
    with duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        connection.execute("SET arrow_lossless_conversion = true")
        try:
            for statement in found.setup:
                connection.execute(statement)
            return connection.execute(f"SELECT * FROM {found.relation}").to_arrow_table()
        except duckdb.Error as failure:
            meaning = source.explain(failure)
            if meaning is None:
                raise
            raise meaning from failure


def as_text(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in DuckDB's spelling."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", table)
        return connection.execute("SELECT COLUMNS(*)::VARCHAR FROM t").fetchall()


def duckdb_types(table: pa.Table) -> list[str]:
    """What DuckDB makes of the columns."""
    with duckdb.connect() as connection:
        connection.register("t", table)
        return [row[0] for row in connection.execute("SELECT column_type FROM (DESCRIBE t)").fetchall()]
