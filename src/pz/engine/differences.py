"""Where what an output is made of begins to differ from what it was made of in an earlier run."""

from __future__ import annotations

from collections.abc import Iterator

from pz.graph.model import Graph, Node, SinkNode, SourceNode
from pz.project.model import Location
from pz.runs.model import RunRecord

__all__ = ["differences"]


def differences(graph: Graph, sink: SinkNode, record: RunRecord) -> tuple[str, ...]:
    """What was edited, each with its place, as far up as it can be told: below an edit every id is another one anyway."""
    had = {(node.kind, node.name): node.id for node in record.nodes}
    above = graph.ancestors([sink.id])
    edited = {node.id for node in graph.nodes if node.id in above and had.get((node.kind, node.name)) != node.id}
    return tuple(_told(graph, edited))


def _told(graph: Graph, edited: set[str]) -> Iterator[str]:
    for node in graph.nodes:
        if node.id in edited and not edited.intersection(node.parents):
            what, where = _what(node)
            yield f"{what} ({where.file}{f':{where.line}' if where.line else ''})" if where else what


def _what(node: Node) -> tuple[str, Location | None]:
    if isinstance(node, SourceNode):
        return f"what is read of '{node.key}'", node.read.location or node.location
    if isinstance(node, SinkNode):
        return f"the options of '{node.name}'", node.write.location or node.location
    return f"the SQL of pipeline '{node.name}'", node.location
