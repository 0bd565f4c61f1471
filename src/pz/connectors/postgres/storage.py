"""What the log does not tell: rows of a captured table that came, went or changed with their files.

TRUNCATE, DETACH and DROP of a partition, ATTACH of a table that has rows, and ALTER TABLE with a rewrite leave no change of a
row behind. They do leave traces in the catalogue, so the traces are stored with the position and compared by the next poll.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pz.connectors.postgres.catalog import Table
from pz.frozen import frozen
from pz.sqltext import literal, qualified, quote

if TYPE_CHECKING:
    import psycopg

__all__ = ["Files", "Storage", "filled_at_rest", "moved_rows", "storage_of"]

# The table, or all that it consists of.
TREE = """
(SELECT %(oid)s::oid AS relid UNION SELECT relid::oid FROM pg_catalog.pg_partition_tree(%(oid)s::oid::regclass)) t
"""

# Each with its name and its file; 0 for what has none.
RELATIONS = f"""
SELECT c.oid::text, n.nspname, c.relname, coalesce(pg_catalog.pg_relation_filenode(c.oid), 0)::int8
FROM {TREE} JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""

# A column's row in the catalogue is a new one after each ALTER of the column, and the same after VACUUM FULL or CLUSTER.
TOUCHED = """
SELECT attname, xmin::text FROM pg_catalog.pg_attribute WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped
"""

# Columns for which rows at rest have got a value that no change in the log has.
FILLED = f"""
SELECT DISTINCT a.attname::text FROM {TREE} JOIN pg_catalog.pg_attribute a ON a.attrelid = t.relid WHERE a.atthasmissing
"""

# The transaction that put a relation below another, and the place of the statement in it.
ATTACHED = "SELECT xmin::text, cmin::text::int8 FROM pg_catalog.pg_inherits WHERE inhrelid = ANY (%s::oid[])"

# Whether a partition holds rows that are older than the moment at which it, or what it belongs to, was attached.
OLDER = """
SELECT EXISTS (SELECT FROM {source} WHERE tableoid = {oid}::oid
               AND (age(xmin) > age({moment}::xid) OR (xmin = {moment}::xid AND cmin::text::int8 < {place})))
"""
LINE = "SELECT relid::oid::text FROM pg_catalog.pg_partition_ancestors(%s::oid::regclass)"


Files = Mapping[str, tuple[str, int]]


@frozen
class Storage:
    """``files`` maps the oids of a table and its partitions to name and file; ``touched`` its columns to their last ALTER."""

    files: Files = field(default_factory=dict)
    touched: Mapping[str, str] = field(default_factory=dict)

    def of(self, columns: Collection[str]) -> Storage:
        """The same for some of the columns."""
        return Storage(self.files, {name: mark for name, mark in self.touched.items() if name in columns})

    def to_json(self) -> dict[str, Any]:
        """As a part of a token."""
        return {"files": {oid: list(found) for oid, found in self.files.items()}, "touched": dict(self.touched)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Storage:
        """The inverse; of a token that has none, nothing."""
        files = {oid: (str(name), int(file)) for oid, (name, file) in content.get("files", {}).items()}
        return cls(files, dict(content.get("touched", {})))


def storage_of(connection: psycopg.Connection[Any], table: Table) -> Storage:
    """As it is now."""
    found = connection.execute(RELATIONS, {"oid": table.oid}).fetchall()
    files = {oid: (qualified(schema, name), int(file)) for oid, schema, name, file in found}
    return Storage(files, dict(connection.execute(TOUCHED, [table.oid]).fetchall()))


def filled_at_rest(connection: psycopg.Connection[Any], table: Table) -> frozenset[str]:
    """Columns that were added with a default, whether or not it is still declared."""
    return frozenset(name for (name,) in connection.execute(FILLED, {"oid": table.oid}).fetchall())


def moved_rows(
    connection: psycopg.Connection[Any], table: Table, before: Storage, now: Storage, *, retyped: bool
) -> Iterator[str]:
    """What happened to rows unseen. ``retyped``: a column was given a wider type, for which rows are rewritten as they are."""
    if not before.files:
        return
    if table.kind == "p":
        yield from _partitions(connection, table, before.files, now.files)
    elif not retyped and now.files != before.files:
        altered = sorted(quote(name) for name, mark in now.touched.items() if before.touched.get(name) != mark)
        if altered:
            yield f"column {', '.join(altered)} was altered and all rows were rewritten, perhaps with other values"


def _partitions(connection: psycopg.Connection[Any], root: Table, before: Files, now: Files) -> Iterator[str]:
    for oid, (name, file) in before.items():
        if oid not in now:
            yield f"partition {name} was detached or dropped, and its rows with it"
        elif now[oid][1] != file:
            yield f"partition {name} was truncated or rewritten (TRUNCATE, VACUUM FULL, CLUSTER, ALTER TABLE)"
    for oid in now:
        if oid not in before and now[oid][1] and _came_with_rows(connection, root, oid, before, now):
            yield f"partition {now[oid][0]} was attached with rows in it"


def _came_with_rows(connection: psycopg.Connection[Any], root: Table, oid: str, before: Files, now: Files) -> bool:
    """A new partition is made empty, and what is inserted into it from then on is in the log. Not so what it brings along."""
    line = [relation for (relation,) in connection.execute(LINE, [oid]).fetchall()]
    new = [int(relation) for relation in line if relation in now and relation not in before]
    readable = connection.execute("SELECT has_table_privilege(%s::oid, 'SELECT')", [oid]).fetchone() == (True,)
    source = now[oid][0] if readable else root.name.quoted
    return any(
        connection.execute(OLDER.format(source=source, oid=oid, moment=literal(moment), place=int(place))).fetchone()
        == (True,)
        for moment, place in connection.execute(ATTACHED, [new]).fetchall()
    )
