"""What change capture needs of the server, the publication and the table: looked at together, told together.

pz never changes any of it: each missing piece comes with the statement to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import DatasetSpec
from pz.connectors.postgres.catalog import Table
from pz.connectors.postgres.position import Shape
from pz.connectors.postgres.slots import find_slot, fold, slot_name
from pz.connectors.postgres.storage import storage_of
from pz.errors import Code, PermanentError
from pz.frozen import frozen
from pz.sqltext import quote

if TYPE_CHECKING:
    import psycopg

__all__ = ["Publication", "capture_shape", "missing", "publication_name", "require"]

MIN_VERSION = 140_000
SETTING = "change it in postgresql.conf or with ALTER SYSTEM, then restart the server"

SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery(),
       (SELECT rolreplication OR rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user), current_user::text,
       current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_catalog.pg_replication_slots)::int,
       current_setting('max_wal_senders')::int
"""

PUBLICATION = """
SELECT p.oid::int8, p.xmin::text, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot,
       (SELECT to_jsonb(t) FROM pg_catalog.pg_publication_tables t
        WHERE t.pubname = p.pubname AND t.schemaname = %(schema)s AND t.tablename = %(table)s),
       (SELECT r.oid::int8::text || ':' || r.xmin::text FROM pg_catalog.pg_publication_rel r
        WHERE r.prpubid = p.oid AND r.prrelid = %(oid)s::oid),
       ARRAY(SELECT a.relid::text FROM pg_catalog.pg_partition_ancestors(%(oid)s::oid::regclass) a
             JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = a.relid
             WHERE a.relid <> %(oid)s::oid)
FROM pg_catalog.pg_publication p WHERE p.pubname = %(name)s
"""

# Since PostgreSQL 15 a table may also be published with all of its schema.
SCHEMA_MEMBERSHIP = """
SELECT n.oid::int8::text || ':' || n.xmin::text FROM pg_catalog.pg_publication_namespace n
JOIN pg_catalog.pg_publication p ON p.oid = n.pnpubid
WHERE p.pubname = %s AND n.pnnspid = (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = %s::oid)
"""
WITH_SCHEMAS = 150_000

TABLE = """
SELECT c.relpersistence, has_table_privilege(c.oid, 'SELECT'),
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
             ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
             WHERE i.indrelid = c.oid AND i.indisreplident ORDER BY array_position(i.indkey::int2[], a.attnum)),
       pg_catalog.row_security_active(c.oid)
FROM pg_catalog.pg_class c WHERE c.oid = %s::oid
"""

UNLOGGED_PARTS = """
SELECT c.relname FROM pg_catalog.pg_partition_tree(%s::oid::regclass) t
JOIN pg_catalog.pg_class c ON c.oid = t.relid WHERE t.isleaf AND c.relpersistence <> 'p'
"""

SHAPE = """
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system())::int8,
       (SELECT jsonb_object_agg(attname, jsonb_build_array(attnum, atttypid::int8, atttypmod))
        FROM pg_catalog.pg_attribute WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '')
"""


@frozen
class Publication:
    """A publication as it concerns one table. ``identity`` changes whenever it is altered, or the table taken out of it."""

    identity: str
    operations: Mapping[str, bool]
    via_root: bool
    member: Mapping[str, Any] | None
    published_as: tuple[str, ...] = ()
    """The partitioned tables above it that the publication holds."""


def publication_name(dataset: DatasetSpec) -> str:
    """As declared, else ``pz_<connection>``."""
    return str(dataset.options.get("publication") or fold(f"pz_{dataset.connection}"))


def find_publication(connection: psycopg.Connection[Any], name: str, table: Table) -> Publication | None:
    """The publication of this name; None when there is none."""
    wanted = {"name": name, "schema": table.name.schema, "table": table.name.table, "oid": table.oid}
    row = connection.execute(PUBLICATION, wanted).fetchone()
    if row is None:
        return None
    oid, xmin, insert, update, delete, truncate, via_root, member, membership, above = row
    operations = {"insert": insert, "update": update, "delete": delete, "truncate": truncate}
    identity = f"{oid}:{xmin} {membership or ''}{_schema_membership(connection, name, table)}"
    return Publication(identity, operations, via_root, member, tuple(above))


def _schema_membership(connection: psycopg.Connection[Any], name: str, table: Table) -> str:
    if connection.info.server_version < WITH_SCHEMAS:
        return ""
    row = connection.execute(SCHEMA_MEMBERSHIP, [name, table.oid]).fetchone()
    return f" schema {row[0]}" if row else ""


def require(connection: psycopg.Connection[Any], dataset: DatasetSpec, table: Table) -> None:
    """Raises PermanentError PZ0743 with everything that is missing and how to come by it."""
    problems = list(missing(connection, dataset, table))
    if problems:
        raise PermanentError(
            f"table {table.name} cannot be captured: " + "; ".join(what for what, _ in problems),
            hint="; ".join(dict.fromkeys(fix for _, fix in problems)),
            code=Code.PZ0743,
        )


def missing(connection: psycopg.Connection[Any], dataset: DatasetSpec, table: Table) -> Iterator[tuple[str, str]]:
    """What is missing, each with its fix."""
    yield from _of_server(connection, dataset)
    yield from _of_table(connection, table)
    yield from _of_publication(connection, publication_name(dataset), table)


def _of_server(connection: psycopg.Connection[Any], dataset: DatasetSpec) -> Iterator[tuple[str, str]]:
    version, level, standby, replicates, role, free, senders = connection.execute(SERVER).fetchone() or (0,) * 7
    if version < MIN_VERSION:
        yield f"PostgreSQL {version // 10_000} is too old", "use PostgreSQL 14 or later"
    if level != "logical":
        yield f"wal_level is {level}", f"ALTER SYSTEM SET wal_level = 'logical' ({SETTING})"
    if standby:
        yield "the server is a standby", "connect to the primary"
    if not replicates:
        yield f"role {quote(str(role))} may not replicate", f"ALTER ROLE {quote(str(role))} REPLICATION"
    if senders < 1:
        yield "max_wal_senders is 0", f"ALTER SYSTEM SET max_wal_senders = 10 ({SETTING})"
    if free < 1 and find_slot(connection, slot_name(dataset)) is None:
        yield "no replication slot is free", f"drop unused ones, or ALTER SYSTEM SET max_replication_slots ({SETTING})"


def _of_table(connection: psycopg.Connection[Any], table: Table) -> Iterator[tuple[str, str]]:
    if table.kind not in "rp":
        yield f"it is a {table.kind_shown}", "capture the tables behind it"
        return
    persistence, readable, _, filtered = connection.execute(TABLE, [table.oid]).fetchone() or ("p", True, [], False)
    if table.kind == "r" and table.has_children:
        yield "other tables inherit from it, whose rows the log has under their own names", "capture each of the tables"
    if filtered:
        yield (
            "row security hides rows of it from the role of the connection, and the log does not",
            "ALTER ROLE ... BYPASSRLS for the role of the connection, or capture as the owner of the table",
        )
    for (part,) in connection.execute(UNLOGGED_PARTS, [table.oid]).fetchall() if table.kind == "p" else ():
        yield f"its partition {quote(part)} is not logged", f"ALTER TABLE {quote(part)} SET LOGGED"
    if persistence != "p":
        yield "it is not logged", f"ALTER TABLE {table.name.quoted} SET LOGGED"
    if not readable:
        yield "it may not be read", f"GRANT SELECT ON {table.name.quoted} TO the role of the connection"
    if not key_columns(connection, table) and table.primary_key:
        why = "NOTHING" if table.replica_identity == "n" else "an index that was dropped"
        yield f"its replica identity is {why}", f"ALTER TABLE {table.name.quoted} REPLICA IDENTITY DEFAULT"
    elif not key_columns(connection, table):
        yield (
            "it has no primary key and no replica identity that tells rows apart",
            f"ALTER TABLE {table.name.quoted} ADD PRIMARY KEY (...), or REPLICA IDENTITY USING INDEX ...",
        )


def _of_publication(connection: psycopg.Connection[Any], name: str, table: Table) -> Iterator[tuple[str, str]]:
    published = find_publication(connection, name, table)
    if published is None:
        yield (
            f"there is no publication {quote(name)}",
            f"CREATE PUBLICATION {quote(name)} FOR TABLE {table.name.quoted}{_via_root(table)}",
        )
        return
    unpublished = [operation for operation, there in published.operations.items() if not there]
    if unpublished:
        yield (
            f"publication {quote(name)} leaves out {', '.join(unpublished)}",
            f"ALTER PUBLICATION {quote(name)} SET (publish = 'insert, update, delete, truncate')",
        )
    if table.kind == "p" and not published.via_root:
        yield (
            f"publication {quote(name)} publishes its partitions, not the partitioned table",
            f"ALTER PUBLICATION {quote(name)} SET (publish_via_partition_root = true)",
        )
    elif published.member is None and published.via_root and published.published_as:
        above = ", ".join(published.published_as)
        yield (
            f"publication {quote(name)} publishes it as a part of {above}",
            f"capture {above}, or name a publication of its own with `publication:`",
        )
    elif published.member is None:
        yield (
            f"publication {quote(name)} does not hold it",
            f"ALTER PUBLICATION {quote(name)} ADD TABLE {table.name.quoted}",
        )
    else:
        yield from _of_member(name, published.member, table)


def _of_member(name: str, member: Mapping[str, Any], table: Table) -> Iterator[tuple[str, str]]:
    """Since PostgreSQL 15 a table may be published in part; what is left out would be lost."""
    columns = member.get("attnames")
    omitted = [c.name for c in table.columns if columns is not None and not c.generated and c.name not in columns]
    fix = f"ALTER PUBLICATION {quote(name)} DROP TABLE {table.name.quoted}, then ADD TABLE {table.name.quoted}"
    if omitted:
        yield f"publication {quote(name)} leaves out column(s) {', '.join(map(quote, omitted))}", fix
    if member.get("rowfilter"):
        yield f"publication {quote(name)} filters its rows", fix


def _via_root(table: Table) -> str:
    return " WITH (publish_via_partition_root = true)" if table.kind == "p" else ""


def key_columns(connection: psycopg.Connection[Any], table: Table) -> tuple[str, ...]:
    """The columns that a delete carries: of the index of the replica identity, else the primary key; empty for none."""
    if table.replica_identity == "i":
        row = connection.execute(TABLE, [table.oid]).fetchone()
        return tuple(row[2]) if row else ()
    return () if table.replica_identity == "n" else table.primary_key


def capture_shape(connection: psycopg.Connection[Any], dataset: DatasetSpec, table: Table) -> Shape:
    """What a position taken now is about."""
    row = connection.execute(SHAPE, [table.oid]).fetchone()
    assert row is not None
    published = find_publication(connection, publication_name(dataset), table)
    columns = {name: (found[0], found[1], found[2]) for name, found in row[1].items()}
    keys = key_columns(connection, table)
    identity = published.identity if published else ""
    return Shape(int(row[0]), table.oid, identity, keys, columns, storage_of(connection, table))
