"""Recording a node as done, in the transaction of its last rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pz.frozen import frozen
from pz.sqltext import qualified
from pz.staging import meta
from pz.staging.fingerprint import describe
from pz.staging.meta import NodeDone
from pz.staging.results import first_row
from pz.staging.transaction import Transaction

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["SCHEMA", "NodeFacts", "complete_node", "count_rows", "table_exists"]

SCHEMA = "staging"


@frozen
class NodeFacts:
    """What is known of a finished node beside its tables; the fields are those of `NodeDone`."""

    pushed_columns: tuple[str, ...] | None = None
    predicate: str | None = None
    candidate: str | None = None
    candidate_type: str | None = None
    token: str | None = None
    details: str | None = None

    def __repr__(self) -> str:
        return "NodeFacts(...)"  # holds a token


def complete_node(tx: Transaction, node_id: str, tables: Sequence[str], facts: NodeFacts | None = None) -> NodeDone:
    """Record a node with every table it owns in schema ``staging``, main table first; counts and columns are taken here.

    Call it in the transaction that writes the rows, so that rows and record commit together.
    """
    facts = facts or NodeFacts()
    done = NodeDone(
        node_id,
        tuple(tables),
        tuple(count_rows(tx.cursor, qualified(SCHEMA, table)) for table in tables),
        describe(tx.cursor, qualified(SCHEMA, tables[0])),
        facts.pushed_columns,
        facts.predicate,
        facts.candidate,
        facts.candidate_type,
        facts.token,
        facts.details,
    )
    meta.record(tx, done)
    return done


def count_rows(cursor: DuckDBPyConnection, relation: str) -> int:
    """Rows of a FROM-able relation; of a table this is a look into its metadata."""
    row = first_row(cursor.execute(f"SELECT count(*) FROM {relation}"))
    return int(row[0]) if row else 0


def table_exists(cursor: DuckDBPyConnection, table: str, catalog: str = "run") -> bool:
    """Whether a table of schema ``staging`` exists; costs the same however many tables there are.

    Not for use in a transaction that has to go on when the table is absent.
    """
    import duckdb

    try:
        cursor.execute(f"SELECT 1 FROM {qualified(catalog, SCHEMA, table)} LIMIT 0").fetchall()
    except duckdb.CatalogException:
        return False
    return True
