"""What `pz compile` writes and `pz ls` lists: the graph as JSON-ready data and the SQL that will run.

Options are the user's own declarations; connections, where credentials live, are no part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pz.graph.model import CheckNode, Graph, Node, PipelineNode, SinkNode, SourceNode

__all__ = ["MANIFEST_VERSION", "compiled_sql", "manifest"]

MANIFEST_VERSION = 1


def manifest(graph: Graph) -> dict[str, Any]:
    """Nodes in topological order and the edges between them, ready for `json.dumps`."""
    return {
        "version": MANIFEST_VERSION,
        "nodes": [_node(node) for node in graph.nodes],
        "edges": [{"from": parent, "to": node.id} for node in graph.nodes for parent in node.parents],
        "ephemeral": sorted(graph.ephemeral),
    }


def compiled_sql(graph: Graph) -> dict[str, str]:
    """The SQL of every pipeline by name, under a comment that names its outputs and the cursors it reads by."""
    return {
        node.name: f"{_header(graph, node)}\n{node.sql}\n" for node in graph.nodes if isinstance(node, PipelineNode)
    }


def _header(graph: Graph, node: PipelineNode) -> str:
    lines = [f"pipeline {node.name}: {node.materialization}, id {node.id}"]
    for child in (graph.by_id[child] for child in graph.children[node.id]):
        if isinstance(child, SinkNode):
            lines.append(f"output {child.name}: {child.write.strategy}")
    for parent in (graph.by_id[parent] for parent in node.parents):
        if isinstance(parent, SourceNode) and parent.read.sync.cursor is not None:
            lines.append(f"reads {parent.key} by cursor {parent.read.sync.cursor}")
    return "\n".join(f"-- {' '.join(line.split())}" for line in lines)


def _node(node: Node) -> dict[str, Any]:
    common: dict[str, Any] = {"id": node.id, "kind": node.kind.value, "name": node.name, "parents": list(node.parents)}
    if node.location is not None:
        common["file"], common["line"] = node.location.file, node.location.line
    return {**common, "config": _plain(_config(node))}


def _config(node: Node) -> dict[str, Any]:
    if isinstance(node, SourceNode):
        return {
            "connection": node.connection,
            "entity": node.entity,
            "relation": f"staging.{node.relation}",
            "read_shape": node.declared_shape or "auto",
            "read": _said(node.read),
            "pushdown": {"columns": node.pushdown.columns, "filter": node.pushdown.predicate is not None},
            "bounds": [_said(bound) for bound in node.bounds],
        }
    if isinstance(node, PipelineNode):
        config = {"materialization": node.materialization, "tags": node.tags, "relation": f"staging.{node.name}"}
        return {**config, "compiled": f"compiled/{node.name}.sql", "unsteady": node.unsteady}
    if isinstance(node, CheckNode):
        return {"pipeline": node.pipeline, "check": _said(node.check)}
    assert isinstance(node, SinkNode)
    return {
        "connection": node.connection, "entity": node.entity, "pipeline": node.pipeline, "write": _said(node.write),
    }  # fmt: skip


def _said(record: Any) -> dict[str, Any]:
    """A declaration without places and without what was not said."""
    values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record) if f.name != "location"}
    return {name: value for name, value in values.items() if value not in (None, (), {})}


def _plain(value: object) -> Any:
    """Only what JSON knows."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return _plain(_said(value)) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
