"""What the role of a connection must be allowed for a write, asked by the probe: before anything has been read.

Whatever the server would refuse only in the middle of the write, or do to other rows than are meant, is told here with the
statement that mends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pz.connectors.contract import OnDelete, OutputSpec, SchemaPolicy, WriteStrategy
from pz.connectors.postgres import marks
from pz.connectors.postgres.catalog import Name, Table, in_recovery
from pz.errors import Code, PermanentError
from pz.sqltext import quote

if TYPE_CHECKING:
    import psycopg

__all__ = ["require_permits", "require_primary"]

# What each strategy does to an existing target, as privileges.
PRIVILEGES = "SELECT privilege FROM unnest(%s::text[]) privilege WHERE NOT has_table_privilege(%s::oid, privilege)"
SCHEMA_PRIVILEGES = """
SELECT privilege FROM unnest(%s::text[]) privilege, pg_catalog.pg_namespace n
WHERE n.nspname = %s AND NOT has_schema_privilege(n.oid, privilege)
"""
MAY_STAGE = "SELECT has_database_privilege(current_database(), 'TEMPORARY')"
FILTERED = "SELECT row_security_active(%s::oid)"
BYPASS = "ALTER ROLE ... BYPASSRLS for the role, or write as the owner of the table"


def require_primary(connection: psycopg.Connection[Any], name: Name) -> None:
    """Raises PermanentError PZ0741 for a standby."""
    if in_recovery(connection):
        message = f"target {name}: the server is a standby, which cannot be written"
        raise PermanentError(message, hint="connect to the primary", code=Code.PZ0741)


def require_permits(connection: psycopg.Connection[Any], output: OutputSpec, table: Table | None) -> None:
    """Raises PermanentError PZ0741 for the first thing that the write would be refused; without a table it is created."""
    name = Name.of(output.entity)
    _require_stage(connection, output, name, created=table is None)
    if table is None:  # who may create it may create the ledger, too
        return
    _require_schema(connection, output, name)
    _require_table(connection, output, table)
    _require_rows(connection, output, table)
    if output.strategy is WriteStrategy.APPEND and marks.wanted(output):
        marks.require_ledger(connection, name)


def _require_stage(connection: psycopg.Connection[Any], output: OutputSpec, name: Name, *, created: bool) -> None:
    """A temporary table is needed as `PostgresSession` chooses: not for what goes straight into the target, or into a twin."""
    evolving = output.schema_policy is SchemaPolicy.EVOLVE
    staged = {
        WriteStrategy.MERGE: True,
        WriteStrategy.APPEND: evolving and not created,
        WriteStrategy.REPLACE: not created and not _swaps(output),
    }[output.strategy]
    row = connection.execute(MAY_STAGE).fetchone() if staged else None
    if row is not None and not row[0]:
        raise _refusal(
            name,
            "the role of the connection may not create temporary tables, in which rows are staged",
            f"GRANT TEMPORARY ON DATABASE {quote(connection.info.dbname)} TO the role",
        )


def _require_schema(connection: psycopg.Connection[Any], output: OutputSpec, name: Name) -> None:
    needed = ["USAGE", "CREATE"] if _swaps(output) else ["USAGE"]
    lacking = [row[0] for row in connection.execute(SCHEMA_PRIVILEGES, [needed, name.schema]).fetchall()]
    if lacking:
        schema = quote(name.schema)
        raise _refusal(
            name,
            f"the role of the connection lacks {', '.join(lacking)} on the schema {schema}",
            f"GRANT {', '.join(lacking)} ON SCHEMA {schema} TO the role",
        )


def _require_table(connection: psycopg.Connection[Any], output: OutputSpec, table: Table) -> None:
    needed = {
        WriteStrategy.APPEND: ["INSERT"],
        WriteStrategy.MERGE: ["INSERT", "UPDATE", "SELECT"],
        WriteStrategy.REPLACE: ["INSERT", "SELECT"],
    }[output.strategy]
    if output.strategy is WriteStrategy.REPLACE and not _swaps(output):
        needed = [*needed, "DELETE" if output.options.get("replace_method") == "delete" else "TRUNCATE"]
    lacking = [row[0] for row in connection.execute(PRIVILEGES, [needed, table.oid]).fetchall()]
    if lacking:
        raise _refusal(
            table.name,
            f"the role of the connection lacks {', '.join(lacking)}",
            f"GRANT {', '.join(lacking)} ON {table.name.quoted} TO the role",
        )


def _require_rows(connection: psycopg.Connection[Any], output: OutputSpec, table: Table) -> None:
    """Row security hides old rows that are to go, and takes new ones by INSERT only, which an append does to evolve."""
    row = connection.execute(FILTERED, [table.oid]).fetchone()
    if row is None or not row[0]:
        return
    deleting = output.on_delete in {OnDelete.DELETE, OnDelete.SOFT}
    if deleting or (output.strategy is WriteStrategy.REPLACE and output.options.get("replace_method") == "delete"):
        raise _refusal(
            table.name,
            "row security hides rows of it from the role of the connection, which then stay undeleted",
            BYPASS,
        )
    if output.strategy is WriteStrategy.APPEND and output.schema_policy is not SchemaPolicy.EVOLVE:
        raise _refusal(
            table.name,
            "row security holds for the role of the connection, and the server takes no COPY then",
            f"{BYPASS}; or use `schema_policy: evolve`, which inserts row by row under the policies",
        )


def _swaps(output: OutputSpec) -> bool:
    return output.strategy is WriteStrategy.REPLACE and output.options.get("replace_method") == "swap"


def _refusal(name: Name, message: str, hint: str) -> PermanentError:
    return PermanentError(f"target {name}: {message}", hint=hint, code=Code.PZ0741)
