"""What reaches an output beside its pipeline when a captured table feeds it: rows sent in part, and the extent of a snapshot.

A change row may lack values that the source did not send because they had not changed. Its key and their names stand in
``<dataset>__unchanged``; the merge then updates the other columns only. After a snapshot the keys of the whole table are
handed on, so that the merge removes what is not there any more.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pz.connectors.contract import OnDelete, ReadShape
from pz.engine.nodes.changes import UNCHANGED
from pz.errors import Code, NodeError, Problem
from pz.frozen import frozen
from pz.graph.judge import lost_in
from pz.graph.model import PipelineNode, SinkNode, SourceNode
from pz.graph.sqltree import Parser, SqlNode
from pz.graph.untouched import Touched, follow
from pz.sqltext import quote
from pz.staging.fingerprint import describe
from pz.staging.meta import Ledger, NodeDone

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext

__all__ = ["CapturedInput", "Partial", "captured_inputs"]

FULL = "set REPLICA IDENTITY FULL on the captured table, then run once with --full-refresh"


@frozen(slots=False)
class Partial:
    """Rows that lack the same columns: a query for them, and the output's columns to leave alone."""

    query: str
    unchanged: tuple[str, ...]


@frozen(slots=False)
class CapturedInput:
    """One captured dataset above an output."""

    node: SinkNode
    source: SourceNode
    done: NodeDone

    @property
    def snapshot_keys(self) -> str | None:
        """A query for the merge keys of the whole table, after a snapshot whose absent rows are to be removed."""
        details = json.loads(self.done.details or "{}")
        if not details.get("snapshot") or self.node.write.on_delete not in (OnDelete.DELETE, OnDelete.SOFT):
            return None
        keys = ", ".join(quote(key) for key in self.node.write.keys)
        return f"SELECT {keys} FROM staging.{quote(self.source.relation)}"

    @property
    def unchanged(self) -> str | None:
        """The relation of keys and names of what was not sent; None when everything was."""
        name = self.source.relation + UNCHANGED
        sizes = dict(zip(self.done.tables, self.done.row_counts, strict=True))
        return f"staging.{quote(name)}" if sizes.get(name) else None

    def whole(self, relation: str) -> str:
        """The part of a relation that carries all of its columns."""
        if self.unchanged is None:
            return relation
        return f"(SELECT r.* FROM {relation} r WHERE NOT EXISTS (SELECT 1 FROM {self.unchanged} u WHERE {self._same}))"

    @property
    def _same(self) -> str:
        return " AND ".join(f"r.{quote(key)} = u.{quote(key)}" for key in self.node.write.keys)

    def partials(self, context: NodeContext, cursor: DuckDBPyConnection, relation: str) -> tuple[Partial, ...]:
        """The other part, grouped by what is missing.

        Raises:
            NodeError: PZ0745 where a pipeline does more with such a column than hand it on, or the keys do not come through.
        """
        if self.unchanged is None:
            return ()
        groups = cursor.execute(f"SELECT DISTINCT _pz_unchanged FROM {self.unchanged} ORDER BY ALL").fetchall()
        missing = sorted({name for (names,) in groups for name in names})
        between = _pipelines(context, self.node.pipeline, self.source)
        self._require_keys(cursor, dict(between))
        try:
            passage = follow(missing, between)
        except Touched as touched:
            raise self._closed(str(touched)) from touched
        present = [column.name for column in describe(cursor, relation)]
        return tuple(self._partial(relation, present, list(names), passage.outputs(names)) for (names,) in groups)

    def _partial(self, relation: str, present: list[str], names: list[str], outputs: frozenset[str]) -> Partial:
        listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
        same = f"{self._same} AND u._pz_unchanged = [{listed}]"
        query = f"SELECT r.* FROM {relation} r WHERE EXISTS (SELECT 1 FROM {self.unchanged} u WHERE {same})"
        return Partial(query, tuple(name for name in present if name.lower() in outputs))

    def _require_keys(self, cursor: DuckDBPyConnection, trees: dict[str, SqlNode]) -> None:
        known = {column.name for column in describe(cursor, str(self.unchanged))}
        for key in self.node.write.keys:
            if key not in known or lost_in(self.node.pipeline, key, self.source, trees) is not None:
                raise self._closed(f"merge key '{key}' does not come unchanged from the captured table's key")

    def _closed(self, why: str) -> NodeError:
        came = f"rows of '{self.source.key}' came without large values that had not changed"
        message = f"output '{self.node.name}': {came}, and {why}"
        return NodeError(Problem(Code.PZ0745, message, hint=FULL))


def captured_inputs(context: NodeContext, books: DuckDBPyConnection, node: SinkNode) -> tuple[CapturedInput, ...]:
    """The captured datasets above an output, as they were loaded in this run."""
    graph = context.run.graph
    above = graph.ancestors([node.id])
    sources = [s for s in graph.sources() if s.id in above and s.declared_shape is ReadShape.CDC]
    done = {entry.node_id: entry for entry in Ledger(books).nodes_done()} if sources else {}
    return tuple(CapturedInput(node, source, done[source.id]) for source in sources if source.id in done)


def _pipelines(context: NodeContext, last: str, source: SourceNode) -> list[tuple[str, SqlNode]]:
    """The statements from a dataset to an output, in the order in which they run."""
    graph = context.run.graph
    below = graph.descendants([source.id])
    nodes = [n for n in graph.in_order(below) if isinstance(n, PipelineNode)]
    wanted = graph.ancestors([n.id for n in nodes if n.name == last])
    with Parser() as parser:
        return [(n.name, parser.parse(n.sql)) for n in nodes if n.id in wanted]
