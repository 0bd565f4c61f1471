"""The write side: probe the target, open sessions, settle what an earlier attempt left in doubt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import (
    AbortSemantics,
    CancelToken,
    Column,
    NativeCopy,
    OutputProbe,
    OutputSpec,
    SchemaPolicy,
    Settlement,
    WriteSession,
    WriteStrategy,
)
from pz.connectors.deletes import LIMIT, LIMIT_SCHEMA
from pz.connectors.postgres import marks, swap
from pz.connectors.postgres.catalog import Name, Table, in_recovery
from pz.connectors.postgres.connect import Server, ended_by
from pz.connectors.postgres.encode import WriteColumn
from pz.connectors.postgres.fate import Transaction, fate_of
from pz.connectors.postgres.faults import translated
from pz.connectors.postgres.passing import FORMAT
from pz.connectors.postgres.permits import require_permits, require_primary
from pz.connectors.postgres.session import PostgresSession
from pz.connectors.postgres.target import check_target
from pz.connectors.postgres.types import read_columns
from pz.errors import Code, ConnectorError, PermanentError

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

__all__ = ["OUTPUT_SCHEMA", "PostgresSink"]

OUTPUT_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "replace_method": {
            "enum": ["truncate", "delete", "swap"],
            "description": "How a replace empties the target: truncate (default; readers wait for a moment), delete "
            "(readers never wait), swap (a new table takes the place of the old one).",
        },
        LIMIT: LIMIT_SCHEMA,
        "ledger": {
            "enum": [True, False, "on", "off"],
            "description": "Whether an append leaves its mark in _pz_slices beside the target (default true).",
        },
    },
}

REFERENCED = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE contype = 'f' AND confrelid = %(oid)s::oid AND conrelid <> %(oid)s::oid)
"""


class PostgresSink:
    """See `Sink`, `ProbingSink`, `SettlingSink`, `RecallingSink`. Everything that an aborted write did is rolled back."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._cancel = CancelToken()

    def use_cancel(self, cancel: CancelToken) -> None:
        """See `Cancellable`: ends the statements of a probe."""
        self._cancel = cancel

    @property
    def abort_semantics(self) -> AbortSemantics:
        """See `Sink`."""
        return AbortSemantics.DISCARDS_ALL

    def native_copy(self, output: OutputSpec) -> NativeCopy | None:
        """None: data, merge, mark and commit must share one connection, which DuckDB's writer does not give."""
        return None

    def copy_format(self, output: OutputSpec) -> str | None:
        """See `CopyingSink`. A target that may be altered first is locked then, for a source that reads it, too."""
        return FORMAT if output.schema_policy is SchemaPolicy.FAIL_ON_CHANGE else None

    def place_of(self, output: OutputSpec) -> str:
        """See `LocatesOutputs`; a host that goes by several names is taken for several."""
        return self._server.place_of(str(Name.of(output.entity)))

    def probe_output(self, output: OutputSpec) -> OutputProbe:
        """See `ProbingSink`: existence, kind, keys, privileges, and what the replace method needs."""
        name = Name.of(output.entity)
        with (
            translated(f"target {name}"),
            self._server.control() as connection,
            ended_by(self._cancel, connection),
        ):
            require_primary(connection, name)
            table = check_target(connection, output)
            require_permits(connection, output, table)
            if table is None:
                return OutputProbe(False)
            if output.strategy is WriteStrategy.REPLACE:
                _check_replace(connection, output, table)
        return OutputProbe(True, _columns(table))

    def begin_write(self, output: OutputSpec, schema: pa.Schema) -> WriteSession:
        """See `Sink`."""
        return PostgresSession(self._server, output, write_columns(output, schema))

    def settle(self, output: OutputSpec, run: str, ordinal: int) -> Settlement:
        """Look for the attempt's mark, once no transaction of ours is open on the output any more.

        Without a mark to look for (``ledger: off``, or a strategy that may simply run again) the answer is unknown; also
        where a standby does not have it, which may lag behind the server that does.
        """
        if output.slice is None or not marks.wanted(output):
            return Settlement.UNKNOWN
        name = Name.of(output.entity)
        with translated(f"target {name}"), self._server.control() as connection:
            marks.lock_output(connection, name)
            landed = marks.has_landed(connection, name, output.slice, run, ordinal)
            complete = not in_recovery(connection)
        if landed is not None:
            return Settlement.COMMITTED
        return Settlement.NOT_COMMITTED if complete else Settlement.UNKNOWN

    def recall(self, output: OutputSpec, mark: str) -> Settlement:
        """See `RecallingSink`: what became of the transaction that an append with ``ledger: off`` ran in."""
        transaction = Transaction.of_mark(mark)
        if transaction is None:
            return Settlement.UNKNOWN
        return fate_of(self._server, Name.of(output.entity), transaction)

    def close(self) -> None:
        """See `Sink`; sessions hold their own connections."""


def write_columns(output: OutputSpec, schema: pa.Schema) -> tuple[WriteColumn, ...]:
    """The columns to write with their DuckDB types: as the engine says, else as Arrow has them.

    Raises:
        PermanentError: PZ0741 for a type whose value would change on the way.
    """
    if output.columns is not None:
        columns = tuple(WriteColumn(column.name, column.type) for column in output.columns)
    else:
        columns = tuple(WriteColumn(name, kind) for name, kind in _duckdb_types(schema))
    unfit = [column.name for column in columns if column.duckdb.startswith(("TIME WITH TIME ZONE", "UHUGEINT"))]
    if unfit:
        raise PermanentError(
            f"target {Name.of(output.entity)}: column(s) {', '.join(unfit)} would lose their zone or digits on the way",
            hint="cast them to VARCHAR in the pipeline",
            code=Code.PZ0741,
        )
    return columns


def _duckdb_types(schema: pa.Schema) -> list[tuple[str, str]]:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("empty", schema.empty_table())
        found = connection.execute("SELECT column_name, column_type FROM (DESCRIBE empty)").fetchall()
    return [(str(name), str(kind)) for name, kind in found]


def _columns(table: Table) -> tuple[Column, ...] | None:
    try:
        return tuple(Column(read.name, read.duckdb) for read in read_columns(table.columns, None, subject=""))
    except ConnectorError:
        return None  # a column that pz could not read may still be written


def _check_replace(connection: psycopg.Connection[Any], output: OutputSpec, table: Table) -> None:
    method = output.options.get("replace_method", "truncate")
    if method == "swap":
        swap.refuse_if_attached(connection, table)
    if method == "truncate":
        row = connection.execute(REFERENCED, {"oid": table.oid}).fetchone()
        if row and row[0]:
            raise PermanentError(
                f"target {table.name}: TRUNCATE is not allowed on a table that foreign keys refer to",
                hint="use replace_method: delete",
                code=Code.PZ0741,
            )
