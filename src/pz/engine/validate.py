"""`pz validate`: everything that can be known without moving data, stage by stage, with one rule set.

The stages are those of a run (load, compile, configuration, dry compile, plan), so what passes here is not refused
there. ``connect`` adds the live tier: each connection is tried, what a source carries is compared with its
contract, and every output's target is asked whether it can be written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pz.connectors.closest import did_you_mean
from pz.connectors.contract import CancelToken, ConnectionReport, ProbingSource, find_column
from pz.connectors.localpath import os_refusals
from pz.engine.prepare import Prepared, Request, prepare
from pz.engine.probe import probe_source, probe_target, still_open
from pz.errors import Code, ConnectorError, Problem, ProjectError
from pz.graph.model import SinkNode, SourceNode
from pz.plan.connections import Connections

__all__ = ["validate"]


def validate(root: Path, environ: Mapping[str, str], *, connect: bool = False) -> tuple[Problem, ...]:
    """Errors, warnings and notes of the project, each stage complete. Does not raise for a faulty project."""
    try:
        prepared = prepare(root, environ, Request("validate", everything=True))
    except ProjectError as refused:
        return refused.problems
    if not connect:
        return prepared.warnings
    verified: list[SourceNode] = []
    live = tuple(_live(prepared, verified))
    return (*still_open(prepared.warnings, verified), *live)


def _live(prepared: Prepared, verified: list[SourceNode]) -> Iterator[Problem]:
    """What the live systems object to; ``verified`` gets the datasets whose source told its columns."""
    connections = Connections(prepared.project, prepared.registry)
    reachable = set()
    for name, connection in prepared.project.connections.items():
        place = connection.location
        file, line = (place.file, place.line) if place else (None, None)
        try:
            with os_refusals():
                report = connections.connector(name).check_connection(connections.spec(name))
        except ConnectorError as failure:
            report = ConnectionReport(False, failure.message, failure.hint)
        if report.ok:
            reachable.add(name)
        else:
            message = f"connection '{name}': {report.message or 'the check failed'}"
            yield Problem(Code.PZ0330, message, file, line, report.hint)
    for node in prepared.graph.sources():
        if node.connection in reachable:
            yield from _contract(connections, node, verified)
    for sink in prepared.graph.sinks():
        if sink.connection in reachable:
            yield from _target(prepared, sink)


def _target(prepared: Prepared, node: SinkNode) -> Iterator[Problem]:
    """What keeps the target of an output from being written, as a run would find it."""
    try:
        with os_refusals():
            probe_target(prepared, node, CancelToken())
    except ConnectorError as failure:
        problem = Problem(failure.code or Code.PZ0330, f"output '{node.name}': {failure.message}", hint=failure.hint)
        yield problem.at(node.location.file, node.location.line) if node.location else problem


def _contract(connections: Connections, node: SourceNode, verified: list[SourceNode]) -> Iterator[Problem]:
    """Columns that the contract names and the live source does not have, and a cursor that is none of them."""
    place = node.read.location or node.location
    file, line = (place.file, place.line) if place else (None, None)
    try:
        with os_refusals(), connections.source(node.connection) as source:
            live = probe_source(source, node).columns if isinstance(source, ProbingSource) else None
    except ConnectorError as failure:
        if failure.code is Code.PZ0505:  # says of the cursor what is not open any more, then
            verified.append(node)
        yield Problem(failure.code or Code.PZ0330, f"dataset '{node.key}': {failure.message}", file, line, failure.hint)
        return
    if not live:
        return
    verified.append(node)
    if node.read.columns is None:
        return
    missing = [name for name in node.read.columns if find_column(live, name) is None]
    if missing:
        message = f"dataset '{node.key}': the source has no column {', '.join(repr(name) for name in missing)}"
        hint = did_you_mean(missing[0], [column.name for column in live]) or None
        yield Problem(Code.PZ0331, message, file, line, hint)
