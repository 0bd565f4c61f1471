"""The compiled graph: four kinds of nodes, frozen, in topological order.

Ids are 16 lower-case hex digits over what a node does and its parents' ids (`graph.identity`). Retry finds what to run
again by kind and name and what to reuse by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from functools import cached_property

from pz.connectors.contract import ReadShape
from pz.frozen import frozen
from pz.project.model import CheckDecl, Location, Materialization, ReadDecl, WriteDecl

__all__ = [
    "CheckNode",
    "Graph",
    "Node",
    "NodeKind",
    "PipelineNode",
    "Pushdown",
    "SinkNode",
    "SourceNode",
    "SqlBound",
]


class NodeKind(StrEnum):
    """The kinds, in the order in which ties of the topological sort are broken."""

    SOURCE_LOAD = "SourceLoad"
    PIPELINE = "Pipeline"
    CHECK = "Check"
    SINK_WRITE = "SinkWrite"

    @property
    def rank(self) -> int:
        """Position in tie breaks."""
        return list(NodeKind).index(self)


@frozen
class Pushdown:
    """What the one reader of a dataset needs of it: columns (None: all) and a row filter in DuckDB SQL (None: none)."""

    columns: tuple[str, ...] | None = None
    predicate: str | None = None


@frozen
class SqlBound:
    """One watermark() comparison of a dataset: ``cursor <op> <expression>``.

    ``expression`` is DuckDB SQL with the sentinel `WATERMARK` where the stored value goes (``NULL`` when there is none).
    ``floor`` bounds (> >=) reduce to the loosest, ceilings (< <=) to the tightest.
    """

    floor: bool
    inclusive: bool
    expression: str
    location: Location | None = None


@frozen(slots=False, kw_only=True)
class Node:
    """What all nodes have."""

    id: str
    kind: NodeKind
    name: str
    parents: tuple[str, ...] = ()
    location: Location | None = None


@frozen(slots=False, kw_only=True)
class SourceNode(Node):
    """A dataset landed as ``staging.<relation>``.

    ``declared_shape`` is None for ``auto``, which only the connector can resolve. ``bounds`` come from SQL
    (``watermark()``); then ``read.sync.mode`` is incremental and its ``cursor`` the compared column.
    """

    connection: str
    entity: str
    relation: str
    read: ReadDecl
    declared_shape: ReadShape | None = None
    pushdown: Pushdown = Pushdown()
    bounds: tuple[SqlBound, ...] = ()

    @property
    def key(self) -> str:
        """The key of the dataset's state: ``<connection>.<entity>``."""
        return f"{self.connection}.{self.entity}"


@frozen(slots=False, kw_only=True)
class PipelineNode(Node):
    """A SELECT materialised as ``staging.<name>``.

    ``sql`` carries sentinels for watermark(), run_id and run_started_at; `graph.sql.bind` replaces them at run time. It
    has no semicolon or comment at its end. ``lines`` gives for each of its lines the line of the file, 0 where the
    line is not from there. ``unsteady`` names what makes its result differ from evaluation to evaluation.
    ``passes_through``: it only hands on a table that is staged already, so that a view upon that table does.
    """

    sql: str
    materialization: Materialization
    tags: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    unsteady: tuple[str, ...] = ()
    passes_through: bool = False

    @property
    def is_view(self) -> bool:
        """Whether ``staging.<name>`` is a view, asked for or because a copy would hold the same rows again."""
        return self.passes_through or self.materialization is Materialization.VIEW

    def file_line(self, sql_line: int) -> int | None:
        """The line of the pipeline's file behind a line of ``sql``, both from 1; None when it is not from there."""
        return (self.lines[sql_line - 1] or None) if 0 < sql_line <= len(self.lines) else None

    def place(self, sql_line: int | None) -> str:
        """`` (file:line)`` of a line of ``sql``, or of its first one where that is not known; empty without a file."""
        if self.location is None:
            return ""
        line = self.file_line(sql_line) if sql_line is not None else None
        begun = (first for first, text in zip(self.lines, self.sql.split("\n"), strict=False) if first and text.strip())
        line = line or next(begun, self.location.line)
        return f" ({self.location.file}{'' if line is None else f':{line}'})"


@frozen(slots=False, kw_only=True)
class CheckNode(Node):
    """An assertion on ``staging.<pipeline>``."""

    pipeline: str
    check: CheckDecl


@frozen(slots=False, kw_only=True)
class SinkNode(Node):
    """``staging.<pipeline>`` drained to an output."""

    connection: str
    entity: str
    pipeline: str
    write: WriteDecl


@frozen(slots=False)
class Graph:
    """All nodes of a project, parents before children; look-ups by id and by reachability.

    ``ephemeral`` are the inlined pipelines (name -> SQL), kept for `pz compile` and `pz show`.
    """

    nodes: tuple[Node, ...]
    ephemeral: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        """Nodes by id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def by_name(self) -> Mapping[tuple[NodeKind, str], Node]:
        """Nodes by kind and name."""
        return {(node.kind, node.name): node for node in self.nodes}

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Ids of the direct children of each node."""
        below: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for node in self.nodes:
            for parent in node.parents:
                below[parent].append(node.id)
        return {key: tuple(value) for key, value in below.items()}

    def ancestors(self, ids: Iterable[str]) -> frozenset[str]:
        """All nodes above ``ids``, themselves included."""
        return self._closure(ids, {node.id: node.parents for node in self.nodes})

    def descendants(self, ids: Iterable[str]) -> frozenset[str]:
        """All nodes below ``ids``, themselves included."""
        return self._closure(ids, self.children)

    def components(self) -> tuple[frozenset[str], ...]:
        """The flows: connected components, in order of their first node."""
        seen: set[str] = set()
        found: list[frozenset[str]] = []
        both = {n.id: (*n.parents, *self.children[n.id]) for n in self.nodes}
        for node in self.nodes:
            if node.id not in seen:
                component = self._closure([node.id], both)
                seen |= component
                found.append(component)
        return tuple(found)

    def in_order(self, ids: Iterable[str]) -> tuple[Node, ...]:
        """The nodes with these ids, in topological order."""
        wanted = frozenset(ids)
        return tuple(node for node in self.nodes if node.id in wanted)

    def sources(self) -> tuple[SourceNode, ...]:
        """All source loads."""
        return tuple(node for node in self.nodes if isinstance(node, SourceNode))

    def sinks(self) -> tuple[SinkNode, ...]:
        """All sink writes."""
        return tuple(node for node in self.nodes if isinstance(node, SinkNode))

    @staticmethod
    def _closure(ids: Iterable[str], edges: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
        todo, seen = list(ids), set()
        while todo:
            current = todo.pop()
            if current not in seen:
                seen.add(current)
                todo.extend(edges[current])
        return frozenset(seen)
