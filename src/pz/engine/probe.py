"""The probe phase: what only the live systems know, asked before anything moves.

Sources are asked for sizes, types and highest cursors, sinks whether their target fits. A refusal stops the run; nothing
has been written then. In a run, a system that cannot be reached is asked again as the node would do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from pz.connectors.bounds import absent_cursor
from pz.connectors.contract import (
    Cancellable,
    CancelToken,
    OutputProbe,
    ProbingSink,
    ProbingSource,
    ReadShape,
    SourceProbe,
    find_column,
)
from pz.connectors.localpath import os_refusals
from pz.engine.failures import describe
from pz.engine.prepare import Prepared
from pz.engine.resilience.retry import call_with_retries
from pz.errors import Code, ConnectorError, Problem, Problems, TransientError
from pz.events import EventBus, RetryScheduled
from pz.frozen import frozen
from pz.graph.model import Node, SinkNode, SourceNode
from pz.graph.rules import unverified_cursor
from pz.plan.specs import dataset_spec, output_spec
from pz.project.model import RetryPolicy

__all__ = ["Probed", "Retries", "probe", "probe_source", "probe_target", "still_open"]

T = TypeVar("T")
N = TypeVar("N", SourceNode, SinkNode)


@frozen(slots=False)
class Probed:
    """What the probe found: per source node its answer; outputs whose target does not exist yet, by name."""

    sources: dict[str, SourceProbe]
    to_create: frozenset[str]


@dataclass
class Retries:
    """Asks again, under the node's own policy, and tells the bus, until a connection has used its attempts up.

    From then on its other nodes are asked once each: they would only wait for the same system.
    """

    bus: EventBus
    run_id: str
    _given_up: set[str] = field(default_factory=set)

    def call(self, node: SourceNode | SinkNode, policy: RetryPolicy, cancel: CancelToken, ask: Callable[[], T]) -> T:
        """What ``ask`` answers. Raises what it raised last, `Cancelled`."""
        if cancel.cancelled:
            return ask()  # a stop from before is obeyed by the run, which then has a result to tell
        if node.connection in self._given_up:
            policy = RetryPolicy(max_attempts=1)

        def scheduled(number: int, delay: float, failure: BaseException) -> None:
            self.bus.publish(
                RetryScheduled(
                    run_id=self.run_id,
                    node_id=node.id,
                    attempt=number,
                    max_attempts=policy.max_attempts,
                    delay_ms=round(delay * 1000),
                    reason=describe(failure).message,
                    operation="probe",
                    node_name=node.name,
                )
            )

        try:
            return call_with_retries(lambda _: ask(), policy, cancel, scheduled)
        except TransientError:
            self._given_up.add(node.connection)
            raise


def probe(prepared: Prepared, cancel: CancelToken, retries: Retries | None = None) -> Probed:
    """Ask every source and sink of the execution set that can be asked; without ``retries``, each once.

    Raises:
        ProjectError: with all refusals.
        Cancelled: a call was told to stop, and obeyed; whatever refused before does not count then.
    """
    problems = Problems()
    sources: dict[str, SourceProbe] = {}
    missing: set[str] = set()
    for node in prepared.graph.in_order(prepared.execution):
        try:
            if isinstance(node, SourceNode):
                found = _asked(prepared, node, cancel, retries, _source)
                if found is not None:
                    sources[node.id] = found
            elif isinstance(node, SinkNode) and _asked(prepared, node, cancel, retries, _target_missing):
                missing.add(node.name)
        except ConnectorError as failure:
            problems.add(_refusal(node, failure))
    problems.raise_errors()
    return Probed(sources, frozenset(missing))


def _asked(
    prepared: Prepared,
    node: N,
    cancel: CancelToken,
    retries: Retries | None,
    ask: Callable[[Prepared, N, CancelToken], T],
) -> T:
    def once() -> T:
        with os_refusals():
            return ask(prepared, node, cancel)

    policy = prepared.plan[node.id].retry
    return once() if retries is None or policy is None else retries.call(node, policy, cancel, once)


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


def probe_target(prepared: Prepared, node: SinkNode, cancel: CancelToken) -> OutputProbe | None:
    """Ask an output's target; None where the connector tells nothing. Raises ConnectorError where it does not fit."""
    with prepared.connections.sink(node.connection) as sink:
        if isinstance(sink, Cancellable):
            sink.use_cancel(cancel)
        return sink.probe_output(output_spec(node)) if isinstance(sink, ProbingSink) else None


def _target_missing(prepared: Prepared, node: SinkNode, cancel: CancelToken) -> bool:
    found = probe_target(prepared, node, cancel)
    return found is not None and not found.exists


def _refusal(node: Node, failure: ConnectorError) -> Problem:
    place, hint = node.location, failure.hint
    if isinstance(failure, TransientError):
        again = "run again once it can be reached; nothing was moved"
        hint = f"{hint}; {again}" if hint else again
    problem = Problem(failure.code or Code.PZ0330, f"'{node.name}': {failure.message}", hint=hint)
    return problem.at(place.file, place.line) if place else problem
