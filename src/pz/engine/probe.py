"""The probe phase: what only the live systems know, asked before anything moves.

Sources are asked for sizes, types and highest cursors, sinks whether their target fits. A refusal stops the run; nothing
has been written then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pz.connectors.bounds import absent_cursor
from pz.connectors.contract import (
    Cancellable,
    CancelToken,
    ProbingSink,
    ProbingSource,
    ReadShape,
    SourceProbe,
    find_column,
)
from pz.connectors.localpath import os_refusals
from pz.engine.prepare import Prepared
from pz.errors import Code, ConnectorError, Problem, Problems
from pz.frozen import frozen
from pz.graph.model import Node, SinkNode, SourceNode
from pz.graph.rules import unverified_cursor
from pz.plan.model import Plan, PlannedNode
from pz.plan.specs import dataset_spec, output_spec

__all__ = ["Probed", "probe", "probe_plan", "probe_source", "still_open"]

STAGING_FACTOR = 3
"""Staged tables and materialised pipelines take up to about this many times the size of the input."""


@frozen(slots=False)
class Probed:
    """What the probe found: per source node its answer; outputs whose target does not exist yet, by name."""

    sources: dict[str, SourceProbe]
    to_create: frozenset[str]


def probe(prepared: Prepared, cancel: CancelToken) -> Probed:
    """Ask every source and sink of the execution set that can be asked.

    Raises:
        ProjectError: with all refusals.
        Cancelled: a call was told to stop, and obeyed; whatever refused before does not count then.
    """
    problems = Problems()
    sources: dict[str, SourceProbe] = {}
    missing: set[str] = set()
    for node in prepared.graph.in_order(prepared.execution):
        try:
            with os_refusals():
                if isinstance(node, SourceNode):
                    found = _source(prepared, node, cancel)
                    if found is not None:
                        sources[node.id] = found
                elif isinstance(node, SinkNode) and _target_missing(prepared, node, cancel):
                    missing.add(node.name)
        except ConnectorError as failure:
            problems.add(_refusal(node, failure))
    problems.raise_errors()
    return Probed(sources, frozenset(missing))


def probe_plan(prepared: Prepared) -> Plan:
    """The plan with what the probe knows: rows per source, staging disk, that a cursor is there."""
    found = probe(prepared, CancelToken())
    nodes = tuple(_annotated(planned, found.sources.get(planned.node_id)) for planned in prepared.plan.nodes)
    sizes = [answer.bytes for answer in found.sources.values() if answer.bytes is not None]
    disk = STAGING_FACTOR * sum(sizes) if sizes else None
    verified = [
        node for node in prepared.graph.sources() if node.id in found.sources and found.sources[node.id].columns
    ]
    return replace(
        prepared.plan,
        nodes=nodes,
        budget=replace(prepared.plan.budget, staging_disk=disk),
        warnings=still_open(prepared.warnings, verified),
    )


def _annotated(planned: PlannedNode, answer: SourceProbe | None) -> PlannedNode:
    if answer is None:
        return planned
    said = []
    if answer.rows is not None:
        said.append(f"{answer.rows} rows")
    if answer.bytes is not None:
        said.append(f"{answer.bytes} bytes")
    reason = f"{planned.reason}; probed: {', '.join(said)}" if said else planned.reason
    return replace(planned, reason=reason, partitions=answer.partitions or planned.partitions)


def _source(prepared: Prepared, node: SourceNode, cancel: CancelToken) -> SourceProbe | None:
    with prepared.connections.source(node.connection) as source:
        if not isinstance(source, ProbingSource):
            return None
        if isinstance(source, Cancellable):
            source.use_cancel(cancel)
        return probe_source(source, node, prepared.plan[node.id].read_shape)


def probe_source(source: ProbingSource, node: SourceNode, shape: ReadShape | None = None) -> SourceProbe:
    """Ask an opened source. Raises ConnectorError, PZ0505 where it tells its columns and the cursor is none of them."""
    found, cursor = source.probe(dataset_spec(node, shape)), node.read.sync.cursor
    if cursor is not None and found.columns and find_column(found.columns, cursor) is None:
        raise absent_cursor("the source", cursor, [column.name for column in found.columns])
    return found


def still_open(warnings: Iterable[Problem], probed: Iterable[SourceNode]) -> tuple[Problem, ...]:
    """The warnings without those on cursors that the sources ``probed`` were found to have."""
    verified = {unverified_cursor(node.key, node.read.sync.cursor) for node in probed}
    return tuple(problem for problem in warnings if problem.message not in verified)


def _target_missing(prepared: Prepared, node: SinkNode, cancel: CancelToken) -> bool:
    with prepared.connections.sink(node.connection) as sink:
        if isinstance(sink, Cancellable):
            sink.use_cancel(cancel)
        return isinstance(sink, ProbingSink) and not sink.probe_output(output_spec(node)).exists


def _refusal(node: Node, failure: ConnectorError) -> Problem:
    place = node.location
    problem = Problem(failure.code or Code.PZ0330, f"'{node.name}': {failure.message}", hint=failure.hint)
    return problem.at(place.file, place.line) if place else problem
