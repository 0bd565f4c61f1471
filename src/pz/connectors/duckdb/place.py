"""Where a DuckDB connection leads: the file, its alias, its tables, and how it is attached.

Inside a run the file is attached to the run's own DuckDB, by a statement that is the same text for every reader and
writer of the file, whatever connections lead to it, so that it happens once. Elsewhere (probe, check, settle) a private
DuckDB attaches it for as long as the question takes.

Never open the file by other means: closing any descriptor of it drops the locks that this process holds on it.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pz.connectors.contract import Column, ConnectionSpec, ConnectorError, PermanentError
from pz.connectors.databases import make_database
from pz.connectors.duckdb.faults import explain
from pz.connectors.localpath import local_path, not_a_directory, os_refusals, real_path
from pz.errors import Code
from pz.frozen import frozen
from pz.sqltext import filled, literal, qualified, quote

if TYPE_CHECKING:
    import duckdb

__all__ = ["Place", "Table"]

OpenCursor = Callable[[], "duckdb.DuckDBPyConnection"]


@frozen
class Table:
    """A table or view of the attached file."""

    catalog: str
    schema: str
    name: str

    @classmethod
    def of(cls, catalog: str, entity: str) -> Table:
        """``table`` or ``schema.table``. Raises PermanentError PZ0353 for more parts."""
        parts = entity.split(".")
        if len(parts) > 2 or not all(parts):
            raise PermanentError(
                f"entity '{entity}' is no table name", code=Code.PZ0353, hint="write `table` or `schema.table`"
            )
        schema, name = parts if len(parts) == 2 else ("main", parts[0])
        return cls(catalog, schema, name)

    @property
    def sql(self) -> str:
        """The quoted name."""
        return qualified(self.catalog, self.schema, self.name)

    @property
    def label(self) -> str:
        """The name for messages."""
        return self.name if self.schema == "main" else f"{self.schema}.{self.name}"


@frozen
class Place:
    """A DuckDB file and the alias under which it is attached."""

    path: Path
    shown: str
    read_only: bool

    @classmethod
    def of(cls, connection: ConnectionSpec) -> Place:
        """The place of a connection; relative paths start at the project. Raises PermanentError PZ0353."""
        shown = str(connection.options["path"])
        path = real_path(local_path(connection.base_dir, shown))
        return cls(path, shown, not connection.written)

    @property
    def alias(self) -> str:
        """The catalogue's name: readable, and unlike that of any other file."""
        plain = re.sub(r"[^a-z0-9]+", "_", self.path.stem.lower()).strip("_") or "file"
        return f"{plain}_{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:8]}"

    @property
    def attach(self) -> str:
        """The one ATTACH statement of the file."""
        mode = ", READ_ONLY" if self.read_only else ""
        return f"ATTACH IF NOT EXISTS {literal(str(self.path))} AS {quote(self.alias)} (TYPE duckdb{mode})"

    def make(self) -> None:
        """Make the file where it is missing. Raises what `explain` makes of DuckDB's errors."""
        import duckdb

        try:
            make_database(self.path)
        except duckdb.Error as error:
            raise self.explain(error) or error from error

    def require_one_name(self) -> None:
        """Raise PermanentError PZ0724 for a file with further names (hard links): its log lies beside one of them.

        Who opened it by another name would not see that log, and two that write by two names ruin the file.
        """
        with os_refusals():
            names = self.path.stat().st_nlink
        if names > 1:
            raise PermanentError(
                f"DuckDB file '{self.shown}' has {names} names (hard links), so it cannot be written safely",
                hint="give the connection a copy of its own (cp), or remove the other names",
                code=Code.PZ0724,
            )

    def table(self, entity: str) -> Table:
        """A table of the file."""
        return Table.of(self.alias, entity)

    def name_of(self, entity: str) -> str:
        """One text for a table, which DuckDB finds whatever its case, whatever connection leads to the file."""
        table = self.table(entity)
        return f"{self.path} {table.schema.lower()}.{table.name.lower()}"

    @contextmanager
    def cursor(self, shared: OpenCursor | None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor on which the file is attached: of the run's DuckDB where there is one."""
        connection = self.open_cursor(shared)
        try:
            yield connection
        finally:
            connection.close()

    def open_cursor(self, shared: OpenCursor | None) -> duckdb.DuckDBPyConnection:
        """As `cursor`; the caller closes it."""
        import duckdb

        connection = shared() if shared is not None else _private()
        try:
            connection.execute(self.attach)
        except duckdb.Error as error:
            connection.close()
            raise self.explain(error) or error from error
        return connection

    def explain(self, error: Exception) -> ConnectorError | None:
        """What DuckDB's error means for the file, and what else stands where the file or its directory belongs."""
        blocker = not_a_directory(self.path.parent)
        if blocker is not None:
            return PermanentError(f"`path` leads through '{blocker}', which is no directory", code=Code.PZ0724)
        if self.path.is_dir():
            return PermanentError(f"`path` '{self.shown}' is a directory, no DuckDB file", code=Code.PZ0724)
        return explain(error, self.shown)

    def columns_of(self, cursor: duckdb.DuckDBPyConnection, table: Table) -> tuple[Column, ...] | None:
        """The columns of a table or view; None when it does not exist."""
        rows = cursor.execute(filled(COLUMNS_OF, [table.catalog, table.schema, table.name])).fetchall()
        return tuple(Column(str(name), str(type_)) for name, type_ in rows) or None

    def tables(self, cursor: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
        """The names of all tables and views, as the project may spell them."""
        rows = cursor.execute(filled(TABLES_OF, [self.alias])).fetchall()
        return tuple(Table(self.alias, str(schema), str(name)).label for schema, name in rows)


TABLES_OF = """
    SELECT DISTINCT schema_name, table_name FROM duckdb_columns() WHERE database_name = ? AND NOT internal ORDER BY ALL
"""

# DuckDB finds names whatever their case; so does this.
COLUMNS_OF = """
    SELECT column_name, data_type FROM duckdb_columns()
    WHERE database_name = ? AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)
    ORDER BY column_index
"""


def _private() -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute(
        f"SET temp_directory = {literal(tempfile.gettempdir())}"
    )  # else a folder in the working directory
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET arrow_lossless_conversion = true")
    return connection
