"""The read side of a connector of local files: a dataset is a list of stamped files with one schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from pz.connectors.batches import interrupted_by, sized
from pz.connectors.bounds import shaped
from pz.connectors.contract import (
    BatchOptions,
    CancelToken,
    ConnectionSpec,
    ConnectorError,
    DatasetSpec,
    NativeScan,
    OutputSpec,
    Partition,
    PermanentError,
    ReadHints,
    SourceProbe,
    find_column,
)
from pz.connectors.files.delimited import check_bytes
from pz.connectors.files.faults import explain_or_none
from pz.connectors.files.formats import Format, ReadOptions, read_path
from pz.connectors.files.nearby import nearby
from pz.connectors.files.paths import FileRoot, FileStamp, group_files, partition_id
from pz.connectors.files.scan import FileSchema, discover, relation
from pz.connectors.files.scratch import open_scratch, scratch
from pz.connectors.files.values import Care, fault
from pz.cursors import CursorError, CursorType, canonical, probe_expression
from pz.errors import Code
from pz.frozen import frozen
from pz.sqlfaults import unknown_column
from pz.sqltext import literal as sql_literal
from pz.sqltext import quote

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FilePartition", "FileSource", "SchemaCache"]


_PIECE_ROWS = 2_048

# Where the writer has found neither a dictionary nor common beginnings, the texts take as much in the file as they do as such.
FULL_TEXTS = """
SELECT path_in_schema FROM parquet_metadata({file}) WHERE type = 'BYTE_ARRAY'
GROUP BY path_in_schema HAVING NOT bool_or(regexp_matches(encodings, 'DICTIONARY|DELTA_BYTE_ARRAY'))
"""


class SchemaCache:
    """Remembers the schema of files that have not changed, so that plan and run look into them once."""

    def __init__(self) -> None:
        self._found: dict[object, FileSchema] = {}
        self._lock = Lock()

    def get(self, files: Sequence[FileStamp], options: ReadOptions, contract: Mapping[str, str] | None) -> FileSchema:
        """The schema, discovered on first use."""
        key = (tuple(files), options, None if contract is None else tuple(contract.items()))
        with self._lock:
            known = self._found.get(key)
        if known is None:
            known = discover(files, options, contract)
            with self._lock:
                self._found[key] = known
        return known


@frozen
class FilePartition:
    """Some files of a dataset, read together."""

    files: tuple[FileStamp, ...]
    options: ReadOptions
    schema: FileSchema
    dataset: DatasetSpec
    hints: ReadHints

    @property
    def partition_id(self) -> str:
        """The same while the files are: names, sizes and times."""
        return partition_id(self.files)

    @property
    def spec(self) -> str:
        """The files as they were and the schema that was found, as JSON."""
        files = [[str(file.path), file.name, file.size, file.mtime_ns] for file in self.files]
        return json.dumps({"version": 1, "files": files, "schema": self.schema.to_json()})

    def native_scan(self) -> NativeScan:
        """The files as one relation."""
        return NativeScan(
            relation=shaped(relation(self.files, self.options, self.schema), self.dataset, self.hints),
            mechanism=f"read {self.options.format}",
            schema_inferred=self.schema.inferred,
            sniffer=self._sniffer(),
            from_text=self.options.format is not Format.PARQUET,
            full_texts=self._full_texts(),
            verify=self.verify,
        )

    def _full_texts(self) -> str | None:
        """Of a parquet file: which columns have no dictionary; one file speaks for all."""
        if self.options.format is not Format.PARQUET or not self.files:
            return None
        return FULL_TEXTS.format(file=sql_literal(str(self.files[0].path)))

    def verify(self) -> None:
        """Refuse files that changed, hold NUL characters or are cut off."""
        for file in self.files:
            if self.options.format is not Format.PARQUET:
                check_bytes(file, self.options)
            file.verify()

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """Read through a private DuckDB; verified before the last batch is given."""
        import duckdb
        import pyarrow as pa

        sql = f"SELECT * FROM {self.native_scan().relation}"
        connection = open_scratch(threads=1 if self.options.frugal else None)
        try:
            with interrupted_by(cancel, connection):
                pieces = connection.sql(sql).to_arrow_reader(min(_PIECE_ROWS, options.max_rows))
                yield from _held_back(sized(pieces, options), cancel, self.verify)
        except (duckdb.Error, OSError, pa.ArrowException) as error:  # a failing stream surfaces as any of them
            cancel.raise_if_set()
            column = unknown_column(error)
            why = f"reading failed ({type(error).__name__})" if column is None else f"there is no column '{column}'"
            raise self.explain(error) or PermanentError(why, code=Code.PZ0722) from error
        finally:
            connection.close()

    def explain(self, error: Exception) -> ConnectorError | None:
        """DuckDB's error about these files, in words without row values; reads them again where it must to tell more."""
        explained = explain_or_none(error, _names(self.files))
        if explained is None and "Conversion Error" in str(error) and self.options.format.delimited:
            return self._find_conversion_fault()
        return explained

    def _find_conversion_fault(self) -> ConnectorError | None:
        """Where a cell is that does not fit: with its line if DuckDB's reader trips over it, else with its column.

        None when the files are in order: then the error came from somewhere else.
        """
        import duckdb

        for care in (Care.TYPED, Care.CHECKED):
            with scratch() as connection:
                sql = relation(self.files, self.options, self.schema, care)
                try:
                    connection.execute(f"SELECT max(hash(COLUMNS(*))) FROM {sql}").fetchall()
                except duckdb.Error as error:
                    return explain_or_none(error, _names(self.files))
        return None

    def _sniffer(self) -> str | None:
        if self.options.format is not Format.CSV or not self.schema.inferred or len(self.files) != 1:
            return None
        return f"sniff_csv({sql_literal(str(self.files[0].path))}, delim = {sql_literal(self.options.delimiter)})"


def _held_back(
    reader: Iterable[pa.RecordBatch], cancel: CancelToken, verify: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """All batches, the last one only after the files were verified: a consumer never has all rows of a bad file."""
    previous: pa.RecordBatch | None = None
    for batch in reader:
        cancel.raise_if_set()
        if previous is not None:
            yield previous
        previous = batch
    verify()
    if previous is not None:
        yield previous


def _nowhere(message: str) -> None:
    """Where messages go while no run listens."""


def _names(files: Iterable[FileStamp]) -> dict[str, str]:
    return {str(file.path): file.name for file in files}


class FileSource:
    """Reads datasets of files below one root."""

    def __init__(self, root: FileRoot, cache: SchemaCache) -> None:
        self._root = root
        self._cache = cache
        self._seen: dict[str, str] = {}
        self._last: FilePartition | None = None
        self._log: Callable[[str], None] = _nowhere

    def use_log(self, log: Callable[[str], None]) -> None:
        """See `LogsMessages`."""
        self._log = log

    def schema(self, dataset: DatasetSpec) -> pa.Schema:
        """The Arrow schema of the dataset's columns."""
        whole = self._whole(dataset, ReadHints())
        with scratch() as connection:
            return connection.sql(f"SELECT * FROM {whole.native_scan().relation} LIMIT 0").to_arrow_table().schema

    def native_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan:
        """All files as one relation.

        While planning, the files may still have to be written by another flow; so a path that matches none gives a
        relation that fails with PZ0720 when it is read.
        """
        options = ReadOptions.parse(dataset.entity, dataset.options)
        if not self._list(options) and not options.missing_is_empty:
            failing = fault(Code.PZ0720, _no_match(options), "INTEGER")
            return NativeScan(relation=f"(SELECT {failing} AS missing)", mechanism=f"read {options.format}")
        return self._whole(dataset, hints).native_scan()

    def reads_output(self, dataset: DatasetSpec, connection: ConnectionSpec, output: OutputSpec) -> bool:
        """See `SeesOutputs`: by the name that the file gets; for an append that of any run."""
        from pz.connectors.files.writing import FileTarget

        target = FileTarget.of(FileRoot.at(connection), output)
        return self._root.covers(read_path(dataset.entity, dataset.options), target.directory, target.final.name)

    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        """A few dozen partitions at most, small files together. Raises PermanentError PZ0720 when no file matches."""
        whole = self._whole(dataset, hints)
        groups = group_files(whole.files) or ((),)
        return [FilePartition(group, whole.options, whole.schema, dataset, hints) for group in groups]

    def restore_partition(self, dataset: DatasetSpec, hints: ReadHints, spec: str) -> Partition:
        """The partition that once gave ``spec``. Raises PermanentError PZ0721 when a file is not as it was."""
        told = json.loads(spec)
        files = _stamps(told)
        for file in files:
            file.verify(since="since the run that is continued")
        self._seen.update(_names(files))
        options = ReadOptions.parse(dataset.entity, dataset.options)
        self._last = FilePartition(files, options, FileSchema.from_json(told["schema"]), dataset, hints)
        return self._last

    def changed_since(self, spec: str) -> str | None:
        """See `SeesChanges`: by the size and the time of each file."""
        try:
            for file in _stamps(json.loads(spec)):
                file.verify(since="since")
        except PermanentError as changed:
            return changed.message
        return None

    def probe(self, dataset: DatasetSpec) -> SourceProbe:
        """Columns and bytes; rows where the files tell (parquet); for a cursor its highest value and the NULLs."""
        whole = self._whole(dataset, ReadHints())
        rows = upper = nulls = None
        if whole.options.format is Format.PARQUET:
            rows = _parquet_rows(whole.files)
        if dataset.cursor is not None:
            upper, nulls = self._cursor_facts(whole, dataset.cursor)
        return SourceProbe(
            columns=whole.schema.columns,
            rows=rows,
            bytes=sum(file.size for file in whole.files),
            upper=upper,
            null_cursors=nulls,
            partitions=len(group_files(whole.files)) or 1,
        )

    def explain(self, error: Exception) -> ConnectorError | None:
        """DuckDB's error about files, in words without row values."""
        explained = explain_or_none(error, self._seen)
        if explained is None and self._last is not None:
            return self._last.explain(error)
        return explained

    def close(self) -> None:
        """Nothing is held open."""

    def _whole(self, dataset: DatasetSpec, hints: ReadHints) -> FilePartition:
        options = ReadOptions.parse(dataset.entity, dataset.options)
        files = self._list(options)
        if not files and not options.missing_is_empty:
            raise PermanentError(_no_match(options), code=Code.PZ0720, hint=nearby(self._root, options.path))
        if not files:
            self._log(f"{_no_match(options)}, so nothing is read (`missing: empty`)")
        schema = self._cache.get(files, options, dataset.columns)
        self._last = FilePartition(files, options, schema, dataset, hints)
        return self._last

    def _list(self, options: ReadOptions) -> tuple[FileStamp, ...]:
        files = self._root.list(options.path)
        self._seen.update(_names(files))
        return files

    @staticmethod
    def _cursor_facts(whole: FilePartition, cursor: str) -> tuple[str | None, int | None]:
        import duckdb

        held = find_column(whole.schema.columns, cursor)
        kind = None if held is None else CursorType.from_duckdb(held.type)
        if held is None or kind is None:
            return None, None
        highest = probe_expression(f"max({quote(held.name)})", held.type)
        sql = f"SELECT {highest}, count(*) - count({quote(held.name)}) FROM {whole.native_scan().relation}"
        try:
            with scratch() as connection:
                row = connection.execute(sql).fetchone()
        except duckdb.Error as error:
            raise whole.explain(error) or error from error
        assert row is not None
        try:
            return (None if row[0] is None else canonical(row[0], kind)), int(row[1])
        except CursorError as error:
            raise PermanentError(f"cursor column '{held.name}': {error}", code=Code.PZ0505) from error


def _stamps(told: Mapping[str, list[tuple[str, str, int, int]]]) -> tuple[FileStamp, ...]:
    return tuple(FileStamp(Path(path), name, size, mtime) for path, name, size, mtime in told["files"])


def _no_match(options: ReadOptions) -> str:
    return f"no file matches '{options.path}'"


def _parquet_rows(files: Sequence[FileStamp]) -> int | None:
    if not files:
        return 0
    listed = ", ".join(sql_literal(str(file.path)) for file in files)
    with scratch() as connection:
        row = connection.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata([{listed}])").fetchone()
    return None if row is None or row[0] is None else int(row[0])
