"""Builds the explicit specs that connectors get, from graph nodes: the only place where a node becomes a spec."""

from __future__ import annotations

from pz.connectors.contract import (
    Bound,
    ConnectionSpec,
    DatasetSpec,
    OutputSpec,
    ReadHints,
    ReadShape,
)
from pz.graph.model import SinkNode, SourceNode
from pz.graph.rules import contract_cursor_type
from pz.project.model import Project

__all__ = ["connection_spec", "dataset_spec", "output_spec", "read_hints"]


def connection_spec(project: Project, name: str, *, written: bool = True) -> ConnectionSpec:
    """The spec of a connection; ``written``: whether any output writes to where it leads."""
    return ConnectionSpec(name, project.connections[name].options, project.root, written)


def dataset_spec(
    node: SourceNode,
    shape: ReadShape | None = None,
    *,
    lower: Bound | None = None,
    upper: Bound | None = None,
    cursor_type: str | None = None,
    prior_sync_state: str | None = None,
) -> DatasetSpec:
    """The spec of a dataset; bounds and token only exist at run time."""
    return DatasetSpec(
        connection=node.connection,
        entity=node.entity,
        options=node.read.options,
        columns=node.read.columns,
        cursor=node.read.sync.cursor,
        cursor_type=cursor_type or contract_cursor_type(node.read.columns or {}, node.read.sync.cursor or ""),
        lower=lower,
        upper=upper,
        prior_sync_state=prior_sync_state,
        change_capture=(shape or node.declared_shape) is ReadShape.CDC,
        slot=node.read.sync.slot,
    )


def read_hints(node: SourceNode) -> ReadHints:
    """What the reader of the dataset needs of it."""
    return ReadHints(node.pushdown.columns, node.pushdown.predicate)


def output_spec(node: SinkNode) -> OutputSpec:
    """The spec of an output as the planner probes with it: no columns, no attempt, placeholders for run and node."""
    write = node.write
    return OutputSpec(
        connection=node.connection,
        entity=node.entity,
        strategy=write.strategy,
        options=write.options,
        keys=write.keys,
        dedupe_by=write.dedupe_by,
        on_delete=write.on_delete,
        schema_policy=write.schema_policy,
    )
