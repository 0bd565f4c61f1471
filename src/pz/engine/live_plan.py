"""`pz plan --connect`: the plan with what only the live systems and the stored state know, asked as a run does."""

from __future__ import annotations

from dataclasses import replace

from pz.connectors.contract import CancelToken, SourceProbe
from pz.engine.bindings import bindings_of
from pz.engine.capture import tell_left_captures
from pz.engine.left_behind import dropped_refreshes, unfinished_refreshes
from pz.engine.prepare import Prepared, Request
from pz.engine.probe import Probed, probe, still_open
from pz.engine.reading import resolve_reading
from pz.errors import Problem
from pz.events import now
from pz.plan.model import Plan, PlannedNode

__all__ = ["live_plan"]

STAGING_FACTOR = 3
"""Staged tables and materialised pipelines take up to about this many times the size of the input."""


def live_plan(prepared: Prepared) -> Plan:
    """The plan with rows per source, staging disk, that a cursor is there, and the warnings that a run would begin with.

    Raises what a run would raise before it moves anything: ProjectError of the probe, StateError of the stored state. Takes
    no lock and writes nothing, so what a dead run has left to be stored is not in the state that it looks at.
    """
    found = probe(prepared, CancelToken())
    told = _stored(prepared, found)
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
        warnings=(*still_open(prepared.warnings, verified), *told),
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


def _stored(prepared: Prepared, found: Probed) -> tuple[Problem, ...]:
    """What the stored state says to a run of the execution set."""
    bindings = bindings_of(prepared.project, prepared.graph, prepared.registry)
    reading = resolve_reading(prepared, Request("plan"), now(), None, bindings, found, "plan")
    dropped = dropped_refreshes(prepared, unfinished_refreshes(prepared.project.state_dir))
    return (*dropped, *reading.problems, *tell_left_captures(prepared))
