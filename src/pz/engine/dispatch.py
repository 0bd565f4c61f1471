"""Event-driven dispatch: a task starts when all its parents succeeded and permits are free.

A task is one node, or several that run as one statement (fused). The coordinator is the calling thread; every task runs
in a thread of its own, so that a node that ignores its cancellation can be left behind. A connection's permit
(``max_concurrency``) is looked at before the global one (``engine.threads``). Ties are broken by kind rank, then name,
so the order of dispatch is the same in every run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pz.connectors.contract import CancelToken
from pz.frozen import frozen
from pz.graph.model import Node
from pz.runs.model import NodeResult, NodeStatus

__all__ = ["Dispatcher", "Task", "TaskState"]

GRACE = timedelta(seconds=30)
TICK = 0.2


@frozen(slots=False)
class Task:
    """Nodes that run together, the tasks they wait for and the connections whose permits they need."""

    nodes: tuple[Node, ...]
    parents: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The id of the last node: the one whose result the others wait for."""
        return self.nodes[-1].id

    @property
    def order(self) -> tuple[int, str]:
        """Tie break."""
        return (self.nodes[0].kind.rank, self.nodes[0].name)


@dataclass
class TaskState:
    """A started task: its cancel token, and when its present attempt began."""

    task: Task
    cancel: CancelToken
    attempt_began: float = field(default_factory=time.monotonic)
    timed_out_at: float | None = None

    def begin_attempt(self) -> None:
        """Restart the clock of the node timeout; it runs per attempt."""
        self.attempt_began = time.monotonic()


Execute = Callable[[TaskState], tuple[NodeResult, ...]]


class Dispatcher:
    """Runs tasks to their results; exactly one result per node of the execution set.

    ``execute`` must not raise: a failure is a result. ``on_results`` sees every batch of results in the coordinator's
    thread, skips included. ``on_unresponsive`` makes the result of a task that ignored its cancellation.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        execute: Execute,
        *,
        threads: int,
        cancel: CancelToken,
        on_results: Callable[[tuple[NodeResult, ...]], None],
        on_unresponsive: Callable[[Task], tuple[NodeResult, ...]],
        permits: Mapping[str, int] | None = None,
        fail_fast: bool = False,
        node_timeout: timedelta | None = None,
        grace: timedelta = GRACE,
    ) -> None:
        if threads < 1:
            raise ValueError("threads must be at least 1: zero permits would wait for ever")
        self._pending = {task.key: task for task in tasks}
        self._execute = execute
        self._threads = threads
        self._cancel = cancel
        self._on_results = on_results
        self._on_unresponsive = on_unresponsive
        self._permits = dict(permits or {})
        self._fail_fast = fail_fast
        self._node_timeout = node_timeout
        self._grace = grace
        self._running: dict[str, TaskState] = {}
        self._finished: list[tuple[str, tuple[NodeResult, ...]]] = []
        self._status: dict[str, NodeStatus] = {}
        self._failed: dict[str, str] = {}  # task -> the failed node because of which there is nothing to build on
        self._wake = threading.Condition()

    def run(self) -> None:
        """Dispatch until every task has its results."""
        self._cancel.on_cancel(self._notify)
        while self._pending or self._running:
            self._skip_unreachable()
            self._start_ready()
            for key, results in self._await_finished():
                self._settle(key, results)
            self._watch_timeouts()

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def _await_finished(self) -> list[tuple[str, tuple[NodeResult, ...]]]:
        with self._wake:
            if self._running and not self._finished:
                self._wake.wait(TICK if self._node_timeout or self._cancel.cancelled else None)
            done, self._finished = self._finished, []
        return done

    def _settle(self, key: str, results: tuple[NodeResult, ...]) -> None:
        if self._running.pop(key, None) is None:
            return  # an abandoned thread came back after its result was written
        worst = NodeStatus.SUCCESS if all(r.status is NodeStatus.SUCCESS for r in results) else NodeStatus.FAILED
        self._status[key] = worst
        self._failed.update((key, result.name) for result in results if result.status is NodeStatus.FAILED)
        self._on_results(results)
        if worst is NodeStatus.FAILED and self._fail_fast:
            self._cancel.cancel()

    def _skip_unreachable(self) -> None:
        """Give a skip to every waiting task that can no longer run: cancelled run, or a parent without success."""
        progress = True
        while progress:
            progress = False
            for key, task in list(self._pending.items()):
                parents = [self._status.get(parent) for parent in task.parents]
                if self._cancel.cancelled or any(s not in (None, NodeStatus.SUCCESS) for s in parents):
                    del self._pending[key]
                    self._status[key] = NodeStatus.SKIPPED
                    cause = next((self._failed[parent] for parent in task.parents if parent in self._failed), None)
                    if cause is not None:
                        self._failed[key] = cause
                    self._on_results(tuple(_skipped(node, cause) for node in task.nodes))
                    progress = True

    def _start_ready(self) -> None:
        ready = [t for t in self._pending.values() if all(p in self._status for p in t.parents)]
        for task in sorted(ready, key=lambda t: t.order):
            if len(self._running) >= self._threads:
                return
            if all(self._has_permit(connection) for connection in task.connections):
                self._start(task)

    def _has_permit(self, connection: str) -> bool:
        limit = self._permits.get(connection)
        if limit is None:
            return True
        return sum(connection in state.task.connections for state in self._running.values()) < limit

    def _start(self, task: Task) -> None:
        del self._pending[task.key]
        state = TaskState(task, CancelToken(self._cancel))
        self._running[task.key] = state
        threading.Thread(target=self._work, args=(state,), name=f"pz-{task.nodes[-1].name}", daemon=True).start()

    def _work(self, state: TaskState) -> None:
        results = self._execute(state)
        with self._wake:
            self._finished.append((state.task.key, results))
            self._wake.notify_all()

    def _watch_timeouts(self) -> None:
        now = time.monotonic()
        for key, state in list(self._running.items()):
            if state.timed_out_at is not None:
                if now - state.timed_out_at > self._grace.total_seconds():
                    self._settle(key, self._on_unresponsive(state.task))
                    self._cancel.cancel()
            elif self._node_timeout and now - state.attempt_began > self._node_timeout.total_seconds():
                state.timed_out_at = now
                state.cancel.cancel()


def _skipped(node: Node, cause: str | None) -> NodeResult:
    return NodeResult(node.id, node.kind, node.name, NodeStatus.SKIPPED, skipped_for=cause)
