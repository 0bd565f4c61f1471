"""What the catalogue says about a table or the result of a query: columns with their types, indexes, size.

Names are exact: what a project writes as ``schema.table`` is compared byte for byte, no folding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pz.errors import Code, PermanentError
from pz.frozen import frozen
from pz.sqltext import qualified

if TYPE_CHECKING:
    import psycopg

__all__ = [
    "DEFAULT_SCHEMA",
    "Attribute",
    "Name",
    "PgType",
    "Table",
    "UniqueIndex",
    "describe_query",
    "find_table",
    "in_recovery",
    "table_names",
]

DEFAULT_SCHEMA = "public"
_KINDS = {"r": "table", "p": "partitioned table", "v": "view", "m": "materialized view", "f": "foreign table"}

TABLE = """
SELECT c.oid::int8, c.relkind, c.relispartition, c.reltuples::float8, pg_catalog.pg_table_size(c.oid)::int8,
       pg_catalog.pg_relation_size(c.oid)::int8 / pg_catalog.current_setting('block_size')::int8,
       c.relreplident, EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

TABLE_NAMES = """
SELECT n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s) THEN n.nspname = %(schema)s
           ELSE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' END
ORDER BY 1, 2 LIMIT 10000
"""

# A partitioned table holds nothing itself: its size is the sum over its leaves.
PARTITIONED_SIZE = """
SELECT coalesce(sum(c.reltuples) FILTER (WHERE c.reltuples >= 0), -1)::float8,
       coalesce(sum(pg_catalog.pg_table_size(c.oid)), 0)::int8
FROM pg_catalog.pg_partition_tree(%s::oid::regclass) t JOIN pg_catalog.pg_class c ON c.oid = t.relid WHERE t.isleaf
"""

COLUMNS = """
SELECT a.attname, a.atttypid::int8, a.atttypmod, a.attndims, a.attnotnull, a.attidentity, a.attgenerated,
       a.atthasdef OR a.attidentity <> '' AS has_default, pg_catalog.format_type(a.atttypid, a.atttypmod)
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

# The types of some oids and whatever they are made of: bases of domains, elements of arrays.
TYPES = """
WITH RECURSIVE wanted(oid) AS (
    SELECT DISTINCT unnest(%s::int8[])::oid
    UNION
    SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END
    FROM pg_catalog.pg_type t JOIN wanted w ON w.oid = t.oid
    WHERE t.typtype = 'd' OR t.typelem <> 0
)
SELECT t.oid::int8, t.typname, n.nspname, t.typtype, t.typbasetype::int8, t.typtypmod, t.typelem::int8,
       EXISTS (SELECT FROM pg_catalog.pg_type e WHERE e.typarray = t.oid), t.typndims,
       pg_catalog.format_type(t.oid, NULL), t.typdelim,
       EXISTS (SELECT FROM pg_catalog.pg_cast c JOIN pg_catalog.pg_proc o ON o.oid = t.typoutput
               WHERE c.castsource = t.oid AND c.casttarget = 'pg_catalog.text'::regtype AND c.castmethod <> 'i'
                 AND (c.castmethod <> 'b' OR o.prosrc NOT IN ('textout', 'varcharout')))
FROM pg_catalog.pg_type t JOIN wanted w ON w.oid = t.oid JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
"""

# Unique indexes that hold for every row at every moment: no predicate, no expression, valid, checked at once.
UNIQUE_INDEXES = """
SELECT ic.relname, i.indisprimary, ARRAY(
    SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k(num, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num ORDER BY k.place)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
WHERE i.indrelid = %s::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indisprimary DESC, ic.relname
"""


@frozen
class Name:
    """A table's schema and name."""

    schema: str
    table: str

    @classmethod
    def of(cls, entity: str) -> Name:
        """Split ``schema.table`` at its one dot. Raises PermanentError for three parts."""
        parts = entity.split(".")
        if len(parts) > 2 or not all(parts):
            raise PermanentError(
                f"'{entity}' names no table: write table or schema.table",
                hint="for names that hold a dot, read through `query:`",
                code=Code.PZ0344,
            )
        return cls(DEFAULT_SCHEMA, parts[0]) if len(parts) == 1 else cls(parts[0], parts[1])

    @property
    def quoted(self) -> str:
        """Fit for SQL."""
        return qualified(self.schema, self.table)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@frozen
class PgType:
    """A type with everything below it resolved. ``kind`` is ``typtype``; ``modifier`` is -1 when there is none.

    ``delimiter`` stands between the elements of its arrays. ``own_text`` says that its cast to text is one of its own, and may
    say something else than the server prints.
    """

    oid: int
    name: str
    schema: str
    kind: str
    shown: str
    modifier: int = -1
    base: PgType | None = None
    element: PgType | None = None
    dimensions: int = 0
    delimiter: str = ","
    own_text: bool = False

    @property
    def builtin(self) -> str:
        """Its name where the server brings the type along, else nothing: anybody may call a type ``money``."""
        return self.name if self.schema == "pg_catalog" else ""

    @property
    def storage(self) -> PgType:
        """The type below all domains."""
        return self.base.storage if self.base is not None else self


@frozen
class Attribute:
    """A column of a table or a query."""

    name: str
    type: PgType
    not_null: bool = False
    identity: str = ""
    generated: bool = False
    has_default: bool = False
    shown: str = ""


@frozen
class UniqueIndex:
    """A unique index that holds for all rows."""

    name: str
    primary: bool
    columns: tuple[str, ...]


@frozen
class Table:
    """An existing table. ``rows`` is the planner's estimate, None before the first ANALYZE."""

    oid: int
    name: Name
    kind: str
    is_partition: bool
    rows: int | None
    bytes: int
    pages: int
    replica_identity: str
    has_children: bool
    columns: tuple[Attribute, ...]
    unique: tuple[UniqueIndex, ...]

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key; empty when there is none."""
        return next((index.columns for index in self.unique if index.primary), ())

    @property
    def kind_shown(self) -> str:
        """The kind of relation in words."""
        return _KINDS[self.kind]

    def column(self, name: str) -> Attribute | None:
        """The column of exactly this name."""
        return next((column for column in self.columns if column.name == name), None)


def in_recovery(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server is a standby: it cannot be written, and what it does not have may be there all the same."""
    row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    return bool(row and row[0])


def find_table(connection: psycopg.Connection[Any], name: Name) -> Table | None:
    """Look a table, view or foreign table up; None when there is none."""
    row = connection.execute(TABLE, [name.schema, name.table]).fetchone()
    if row is None:
        return None
    oid, kind, is_partition, rows, size, pages, identity, children = row
    if kind == "p":
        rows, size = connection.execute(PARTITIONED_SIZE, [oid]).fetchone() or (-1, 0)
    found = connection.execute(COLUMNS, [oid]).fetchall()
    types = load_types(connection, [column[1] for column in found])
    columns = tuple(_attribute(column, types) for column in found)
    indexes = connection.execute(UNIQUE_INDEXES, [oid]).fetchall()
    unique = tuple(UniqueIndex(index, primary, tuple(keys)) for index, primary, keys in indexes)
    estimate = int(rows) if rows is not None and rows >= 0 else None
    return Table(oid, name, kind, is_partition, estimate, size, pages, identity, children, columns, unique)


def table_names(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    """All that could be read in a schema; of one that is not there, in the whole database."""
    rows = connection.execute(TABLE_NAMES, {"schema": schema}).fetchall()
    return [str(Name(*row)) for row in rows]


def describe_query(connection: psycopg.Connection[Any], query: str) -> tuple[Attribute, ...]:
    """The columns of a query, without running it."""
    result = connection.execute(f"SELECT * FROM (\n{query}\n) AS q LIMIT 0").pgresult
    assert result is not None
    found = [(result.fname(i), result.ftype(i), result.fmod(i)) for i in range(result.nfields)]
    types = load_types(connection, [oid for _, oid, _ in found])
    return tuple(
        Attribute((name or b"").decode(), _modified(types[oid], modifier), shown=types[oid].shown)
        for name, oid, modifier in found
    )


def load_types(connection: psycopg.Connection[Any], oids: Sequence[int]) -> Mapping[int, PgType]:
    """The types of some oids, resolved down to their bases and elements."""
    rows = {row[0]: row for row in connection.execute(TYPES, [list(oids)]).fetchall()}
    made: dict[int, PgType] = {}

    def make(oid: int) -> PgType:
        if oid not in made:
            _, name, schema, kind, base, modifier, element, is_array, dimensions, shown, *texts = rows[oid]
            below = _modified(make(base), modifier) if kind == "d" else None
            inner = make(element) if is_array and element else None
            made[oid] = PgType(oid, name, schema, kind, shown, -1, below, inner, dimensions, *texts)
        return made[oid]

    return {oid: make(oid) for oid in oids}


def _modified(type_: PgType, modifier: int) -> PgType:
    return type_ if modifier == -1 else replace(type_, modifier=modifier)


def _attribute(row: tuple[Any, ...], types: Mapping[int, PgType]) -> Attribute:
    name, oid, modifier, dimensions, not_null, identity, generated, has_default, shown = row
    type_ = replace(types[oid], modifier=modifier, dimensions=dimensions or types[oid].dimensions)
    return Attribute(name, type_, not_null, identity, generated != "", has_default, shown)
