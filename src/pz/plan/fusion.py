"""Finds chains that can run as one: source -> pipeline -> sink, nothing staged.

A chain is fused when the read is full, the write append or replace, and nobody else needs what would have been staged:
one reader of the load, one consumer of the pipeline, no check, no drift policy. Then a native read and a native write
become one statement (`Way.FUSED`); and where the pipeline only hands rows on, between two sides that know the same
format, the rows pass from one to the other as they are (`Way.COPY_THROUGH`). The three nodes run again together, so
nothing of them is ever reused or carried forward, and the plan says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pz.connectors.contract import ReadShape, WriteStrategy
from pz.graph.model import Graph, Node, PipelineNode, SinkNode, SourceNode
from pz.plan.model import PlannedNode, Way

__all__ = ["chain_of", "fuse"]


def fuse(
    graph: Graph,
    nodes: Sequence[PlannedNode],
    execution: frozenset[str] | None = None,
    formats: Mapping[str, str] | None = None,
) -> tuple[PlannedNode, ...]:
    """The same plan with fusable chains marked: all three nodes get the same way and know each other.

    Only chains that lie wholly inside ``execution`` (None: everything) are fused. ``formats`` are the formats in which
    sources can give and sinks can take rows as they are, by node id.
    """
    by_id = {planned.node_id: planned for planned in nodes}
    for sink in graph.sinks():
        chain = chain_of(graph, sink)
        if chain is None or (execution is not None and not execution.issuperset(node.id for node in chain)):
            continue
        way = _way([by_id[node.id] for node in chain], chain, formats or {})
        if way is not None:
            ids = tuple(node.id for node in chain)
            for node in chain:
                planned = by_id[node.id]
                reason = _reason(planned, node, sink, way, formats or {})
                by_id[node.id] = replace(planned, way=way, reason=reason, fused_with=ids)
    return tuple(by_id[planned.node_id] for planned in nodes)


def chain_of(graph: Graph, sink: SinkNode) -> tuple[SourceNode, PipelineNode, SinkNode] | None:
    """The nodes of a simple chain ending in ``sink``; None when anything branches, joins or checks."""
    pipeline = graph.by_id[sink.parents[0]]
    if not isinstance(pipeline, PipelineNode) or len(pipeline.parents) != 1:
        return None
    source = graph.by_id[pipeline.parents[0]]
    if not isinstance(source, SourceNode):
        return None
    if graph.children[source.id] != (pipeline.id,) or graph.children[pipeline.id] != (sink.id,):
        return None
    return source, pipeline, sink


def _way(
    planned: Sequence[PlannedNode], chain: tuple[SourceNode, PipelineNode, SinkNode], formats: Mapping[str, str]
) -> Way | None:
    """How the chain can run as one; None when it cannot."""
    read, _, written = planned
    source, pipeline, sink = chain
    if read.read_shape is not ReadShape.FULL or sink.write.strategy is WriteStrategy.MERGE:
        return None
    if any(node.refusal is not None for node in planned):
        return None
    if read.way is Way.NATIVE_SCAN and written.way is Way.NATIVE_COPY:
        return Way.FUSED
    spoken = formats.get(source.id)
    if spoken is not None and spoken == formats.get(sink.id) and pipeline.passes_through:
        return Way.COPY_THROUGH
    return None


def _reason(planned: PlannedNode, node: Node, sink: SinkNode, way: Way, formats: Mapping[str, str]) -> str:
    if node is not sink:
        return f"{planned.reason}; fused into {sink.name}"
    if way is Way.FUSED:
        return f"{planned.reason}; one statement from source to sink '{sink.name}', nothing staged to resume from"
    return (
        f"write={sink.write.strategy}; {formats[sink.id]} passed on as it comes, or batches where a column's type differs; "
        "nothing staged to resume from"
    )
