"""Datasets that read what an output of the same run writes, without anything that puts the one before the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pz.connectors.contract import SeesOutputs
from pz.connectors.localpath import os_refusals
from pz.errors import Code, ConnectorError, Problem, Severity
from pz.graph.model import Graph, SinkNode, SourceNode
from pz.plan.connections import Connections
from pz.plan.specs import dataset_spec, output_spec

__all__ = ["read_in_no_order"]


def read_in_no_order(connections: Connections, graph: Graph, execution: Collection[str]) -> Iterator[Problem]:
    """PZ0719 for each such dataset. An output below the dataset itself is written after the read, which is an order."""
    sinks = [sink for sink in graph.sinks() if sink.id in execution]
    for source in graph.sources():
        if source.id not in execution:
            continue
        below, connector = graph.descendants([source.id]), connections.connector(source.connection)
        others = [s for s in sinks if s.id not in below and connections.connector(s.connection).name == connector.name]
        for sink in _read_by(connections, source, others) if others else ():
            where = source.read.location or source.location
            yield Problem(
                Code.PZ0719,
                f"dataset '{source.key}' reads what output '{sink.name}' of the same run writes; which comes first is not "
                "guaranteed",
                where.file if where else None,
                where.line if where else None,
                f"read ref('{sink.pipeline}') instead, or run the two one after the other",
                Severity.WARNING,
            )


def _read_by(connections: Connections, source: SourceNode, sinks: list[SinkNode]) -> Iterator[SinkNode]:
    try:
        with os_refusals(), connections.source(source.connection) as opened:
            if not isinstance(opened, SeesOutputs):
                return
            for sink in sinks:
                if opened.reads_output(dataset_spec(source), connections.spec(sink.connection), output_spec(sink)):
                    yield sink
    except ConnectorError:
        return  # what is wrong with the two is said where they are planned
