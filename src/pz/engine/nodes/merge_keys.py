"""What the engine sees to before a merge: no NULL keys, and one survivor per key, the same for every connector.

The survivor is the row with the highest ``dedupe_by``, else (and among ties) the last in the order of all columns; both
are decided by content, so the same input always leaves the same row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pz.errors import Code, NodeError, Problem
from pz.events import MergeKeyDuplicatesDetected
from pz.graph.model import SinkNode
from pz.sqltext import quote
from pz.staging.results import first_row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext

__all__ = ["unique_relation"]


def unique_relation(context: NodeContext, cursor: DuckDBPyConnection, node: SinkNode, relation: str) -> str:
    """A FROM-able relation with one row per merge key: ``relation`` itself when it has no duplicates.

    Raises:
        NodeError: PZ0521 when a key is NULL, PZ0501 when a key column is missing.
    """
    keys = node.write.keys
    _require(cursor, node, relation)
    _refuse_null_keys(cursor, node, relation)
    listed = ", ".join(quote(key) for key in keys)
    row = first_row(
        cursor.execute(
            "SELECT count(*), coalesce(sum(n - 1), 0)::BIGINT "
            f"FROM (SELECT count(*) AS n FROM {relation} GROUP BY {listed} HAVING n > 1)"
        )
    )
    groups, extra = row if row else (0, 0)
    if not groups:
        return relation
    context.run.bus.publish(
        MergeKeyDuplicatesDetected(
            run_id=context.run.run_id, node_id=node.id, keys=keys, groups=int(groups), extra_rows=int(extra)
        )
    )
    context.run.note(
        f"output '{node.name}': {groups} merge key(s) occur more than once; {extra} row(s) were dropped, one per key kept",
        severity="warning",
        code=Code.PZ0522,
    )
    order = f"{quote(node.write.dedupe_by)} DESC NULLS LAST, " if node.write.dedupe_by else ""
    columns = [quote(column[0]) for column in cursor.execute(f"SELECT * FROM {relation} LIMIT 0").description or []]
    by_content = ", ".join(f"{column} DESC NULLS LAST" for column in columns)
    by_text = ", ".join(f"{column}::VARCHAR DESC NULLS LAST" for column in columns)
    return (
        f"(SELECT * FROM {relation} QUALIFY row_number() OVER "
        f"(PARTITION BY {listed} ORDER BY {order}{by_content}, {by_text}) = 1)"
    )


def _require(cursor: DuckDBPyConnection, node: SinkNode, relation: str) -> None:
    present = {column[0] for column in cursor.execute(f"SELECT * FROM {relation} LIMIT 0").description or []}
    wanted = (*node.write.keys, *((node.write.dedupe_by,) if node.write.dedupe_by else ()))
    missing = [name for name in wanted if name not in present]
    if missing:
        raise NodeError(
            Problem(
                Code.PZ0501,
                f"output '{node.name}': column(s) {', '.join(missing)} named by keys or dedupe_by are not in '{node.pipeline}'",
                hint="select the column in the pipeline, spelled exactly as in keys",
            )
        )


def _refuse_null_keys(cursor: DuckDBPyConnection, node: SinkNode, relation: str) -> None:
    condition = " OR ".join(f"{quote(key)} IS NULL" for key in node.write.keys)
    row = first_row(cursor.execute(f"SELECT count(*) FROM {relation} WHERE {condition}"))
    if row and row[0]:
        raise NodeError(
            Problem(
                Code.PZ0521,
                f"output '{node.name}': {row[0]} row(s) have NULL in merge key {', '.join(node.write.keys)}",
            )
        )
