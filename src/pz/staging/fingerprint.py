"""What a relation contains, as a number, and an order in which equal content is always read alike.

DuckDB's ``hash()`` and its order both treat some different values as equal: -0.0 and 0.0, a month and 30 days, NULL and
an empty list, differently nested lists, texts under a collation. A resumed delivery must not, so the fingerprint adds
what ``hash()`` leaves out and the drain order breaks such ties by the values' text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pz.connectors.contract import Column
from pz.frozen import frozen
from pz.sqltext import literal, quote
from pz.staging.results import first_row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Fingerprint", "describe", "drain_sql", "fingerprint"]

# Types whose equal values are identical. Whatever is not listed also takes part as text: slower, and always right.
_EXACT = re.compile(
    r"(BOOLEAN|U?TINYINT|U?SMALLINT|U?INTEGER|U?BIGINT|U?HUGEINT|BIGNUM|DECIMAL\(\d+,\d+\)|VARCHAR|BLOB|BIT|UUID|JSON"
    r"|DATE|TIME|TIMESTAMP(_S|_MS|_NS)?|TIMESTAMP WITH TIME ZONE|ENUM\(.*\))\Z",
    re.DOTALL,
)
_FLOATING = frozenset({"FLOAT", "DOUBLE"})


@frozen
class Fingerprint:
    """Row count and order-independent content hash. An empty relation hashes to ``"0"``.

    Comparable between runs of one DuckDB version; another version gives another hash, which reads as other content.
    """

    rows: int
    hash: str

    @property
    def text(self) -> str:
        """Both in one word, for marks and names."""
        return f"{self.rows}-{self.hash}"


def describe(cursor: DuckDBPyConnection, relation: str) -> tuple[Column, ...]:
    """Names and types of a FROM-able relation."""
    rows = cursor.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return tuple(Column(str(row[0]), str(row[1])) for row in rows)


def fingerprint(cursor: DuckDBPyConnection, relation: str) -> Fingerprint:
    """Fingerprint a FROM-able relation: the same rows in another order are equal, one changed value is not.

    The hash is the sum of a 64-bit hash per row (of the columns' names and types, too, where there are rows).
    """
    columns = describe(cursor, relation)
    terms = ", ".join([literal(_schema_digest(columns)), *(term for column in columns for term in _hash_terms(column))])
    sql = f"SELECT count(*), coalesce(sum(hash({terms})::HUGEINT), 0)::VARCHAR FROM {relation}"
    row = first_row(cursor.execute(sql))
    assert row is not None  # an aggregate without GROUP BY gives one row
    return Fingerprint(int(row[0]), str(row[1]))


def drain_sql(relation: str, columns: Sequence[Column], *, offset: int = 0) -> str:
    """A SELECT that gives the rows in an order determined by content alone, from ``offset`` on.

    It is ORDER BY ALL, with ties broken by the rows' text: the same content always gives the same prefix.
    """
    keys = [key for column in columns for key in _sort_keys(column)] + [
        tie for column in columns for tie in _tie_breakers(column)
    ]
    sql = f"SELECT * FROM {relation}"
    if keys:
        sql += f" ORDER BY {', '.join(keys)}"
    return f"{sql} OFFSET {offset}" if offset else sql


def _is_exact(column: Column) -> bool:
    return _EXACT.match(column.type) is not None


def _schema_digest(columns: Sequence[Column]) -> str:
    spelled = "\x1f".join(f"{column.name}\x1e{column.type}" for column in columns)
    return hashlib.sha256(spelled.encode()).hexdigest()[:16]


def _hash_terms(column: Column) -> tuple[str, ...]:
    name = quote(column.name)
    if column.type == "VARCHAR":
        return (f'{name} COLLATE "binary"',)  # in DuckDB 2 hash() follows a collation
    if _is_exact(column):
        return (name,)
    if column.type in _FLOATING:
        return (name, f"signbit({name})")  # hash() holds -0.0 and 0.0 for one value
    return (name, f'({name}::VARCHAR) COLLATE "binary"')


def _sort_keys(column: Column) -> tuple[str, ...]:
    """Keys that sort like the column but never are it, where DuckDB would give back the key in place of the value.

    Sorted by a floating-point column, DuckDB returns 0.0 for -0.0, also inside lists. VARCHAR columns may carry a collation
    of the pipeline's SQL, under which different texts tie.
    """
    name = quote(column.name)
    if column.type == "VARCHAR":
        return (f'{name} COLLATE "binary"',)
    if column.type in _FLOATING:
        return (f"CASE WHEN {name} = 0 THEN 0 ELSE {name} END",)
    return (name,) if _is_exact(column) or column.type == "INTERVAL" else ()


def _tie_breakers(column: Column) -> tuple[str, ...]:
    if _is_exact(column):
        return ()
    name = quote(column.name)
    return (f"signbit({name})",) if column.type in _FLOATING else (f'({name}::VARCHAR) COLLATE "binary"',)
