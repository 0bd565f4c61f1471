"""The write side of a connector of local files: one COPY beside the target, then a rename over it.

The same COPY serves both ways: natively DuckDB reads the staged relation; a session collects batches in a private
database first. So a file has the same bytes whichever way it was written.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pz.connectors.batches import casts
from pz.connectors.contract import (
    AbortSemantics,
    Column,
    ConnectorError,
    NativeCopy,
    OutputProbe,
    OutputSpec,
    PermanentError,
    WriteResult,
    WriteStrategy,
)
from pz.connectors.files.faults import own_fault
from pz.connectors.files.formats import Compression, Format, Layout, WriteOptions
from pz.connectors.files.paths import FileRoot
from pz.connectors.files.scratch import open_scratch, scratch
from pz.connectors.files.values import DuckType, writing
from pz.connectors.localpath import not_a_directory, real_path
from pz.durable import Step, make_dirs, promote, remove, step
from pz.errors import Code
from pz.frozen import frozen
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["FileSession", "FileSink", "FileTarget", "file_name"]

_STAGED = "batches"
_CHAIN = "[0-9]{8}T[0-9]{9}Z-[0-9a-f]{4}"
"""What tells the files of an append apart: the id of the run with which their chain of retries began."""


def file_name(output: OutputSpec, extension: str) -> str:
    """The name of the file that an output writes.

    replace: one stable name. append: one name per chain of retries and output, so that a repeated attempt overwrites its
    own file and no other.
    """
    entity = output.entity
    if not entity or entity.startswith(".") or "/" in entity or "\\" in entity or "\0" in entity:
        raise PermanentError(
            f"entity '{entity}' cannot be a file name", code=Code.PZ0353, hint="use `path` for the directory"
        )
    if output.strategy is WriteStrategy.APPEND:
        return f"{entity}-{output.origin}-{output.node[:8]}.{extension}"
    return f"{entity}.{extension}"


def _holds_output(directory: Path, output: OutputSpec) -> bool:
    """Whether an append has a file there, of any run: also one of another format, or from when it replaced.

    By the whole name: the files of the output ``orders-old`` are none of ``orders``.
    """
    written = re.compile(rf"{re.escape(output.entity)}(-({_CHAIN}|{re.escape(output.origin)})-[0-9a-f]{{8}})?\.[a-z].*")
    try:
        with os.scandir(directory) as found:
            return any(written.fullmatch(entry.name) is not None for entry in found)
    except FileNotFoundError:
        return False


def _require_room(root: FileRoot, directory: Path, final: Path) -> None:
    """Raise PermanentError PZ0724 where a file stands in the way of the directory, or a directory in that of the file."""
    blocker = not_a_directory(directory)
    if blocker is not None:
        option = "`root`" if root.declared and root.directory.is_relative_to(blocker) else "`path`"
        raise PermanentError(f"{option} leads through '{blocker}', which is no directory", code=Code.PZ0724)
    if final.is_dir():
        message = f"'{root.name_of(final)}' is a directory where the output's file belongs"
        raise PermanentError(message, code=Code.PZ0724)


@frozen
class FileTarget:
    """Where an output's file goes and where it is written before it is whole."""

    directory: Path
    final: Path
    aside: Path
    options: WriteOptions

    @classmethod
    def of(cls, root: FileRoot, output: OutputSpec) -> FileTarget:
        """Derive the places from the options; creates nothing.

        Raises PermanentError for options that do not fit, and for something else that stands there.
        """
        if output.strategy is WriteStrategy.MERGE:
            raise PermanentError("files cannot be merged into", code=Code.PZ0324, hint="use replace or append")
        options = WriteOptions.parse(output.entity, output.options)
        directory = root.resolve(options.path)
        name = file_name(output, options.extension)
        _require_room(root, directory, directory / name)
        aside = directory / f".{name}.{output.node[:8]}-{uuid.uuid4().hex[:12]}.tmp"
        return cls(directory, directory / name, aside, options)

    def writes_empty(self, output: OutputSpec) -> bool:
        """Whether a write without rows makes a file: not beside those that an append has, unless it replaces its own."""
        appends = output.strategy is WriteStrategy.APPEND
        return not appends or self.final.exists() or not _holds_output(self.directory, output)

    def leftovers(self, output: OutputSpec) -> tuple[Path, ...]:
        """Files that dead attempts at this output left beside the target."""
        if not self.directory.is_dir():
            return ()
        start = f".{self.final.name}.{output.node[:8]}-"
        found = (
            path for path in self.directory.iterdir() if path.name.startswith(start) and path.name.endswith(".tmp")
        )
        return tuple(sorted(found))

    def statement(self, relation: str, columns: Sequence[tuple[str, DuckType]] | None) -> str:
        """The COPY to the temporary file. Raises PermanentError PZ0723 for a type that the format cannot hold."""
        if columns is None:
            selected = "*"
        else:
            selected = ", ".join(
                f"{writing(self.options.format, name, type_)} AS {quote(name)}" for name, type_ in columns
            )
        return f"COPY (SELECT {selected} FROM {relation}) TO {literal(str(self.aside))} ({self._copy_options()})"

    def _copy_options(self) -> str:
        options = self.options
        parts = ["USE_TMP_FILE false"]
        if options.format.delimited:
            parts += [
                "FORMAT csv",
                "HEADER true",
                f"DELIMITER {literal(options.delimiter)}",
                "QUOTE '\"'",
                "ESCAPE '\"'",
            ]
        elif options.format is Format.JSON:
            parts += ["FORMAT json", f"ARRAY {'true' if options.layout is Layout.ARRAY else 'false'}"]
        else:
            parts += ["FORMAT parquet"]
        if options.format is Format.PARQUET and options.compression is Compression.NONE:
            parts.append("COMPRESSION uncompressed")
        else:
            parts.append(f"COMPRESSION {options.compression}")
        return ", ".join(parts)


def typed(connection: duckdb.DuckDBPyConnection, columns: Sequence[Column]) -> list[tuple[str, DuckType]]:
    """Columns with their types as trees."""
    return [(column.name, DuckType.parse(connection, column.type)) for column in columns]


class FileSink:
    """Writes files below one root."""

    abort_semantics = AbortSemantics.DISCARDS_ALL

    def __init__(self, root: FileRoot) -> None:
        self._root = root

    def native_copy(self, output: OutputSpec) -> NativeCopy:
        """One COPY beside the target and a rename over it."""
        target = FileTarget.of(self._root, output)
        columns = None
        if output.columns is not None:
            with scratch() as connection:
                columns = typed(connection, output.columns)
        return NativeCopy(
            statements=(target.statement("{relation}", columns),),
            mechanism=f"copy to {target.options.format}",
            moves=((target.aside, target.final),),
            directories=(target.directory,),
            stale=target.leftovers(output),
            promotes_empty=target.writes_empty(output),
        )

    def probe_output(self, output: OutputSpec) -> OutputProbe:
        """Whether there is a file of the output: for an append, one of any run.

        Raises PermanentError as `native_copy`. Columns are not told: a file has its own.
        """
        target = FileTarget.of(self._root, output)
        if output.strategy is WriteStrategy.APPEND:
            return OutputProbe(_holds_output(target.directory, output))
        return OutputProbe(target.final.exists())

    def place_of(self, output: OutputSpec) -> str | None:
        """The file; every append has its own."""
        if output.strategy is WriteStrategy.APPEND:
            return None
        target = FileTarget.of(self._root, output)
        return str(real_path(target.directory) / target.final.name)

    def begin_write(self, output: OutputSpec, schema: pa.Schema) -> FileSession:
        """A session that collects batches and writes the file when it commits."""
        target = FileTarget.of(self._root, output)
        for leftover in target.leftovers(output):
            remove(leftover, Step.SINK_PREPARE)
        return FileSession(target, schema, output.columns, target.writes_empty(output))

    def explain(self, error: Exception) -> ConnectorError | None:
        """DuckDB's error about a value that the format cannot hold; one about the files that are read is the source's."""
        return own_fault(error)

    def close(self) -> None:
        """Nothing is held open."""


class FileSession:
    """Collects batches in a private database on disk; nothing is visible before commit."""

    def __init__(
        self, target: FileTarget, schema: pa.Schema, columns: Sequence[Column] | None, writes_empty: bool
    ) -> None:
        self._target = target
        self._writes_empty = writes_empty
        self._rows = 0
        self._batches = 0
        self._finished = False
        self._directory = TemporaryDirectory(prefix="pz-")
        self._connection = open_scratch(Path(self._directory.name))
        self._select = casts(columns)
        try:
            self._columns = self._create(schema)
            target.statement(_STAGED, self._columns)  # refuses types that the format cannot hold before a row moves
        except BaseException:
            self.close()
            raise

    def _create(self, schema: pa.Schema) -> list[tuple[str, DuckType]]:
        import pyarrow as pa

        self._connection.register("incoming", pa.RecordBatchReader.from_batches(schema, []))
        create = f"CREATE TABLE {_STAGED} AS SELECT {self._select} FROM incoming"
        self._connection.execute(create)  # durable: ok - private to the session
        self._connection.unregister("incoming")
        found = self._connection.execute(f"DESCRIBE {_STAGED}").fetchall()
        return typed(self._connection, [Column(str(row[0]), str(row[1])) for row in found])

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Keep a copy of the batch."""
        import pyarrow as pa

        self._check_open()
        self._connection.register("incoming", pa.Table.from_batches([batch]))
        try:
            self._connection.execute(f"INSERT INTO {_STAGED} SELECT {self._select} FROM incoming")
        finally:
            self._connection.unregister("incoming")
        self._rows += batch.num_rows
        self._batches += 1

    def commit(self) -> WriteResult:
        """Write the file beside its place, then put it there. Without rows: a valid file that tells the columns, or none."""
        import duckdb

        self._check_open()
        self._finished = True
        target = self._target
        if not self._rows and not self._writes_empty:
            return WriteResult(0, self._batches)
        try:
            with step(Step.SINK_PREPARE):
                make_dirs(target.directory)
            with step(Step.SINK_WRITE):
                self._connection.execute(target.statement(_STAGED, self._columns))
            promote(target.aside, target.final, Step.PROMOTE_FILE)
        except duckdb.Error as error:
            explained = own_fault(error)
            if explained is None:
                raise
            raise explained from error
        finally:
            target.aside.unlink(missing_ok=True)  # durable: ok - what stays is swept by the next attempt
        return WriteResult(self._rows, self._batches)

    def abort(self) -> None:
        """Forget everything; the target was never touched."""
        self._check_open()
        self._finished = True

    def close(self) -> None:
        """Release the private database."""
        self._connection.close()
        self._directory.cleanup()

    def _check_open(self) -> None:
        if self._finished:
            raise RuntimeError("the write session is already committed or aborted")
