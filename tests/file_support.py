"""Small helpers for tests of file connectors: open, read and write as the engine does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from pz.connectors.contract import (
    BatchOptions,
    CancelToken,
    Column,
    ConnectionSpec,
    DatasetSpec,
    NativeCopy,
    OutputSpec,
    ReadHints,
    WriteStrategy,
)
from pz.connectors.files.localfiles import LocalFiles
from pz.connectors.files.reading import FilePartition, FileSource
from pz.durable import promote

Rows = list[tuple[Any, ...]]


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET arrow_lossless_conversion = true")
    return connection


def spec(base: Path, **options: Any) -> ConnectionSpec:
    return ConnectionSpec("files", options, base)


def source(base: Path, **options: Any) -> FileSource:
    return LocalFiles().open_source(spec(base, **options))


def dataset(path: str, columns: Mapping[str, str] | None = None, **options: Any) -> DatasetSpec:
    return DatasetSpec("files", "data", {"path": path, **options}, columns)


def read(base: Path, wanted: DatasetSpec, hints: ReadHints | None = None) -> Rows:
    """All rows natively, verified, with errors explained."""
    reader = source(base)
    scan = reader.native_scan(wanted, hints or ReadHints())
    try:
        rows = connect().execute(f"SELECT * FROM {scan.relation}").fetchall()
    except duckdb.Error as error:
        explained = reader.explain(error)
        if explained is None:
            raise
        raise explained from error
    if scan.verify is not None:
        scan.verify()
    return rows


def read_batches(base: Path, wanted: DatasetSpec) -> Rows:
    """All rows of all partitions by the batch path."""
    rows: Rows = []
    for partition in source(base).plan_read(wanted, ReadHints()):
        for batch in partition.read(BatchOptions(), CancelToken()):
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    return rows


def partitions(base: Path, wanted: DatasetSpec) -> list[FilePartition]:
    found = list(source(base).plan_read(wanted, ReadHints()))
    assert all(isinstance(partition, FilePartition) for partition in found)
    return found  # type: ignore[return-value]


def output(strategy: WriteStrategy = WriteStrategy.REPLACE, entity: str = "out", **options: Any) -> OutputSpec:
    return OutputSpec("files", entity, strategy, options)


def columns_of(connection: duckdb.DuckDBPyConnection, table: str) -> tuple[Column, ...]:
    return tuple(Column(row[0], row[1]) for row in connection.execute(f"DESCRIBE {table}").fetchall())


def run_copy(connection: duckdb.DuckDBPyConnection, copy: NativeCopy, relation: str) -> None:
    """What the engine does with a native copy."""
    for leftover in copy.stale:
        leftover.unlink(missing_ok=True)
    for directory in copy.directories:
        directory.mkdir(parents=True, exist_ok=True)
    try:
        written = [connection.execute(text.replace("{relation}", relation)).fetchone() for text in copy.statements]
    except duckdb.Error:
        for aside, _ in copy.moves:
            aside.unlink(missing_ok=True)
        raise
    for aside, final in copy.moves:
        if copy.promotes_empty or any(row and row[0] for row in written):
            promote(aside, final)
        else:
            aside.unlink()
