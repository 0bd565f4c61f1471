"""``replace_method: swap``: a new table is filled beside the old one and takes its place and name.

Readers wait only for the rename. What hangs on a table and would be lost with it makes the swap refuse; what can be carried
over is: columns, defaults, identity, indexes, constraints, comments, storage options, replica identity, grants.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pz.connectors.postgres.catalog import Name, Table
from pz.durable import Step, step
from pz.errors import Code, PermanentError
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import psycopg

__all__ = ["create_twin", "refuse_if_attached", "take_place"]

# What a new table would not have, or what would break when the old one goes.
ATTACHED = """
SELECT what FROM (VALUES
    ('triggers', EXISTS (SELECT FROM pg_trigger WHERE tgrelid = %(oid)s::oid AND NOT tgisinternal)),
    ('rules', EXISTS (SELECT FROM pg_rewrite WHERE ev_class = %(oid)s::oid)),
    ('row security', (SELECT relrowsecurity FROM pg_class WHERE oid = %(oid)s::oid)
        OR EXISTS (SELECT FROM pg_policy WHERE polrelid = %(oid)s::oid)),
    ('foreign keys', EXISTS (SELECT FROM pg_constraint
        WHERE contype = 'f' AND (conrelid = %(oid)s::oid OR confrelid = %(oid)s::oid))),
    ('views or functions that use it', EXISTS (SELECT FROM pg_depend
        WHERE refclassid = 'pg_class'::regclass AND refobjid = %(oid)s::oid AND deptype = 'n'
          AND classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass))),
    ('a publication', EXISTS (SELECT FROM pg_publication_rel WHERE prrelid = %(oid)s::oid)),
    ('column privileges', EXISTS (SELECT FROM pg_attribute WHERE attrelid = %(oid)s::oid AND attacl IS NOT NULL)),
    ('another owner', NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = %(oid)s::oid
        AND pg_get_userbyid(c.relowner) = current_user)),
    ('a tablespace of its own', EXISTS (SELECT FROM pg_class WHERE oid = %(oid)s::oid AND reltablespace <> 0)),
    ('inheritance or partitions', EXISTS (SELECT FROM pg_inherits
        WHERE inhparent = %(oid)s::oid OR inhrelid = %(oid)s::oid))
) AS found(what, there) WHERE there
"""

OPTIONS = "SELECT relpersistence = 'u', reloptions, obj_description(oid, 'pg_class') FROM pg_class WHERE oid = %s::oid"

GRANTS = """
SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, a.privilege_type, a.is_grantable
FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = %s::oid AND a.grantee <> c.relowner
"""

INDEXES = """
SELECT c.relname, pg_get_indexdef(c.oid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %s::regclass ORDER BY 1
"""

# Sequences that go with a column: of serial columns (to be handed over) and of identity columns (to be continued).
SEQUENCES = """
SELECT d.objid::regclass::text, a.attname, d.deptype FROM pg_depend d
JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE d.classid = 'pg_class'::regclass AND d.refobjid = %s::oid AND d.deptype IN ('a', 'i')
"""


# What LIKE leaves out, as statements for a table of the same name and with the same names of indexes.
LEFT_OUT = """
SELECT CASE relreplident
    WHEN 'f' THEN format('ALTER TABLE %%s REPLICA IDENTITY FULL', %(name)s::text)
    WHEN 'n' THEN format('ALTER TABLE %%s REPLICA IDENTITY NOTHING', %(name)s::text) END
FROM pg_class WHERE oid = %(oid)s::oid AND relreplident IN ('f', 'n')
UNION ALL SELECT format('ALTER TABLE %%s REPLICA IDENTITY USING INDEX %%I', %(name)s::text, c.relname)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %(oid)s::oid AND i.indisreplident
UNION ALL SELECT format('ALTER TABLE %%s CLUSTER ON %%I', %(name)s::text, c.relname)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %(oid)s::oid AND i.indisclustered
UNION ALL SELECT format('ALTER TABLE %%s ALTER COLUMN %%I SET STATISTICS %%s', %(name)s::text, attname, attstattarget)
FROM pg_attribute WHERE attrelid = %(oid)s::oid AND attnum > 0 AND NOT attisdropped AND attstattarget >= 0
"""


def refuse_if_attached(connection: psycopg.Connection[Any], table: Table) -> None:
    """Raises PermanentError PZ0741 when something hangs on the table that a swap would lose or break."""
    attached = [row[0] for row in connection.execute(ATTACHED, {"oid": table.oid}).fetchall()]
    if table.kind != "r":
        attached.append(f"it is a {table.kind_shown}")
    if attached:
        raise PermanentError(
            f"target {table.name}: cannot be swapped for a new table, because of {', '.join(attached)}",
            hint="use replace_method: truncate or delete",
            code=Code.PZ0741,
        )


def create_twin(connection: psycopg.Connection[Any], table: Table, suffix: str) -> Name:
    """An empty table like the target, in the same transaction in which it will be swapped in."""
    twin = Name(table.name.schema, f"_pz_new_{suffix}")
    row = connection.execute(OPTIONS, [table.oid]).fetchone()
    unlogged, options, comment = row if row else (False, None, None)
    kind = "UNLOGGED TABLE" if unlogged else "TABLE"
    with step(Step.SINK_PREPARE):
        connection.execute(f"CREATE {kind} {twin.quoted} (LIKE {table.name.quoted} INCLUDING ALL)")
        if options:
            connection.execute(f"ALTER TABLE {twin.quoted} SET ({', '.join(options)})")
        if comment:
            connection.execute(f"COMMENT ON TABLE {twin.quoted} IS {literal(comment)}")
        for grantee, privilege, grantable in connection.execute(GRANTS, [table.oid]).fetchall():
            option = " WITH GRANT OPTION" if grantable else ""
            connection.execute(f"GRANT {privilege} ON {twin.quoted} TO {grantee}{option}")
    return twin


def take_place(connection: psycopg.Connection[Any], table: Table, twin: Name) -> None:
    """Drop the old table and give its name, its sequences and its indexes' names to the new one."""
    with step(Step.SINK_WRITE):
        connection.execute(f"LOCK TABLE {table.name.quoted} IN ACCESS EXCLUSIVE MODE")
        refuse_if_attached(connection, table)
        _hand_over_sequences(connection, table, twin)
        old = _indexes(connection, table.name)
        new = _indexes(connection, twin)
        left_out = connection.execute(LEFT_OUT, {"oid": table.oid, "name": table.name.quoted}).fetchall()
        connection.execute(f"DROP TABLE {table.name.quoted}")
        connection.execute(f"ALTER TABLE {twin.quoted} RENAME TO {quote(table.name.table)}")
        for definition, names in old.items():
            for before, now in zip(names, new.get(definition, ()), strict=False):
                if before != now:
                    schema = quote(table.name.schema)
                    connection.execute(f"ALTER INDEX {schema}.{quote(now)} RENAME TO {quote(before)}")
        for (statement,) in left_out:
            connection.execute(statement)


def _hand_over_sequences(
    connection: psycopg.Connection[Any], table: Table, twin: Name
) -> None:  # durable: ok - called inside the step of take_place
    for sequence, column, kind in connection.execute(SEQUENCES, [table.oid]).fetchall():
        if kind == "a":
            connection.execute(f"ALTER SEQUENCE {sequence} OWNED BY {twin.quoted}.{quote(column)}")
        else:
            connection.execute(
                f"SELECT setval(pg_get_serial_sequence({literal(twin.quoted)}, {literal(column)}), last_value, is_called) "
                f"FROM {sequence}"
            )


def _indexes(connection: psycopg.Connection[Any], name: Name) -> dict[str, list[str]]:
    """Names of indexes by their definition, without the names of index and table in it."""
    found: dict[str, list[str]] = {}
    for index, definition in connection.execute(INDEXES, [name.quoted]).fetchall():
        plain = re.sub(r"^(CREATE (?:UNIQUE )?INDEX) .*? ON .*? USING ", r"\1 USING ", definition)
        found.setdefault(plain, []).append(index)
    return found
