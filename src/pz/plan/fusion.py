"""Finds chains that can run as one statement: source -> pipeline -> sink, nothing staged.

A chain is fused when the read is full and native, the write native, append or replace, and nobody else needs what would
have been staged: one reader of the load, one consumer of the pipeline, no check, no drift policy. Its three nodes run
again together, so nothing of it is ever reused or carried forward, and the plan says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pz.connectors.contract import ReadShape, WriteStrategy
from pz.graph.model import Graph, NodeKind, PipelineNode, SinkNode, SourceNode
from pz.plan.model import PlannedNode, Way

__all__ = ["chain_of", "fuse"]


def fuse(
    graph: Graph, nodes: Sequence[PlannedNode], execution: frozenset[str] | None = None
) -> tuple[PlannedNode, ...]:
    """The same plan with fusable chains marked: all three nodes get the way `Way.FUSED` and know each other.

    Only chains that lie wholly inside ``execution`` (None: everything) are fused.
    """
    by_id = {planned.node_id: planned for planned in nodes}
    for sink in graph.sinks():
        chain = chain_of(graph, sink)
        if chain is None or (execution is not None and not execution.issuperset(node.id for node in chain)):
            continue
        if _fusable([by_id[node.id] for node in chain], sink):
            ids = tuple(node.id for node in chain)
            for node in chain:
                planned = by_id[node.id]
                whole = f"one statement from source to sink '{sink.name}', nothing staged to resume from"
                reason = f"{planned.reason}; {whole if node is sink else f'fused into {sink.name}'}"
                by_id[node.id] = replace(planned, way=Way.FUSED, reason=reason, fused_with=ids)
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


def _fusable(chain: Sequence[PlannedNode], sink: SinkNode) -> bool:
    source, _, target = chain
    return (
        source.kind is NodeKind.SOURCE_LOAD
        and source.read_shape is ReadShape.FULL
        and source.way is Way.NATIVE_SCAN
        and target.way is Way.NATIVE_COPY
        and sink.write.strategy is not WriteStrategy.MERGE
        and all(planned.refusal is None for planned in chain)
    )
