"""Executes one task: events, breaker, retries, timing, and the result records. Never raises: a failure is a result.

Checks and fused chains are imported when there is one: most runs without news have neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

from pz.connectors.contract import CancelToken
from pz.engine.context import NodeContext, RunContext
from pz.engine.dispatch import Task, TaskState
from pz.engine.failures import Failure, describe
from pz.engine.nodes.pipeline import materialize
from pz.engine.nodes.sink_write import deliver
from pz.engine.nodes.source_load import load
from pz.engine.outcome import Outcome
from pz.engine.resilience.breaker import CircuitBreaker
from pz.engine.resilience.retry import call_with_retries
from pz.errors import Cancelled, Code, PzError
from pz.events import BreakerStateChanged, NodeCompleted, NodeStarted, RetryScheduled
from pz.graph.model import CheckNode, Node, PipelineNode, SinkNode, SourceNode
from pz.plan.model import Way
from pz.project.model import RetryPolicy
from pz.runs.directory import removed
from pz.runs.model import NodeError, NodeResult, NodeStatus

__all__ = ["Executor", "completed_event"]

T = TypeVar("T")


class Executor:
    """Turns started tasks into results, in the task's own thread."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._breakers: dict[str, CircuitBreaker] = {}

    def __call__(self, state: TaskState) -> tuple[NodeResult, ...]:
        """Execute a task; one result per node of it."""
        if len(state.task.nodes) > 1:
            return self._fused(state)
        return (self._single(state),)

    def unresponsive(self, task: Task) -> tuple[NodeResult, ...]:
        """The results of a task that ignored its cancellation."""
        error = NodeError(
            Code.PZ0526, "the node timed out and ignored its cancellation; the rest of the run was cancelled"
        )
        return tuple(NodeResult(n.id, n.kind, n.name, NodeStatus.FAILED, error=error) for n in task.nodes)

    # --- one node

    def _single(self, state: TaskState) -> NodeResult:
        node = state.task.nodes[0]
        self._announce(node)
        begun = time.monotonic()
        context = self._context(node, state.cancel)
        try:
            with ExitStack() as kept:
                kept.callback(context.release)
                outcome = self._attempts(state, context, lambda: self._body(context))
        except BaseException as raised:  # noqa: BLE001 - every failure of a node is a result
            return self._failed(node, raised, begun, context, state)
        return NodeResult(
            node.id,
            node.kind,
            node.name,
            NodeStatus.SUCCESS,
            outcome.rows,
            _since(begun),
            **self._blocks(context, outcome),
        )

    def _body(self, context: NodeContext) -> Outcome:
        node = context.node
        if isinstance(node, SourceNode):
            return load(context, node)
        if isinstance(node, PipelineNode):
            return materialize(context, node)
        if isinstance(node, CheckNode):
            from pz.engine.nodes.check import run_check

            project, staging = self._run.project, self._run.staging.path
            if staging.is_relative_to(project.root):
                staging = staging.relative_to(project.root)
            with context.cursor() as cursor:
                return Outcome(run_check(cursor, node, staging=staging, samples=project.engine.check_samples))
        assert isinstance(node, SinkNode)
        return deliver(context, node)

    def _fused(self, state: TaskState) -> tuple[NodeResult, ...]:
        nodes = state.task.nodes
        for node in nodes:
            self._announce(node)
        begun = time.monotonic()
        context = self._context(nodes[-1], state.cancel)
        try:
            chain = _chain(context.planned.way)
            counts = self._attempts(state, context, lambda: chain(context, nodes))
        except BaseException as raised:  # noqa: BLE001 - every failure of a node is a result
            failed = self._failed(nodes[-1], raised, begun, context, state)
            return tuple(replace(failed, id=n.id, kind=n.kind, name=n.name, fused=True) for n in nodes)
        return tuple(
            NodeResult(n.id, n.kind, n.name, NodeStatus.SUCCESS, rows, _since(begun), fused=True)
            for n, rows in zip(nodes, counts, strict=True)
        )

    # --- attempts

    def _attempts(self, state: TaskState, context: NodeContext, body: Callable[[], T]) -> T:
        policy = context.planned.retry or RetryPolicy(max_attempts=1)
        breaker = self._breaker(state.task)

        def attempt(number: int) -> T:
            if breaker is not None:
                breaker.admit(state.cancel)
            state.begin_attempt()
            context.ordinal = number
            context.rows = context.bytes = context.batches = 0
            return body()

        def scheduled(number: int, delay: float, failure: BaseException) -> None:
            self._run.bus.publish(
                RetryScheduled(
                    run_id=self._run.run_id,
                    node_id=context.node.id,
                    attempt=number,
                    max_attempts=policy.max_attempts,
                    delay_ms=round(delay * 1000),
                    reason=describe(failure).message,
                )
            )

        try:
            result = call_with_retries(attempt, policy, state.cancel, scheduled)
        except BaseException as raised:
            self._tell_breaker(breaker, describe(raised))
            raise
        self._tell_breaker(breaker, None)
        return result

    def _breaker(self, task: Task) -> CircuitBreaker | None:
        settings = self._run.project.engine.breaker
        if settings is None or not task.connections:
            return None
        name = task.connections[-1]
        with self._run.lock:
            if name not in self._breakers:
                self._breakers[name] = CircuitBreaker(name, settings, self._breaker_changed)
            return self._breakers[name]

    def _breaker_changed(self, connection: str, state: str) -> None:
        self._run.bus.publish(BreakerStateChanged(run_id=self._run.run_id, connection=connection, state=state))

    @staticmethod
    def _tell_breaker(breaker: CircuitBreaker | None, failure: Failure | None) -> None:
        if breaker is not None and (failure is None or failure.transient):
            breaker.record(transient_failure=failure is not None, retry_after=failure.retry_after if failure else None)

    # --- results

    def _context(self, node: Node, cancel: CancelToken) -> NodeContext:
        return NodeContext(self._run, node, self._run.plan[node.id], cancel, total=self._run.totals.get(node.id))

    def _announce(self, node: Node) -> None:
        self._run.bus.publish(
            NodeStarted(run_id=self._run.run_id, node_id=node.id, kind=node.kind, node_name=node.name)
        )

    def _blocks(self, context: NodeContext, outcome: Outcome) -> dict[str, Any]:
        blocks = dict(outcome.blocks)
        if context.gate is not None and context.gate.ops is not None:
            blocks["ops"] = context.gate.ops
        return blocks

    def _failed(
        self, node: Node, raised: BaseException, begun: float, context: NodeContext, state: TaskState
    ) -> NodeResult:
        failure = self._explain(raised, state)
        message = failure.message if not failure.hint else f"{failure.message}\nhint: {failure.hint}"
        blocks = dict(getattr(raised, "pz_blocks", {}))
        if context.gate is not None and context.gate.ops is not None:
            blocks["ops"] = context.gate.ops
        status = NodeStatus.FAILED
        if isinstance(raised, Cancelled) and state.timed_out_at is None:
            status = NodeStatus.SKIPPED
        error = NodeError(failure.code, message) if status is NodeStatus.FAILED else None
        return NodeResult(node.id, node.kind, node.name, status, 0, _since(begun), error, **blocks)

    def _explain(self, raised: BaseException, state: TaskState) -> Failure:
        if state.timed_out_at is not None:
            limit = self._run.project.engine.node_timeout
            seconds = limit.total_seconds() if limit else 0
            return Failure(Code.PZ0525, f"the node exceeded engine.node_timeout ({seconds:g} s)")
        lost = removed(self._run.staging.run_dir) if _is_missing_file(raised) else None
        return describe(raised if lost is None else PzError(lost))


def _is_missing_file(raised: BaseException) -> bool:
    """Also what DuckDB says where it would spill."""
    return isinstance(raised, FileNotFoundError) or type(raised).__name__ == "IOException"


def _chain(way: Way) -> Callable[[NodeContext, tuple[Node, ...]], tuple[int, ...]]:
    if way is Way.COPY_THROUGH:
        from pz.engine.nodes.copy_through import run_through

        return run_through
    from pz.engine.nodes.fused import run_chain

    return run_chain


def completed_event(run_id: str, result: NodeResult) -> NodeCompleted:
    """The event that tells a result; published exactly once per node."""
    return NodeCompleted(
        run_id=run_id,
        node_id=result.id,
        kind=result.kind,
        node_name=result.name,
        status=result.status,
        rows=result.rows,
        duration_ms=result.duration_ms,
        error_code=result.error.code if result.error else None,
        error_message=result.error.message if result.error else None,
        timings=result.timings,
        provenance=result.provenance,
        fused=result.fused,
        skipped_for=result.skipped_for,
        ops=result.ops,
        partitions=result.partitions,
        delivery=result.delivery,
        cdc=result.cdc,
    )


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
