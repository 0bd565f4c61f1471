"""`pz validate`: everything that can be known without moving data, stage by stage, with one rule set.

The stages are those of a run (load, compile, configuration, dry compile, plan), so what passes here is not refused
there. ``connect`` adds the live tier: each connection is tried, and what a source carries is compared with its contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pz.connectors.contract import ConnectionReport, ProbingSource, find_column
from pz.connectors.localpath import os_refusals
from pz.engine.prepare import Prepared, Request, prepare
from pz.errors import Code, ConnectorError, Problem, ProjectError
from pz.graph.model import SourceNode
from pz.plan.connections import Connections
from pz.plan.specs import dataset_spec

__all__ = ["validate"]


def validate(root: Path, environ: Mapping[str, str], *, connect: bool = False) -> tuple[Problem, ...]:
    """Errors, warnings and notes of the project, each stage complete. Does not raise for a faulty project."""
    try:
        prepared = prepare(root, environ, Request("validate", everything=True))
    except ProjectError as refused:
        return refused.problems
    live = tuple(_live(prepared)) if connect else ()
    return (*prepared.warnings, *live)


def _live(prepared: Prepared) -> Iterator[Problem]:
    connections = Connections(prepared.project, prepared.registry)
    reachable = set()
    for name, connection in prepared.project.connections.items():
        place = connection.location
        file, line = (place.file, place.line) if place else (None, None)
        try:
            with os_refusals():
                report = connections.connector(name).check_connection(connections.spec(name))
        except ConnectorError as failure:
            report = ConnectionReport(False, failure.message)
        if report.ok:
            reachable.add(name)
        else:
            yield Problem(Code.PZ0330, f"connection '{name}': {report.message or 'the check failed'}", file, line)
    for node in prepared.graph.sources():
        if node.connection in reachable:
            yield from _contract(connections, node)


def _contract(connections: Connections, node: SourceNode) -> Iterator[Problem]:
    """Columns that the contract names and the live source does not have."""
    place = node.read.location or node.location
    file, line = (place.file, place.line) if place else (None, None)
    try:
        with os_refusals(), connections.source(node.connection) as source:
            live = source.probe(dataset_spec(node)).columns if isinstance(source, ProbingSource) else None
    except ConnectorError as failure:
        yield Problem(failure.code or Code.PZ0330, f"dataset '{node.key}': {failure.message}", file, line, failure.hint)
        return
    if live is None or node.read.columns is None:
        return
    missing = [name for name in node.read.columns if find_column(live, name) is None]
    if missing:
        message = f"dataset '{node.key}': the source has no column {', '.join(repr(name) for name in missing)}"
        yield Problem(Code.PZ0331, message, file, line)
