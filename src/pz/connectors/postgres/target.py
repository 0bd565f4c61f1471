"""The table that is written to: checked, created or widened before the first row, inside the write's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import OnDelete, OutputSpec, SchemaPolicy, WriteStrategy
from pz.connectors.deletes import DELETED_AT
from pz.connectors.postgres.catalog import Attribute, Name, PgType, Table, find_table
from pz.connectors.postgres.encode import WriteColumn
from pz.connectors.postgres.fit import created_type, fits, widened
from pz.durable import Step, step
from pz.errors import Code, PermanentError
from pz.frozen import frozen
from pz.sqltext import quote

if TYPE_CHECKING:
    import psycopg

__all__ = ["Target", "check_target", "prepare_target"]

MAX_NAME_BYTES = 63
_WRITABLE = frozenset("rpf")

MAY_CREATE = "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace WHERE nspname = %s"


@frozen(slots=False)
class Target:
    """The table as it stands when rows begin to flow. ``columns`` are those that are written, in the relation's order."""

    name: Name
    table: Table
    columns: tuple[WriteColumn, ...]
    created: bool

    def attribute(self, name: str) -> Attribute:
        """The target's column behind a written one."""
        found = self.table.column(name)
        assert found is not None
        return found

    @property
    def types(self) -> list[PgType]:
        """The types of the written columns in the target."""
        return [self.attribute(column.name).type for column in self.columns]

    @property
    def listed(self) -> str:
        """The written columns, quoted, for SQL."""
        return ", ".join(quote(column.name) for column in self.columns)

    @property
    def overriding(self) -> str:
        """What INSERT needs to write a value into a GENERATED ALWAYS AS IDENTITY column."""
        always = any(self.attribute(column.name).identity == "a" for column in self.columns)
        return " OVERRIDING SYSTEM VALUE" if always else ""


def check_target(connection: psycopg.Connection[Any], output: OutputSpec) -> Table | None:
    """What can be told before the relation exists: None when the target will be created.

    Raises:
        PermanentError: PZ0741 when the target cannot be written as asked.
    """
    name = Name.of(output.entity)
    if name.schema == "information_schema" or name.schema.startswith("pg_"):
        raise _refusal(output, "its schema belongs to the server itself", "write to a schema of your own")
    table = find_table(connection, name)
    if table is None:
        schema = quote(name.schema)
        row = connection.execute(MAY_CREATE, [name.schema]).fetchone()
        if row is None:
            raise _refusal(output, f"the schema {schema} does not exist", "create the schema; pz creates tables only")
        if not row[0]:
            hint = f"create the table, or GRANT CREATE ON SCHEMA {schema} TO the role"
            raise _refusal(output, f"it does not exist, and the role may not create it in the schema {schema}", hint)
        return None
    if table.kind not in _WRITABLE:
        raise _refusal(output, f"it is a {table.kind_shown}", "write to a table")
    if output.strategy is WriteStrategy.MERGE:
        _require_keys(output, table)
        _require_marker(output, table)
    return table


def prepare_target(connection: psycopg.Connection[Any], output: OutputSpec, columns: Sequence[WriteColumn]) -> Target:
    """Create the target, or fit it to the columns as the schema policy allows."""
    _require_names(output, columns)
    table = check_target(connection, output)
    if table is None:
        return _create(connection, output, columns)
    missing = [column for column in columns if table.column(column.name) is None]
    differing = [
        column for column in columns if column not in missing and not fits(column.duckdb, _type(table, column))
    ]
    if missing or differing or _lacks_marker(output, table):
        table = _evolve(connection, output, table, missing, differing)
    _require_filled(output, table, columns)
    written = tuple(column for column in columns if not _attribute(table, column).generated)
    return Target(table.name, table, written, created=False)


# --- creation


def _create(connection: psycopg.Connection[Any], output: OutputSpec, columns: Sequence[WriteColumn]) -> Target:
    name = Name.of(output.entity)
    lines = [f"{quote(column.name)} {_ddl_type(output, column)}" for column in columns]
    if output.on_delete is OnDelete.SOFT and DELETED_AT not in {column.name for column in columns}:
        lines.append(f"{quote(DELETED_AT)} timestamptz")
    if output.strategy is WriteStrategy.MERGE:
        lines.append(f"PRIMARY KEY ({', '.join(quote(key) for key in output.keys)})")
    with step(Step.SINK_PREPARE):
        connection.execute(f"CREATE TABLE {name.quoted} (\n    " + ",\n    ".join(lines) + "\n)")
    table = find_table(connection, name)
    assert table is not None
    return Target(name, table, tuple(columns), created=True)


def _ddl_type(output: OutputSpec, column: WriteColumn) -> str:
    made = created_type(column.duckdb)
    if made is None:
        raise _refusal(
            output,
            f"column {quote(column.name)} is {column.duckdb}, for which there is no PostgreSQL type",
            "cast it in the pipeline, for example to VARCHAR",
        )
    return made


# --- schema policies


def _evolve(
    connection: psycopg.Connection[Any],
    output: OutputSpec,
    table: Table,
    missing: Sequence[WriteColumn],
    differing: Sequence[WriteColumn],
) -> Table:
    """Bring the table up to the relation as far as the policy goes; refuse the rest, all of it in one error."""
    evolving = output.schema_policy is SchemaPolicy.EVOLVE
    wider = {column.name: widened(column.duckdb, _type(table, column)) if evolving else None for column in differing}
    problems = [] if evolving else [f"it has no column {quote(column.name)}" for column in missing]
    problems += [
        f"column {quote(column.name)} is {_attribute(table, column).shown}, what is written is {column.duckdb}"
        for column in differing
        if wider[column.name] is None
    ]
    if problems:
        raise _refusal(
            output,
            "; ".join(problems),
            "cast or leave out the columns in the pipeline, change the table, or use `schema_policy: evolve` where it "
            "can help (new columns, wider numbers and texts)",
        )
    changes = [f"ALTER COLUMN {quote(name)} TYPE {kind}" for name, kind in wider.items()]
    changes += [f"ADD COLUMN {quote(column.name)} {_ddl_type(output, column)}" for column in missing]
    if _lacks_marker(output, table) and DELETED_AT not in {column.name for column in missing}:
        changes.append(f"ADD COLUMN {quote(DELETED_AT)} timestamptz")
    with step(Step.SINK_PREPARE):
        connection.execute(f"ALTER TABLE {table.name.quoted} " + ", ".join(changes))
    changed = find_table(connection, table.name)
    assert changed is not None
    return changed


def _lacks_marker(output: OutputSpec, table: Table) -> bool:
    return output.on_delete is OnDelete.SOFT and table.column(DELETED_AT) is None


def _require_marker(output: OutputSpec, table: Table) -> None:
    if _lacks_marker(output, table) and output.schema_policy is SchemaPolicy.FAIL_ON_CHANGE:
        raise _refusal(
            output,
            f"it has no column {quote(DELETED_AT)}, which `on_delete: soft` stamps",
            f"add the column ({DELETED_AT} timestamptz), or use `schema_policy: additive`",
        )


# --- requirements


def _require_names(output: OutputSpec, columns: Sequence[WriteColumn]) -> None:
    long = [column.name for column in columns if len(column.name.encode()) > MAX_NAME_BYTES]
    if len(Name.of(output.entity).table.encode()) > MAX_NAME_BYTES:
        long.append(output.entity)
    if long:
        raise _refusal(
            output,
            f"PostgreSQL cuts names at {MAX_NAME_BYTES} bytes: {', '.join(quote(name) for name in long)}",
            "choose shorter names",
        )
    absent = [key for key in output.keys if key not in {column.name for column in columns}]
    if absent:
        raise _refusal(output, f"merge key(s) {', '.join(map(quote, absent))} are not in what is written", None)
    if not columns:
        raise _refusal(output, "there is no column to write", None)


def _require_keys(output: OutputSpec, table: Table) -> None:
    """A merge resolves conflicts on its keys and on nothing else, so a unique index on exactly these must exist."""
    absent = [key for key in output.keys if table.column(key) is None]
    if absent:
        raise _refusal(output, f"it has no column {', '.join(map(quote, absent))}, a merge key", None)
    if table.kind == "r" and table.has_children:
        raise PermanentError(
            f"target {table.name}: other tables inherit from it, and no unique index covers their rows",
            hint="merge into the tables that hold the rows, or use declarative partitions",
            code=Code.PZ0742,
        )
    wanted = set(output.keys)
    if not any(set(index.columns) == wanted for index in table.unique):
        keys = ", ".join(quote(key) for key in output.keys)
        raise PermanentError(
            f"target {table.name}: no unique index on exactly the merge keys ({keys})",
            hint=f"CREATE UNIQUE INDEX ON {table.name.quoted} ({keys}); "
            "partial, deferrable and expression indexes do not count",
            code=Code.PZ0742,
        )


def _require_filled(output: OutputSpec, table: Table, columns: Sequence[WriteColumn]) -> None:
    written = {column.name for column in columns}
    unfilled = [
        column.name
        for column in table.columns
        if column.not_null and not column.has_default and column.name not in written and not column.generated
    ]
    if unfilled:
        raise _refusal(
            output,
            f"column(s) {', '.join(map(quote, unfilled))} are NOT NULL without a default, and are not written",
            "write the columns, or give them a default",
        )


def _attribute(table: Table, column: WriteColumn) -> Attribute:
    found = table.column(column.name)
    assert found is not None
    return found


def _type(table: Table, column: WriteColumn) -> Any:
    return _attribute(table, column).type


def _refusal(output: OutputSpec, message: str, hint: str | None) -> PermanentError:
    return PermanentError(f"target {Name.of(output.entity)}: {message}", hint=hint, code=Code.PZ0741)
