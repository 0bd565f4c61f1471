"""Dispatch: order, permits, skips, fail-fast, timeouts; exactly one result per node."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest

from pz.connectors.contract import CancelToken
from pz.engine.dispatch import Dispatcher, Task, TaskState
from pz.graph.model import Node, NodeKind
from pz.runs.model import NodeResult, NodeStatus


def task(name: str, *parents: str, connection: str | None = None) -> Task:
    node = Node(id=name, kind=NodeKind.PIPELINE, name=name)
    return Task((node,), parents, (connection,) if connection else ())


def result(node: Node, status: NodeStatus = NodeStatus.SUCCESS) -> NodeResult:
    return NodeResult(node.id, node.kind, node.name, status)


class Harness:
    """Runs tasks whose bodies are callables; remembers results in order."""

    def __init__(self) -> None:
        self.cancel = CancelToken()
        self.results: list[NodeResult] = []

    def run(
        self,
        tasks: Iterable[Task],
        body: Callable[[TaskState], NodeStatus] = lambda state: NodeStatus.SUCCESS,
        *,
        threads: int = 4,
        permits: dict[str, int] | None = None,
        fail_fast: bool = False,
        node_timeout: timedelta | None = None,
        grace: timedelta = timedelta(seconds=30),
    ) -> dict[str, NodeStatus]:
        def execute(state: TaskState) -> tuple[NodeResult, ...]:
            status = body(state)
            return tuple(result(node, status) for node in state.task.nodes)

        Dispatcher(
            tasks,
            execute,
            threads=threads,
            cancel=self.cancel,
            on_results=self.results.extend,
            on_unresponsive=lambda lost: tuple(result(node, NodeStatus.FAILED) for node in lost.nodes),
            permits=permits,
            fail_fast=fail_fast,
            node_timeout=node_timeout,
            grace=grace,
        ).run()
        assert len({r.id for r in self.results}) == len(self.results), "a node got two results"
        return {r.id: r.status for r in self.results}


def test_children_run_after_their_parents_and_ties_in_name_order() -> None:
    order: list[str] = []

    def body(state: TaskState) -> NodeStatus:
        order.append(state.task.key)
        return NodeStatus.SUCCESS

    Harness().run([task("d", "b", "c"), task("b", "a"), task("c", "a"), task("a")], body, threads=1)
    assert order == ["a", "b", "c", "d"]


def test_a_failure_skips_all_descendants_and_no_sibling() -> None:
    statuses = Harness().run(
        [task("a"), task("bad"), task("below", "bad", "a"), task("deeper", "below"), task("beside", "a")],
        lambda state: NodeStatus.FAILED if state.task.key == "bad" else NodeStatus.SUCCESS,
    )
    assert {name for name, status in statuses.items() if status is NodeStatus.SKIPPED} == {"below", "deeper"}
    assert statuses["beside"] is NodeStatus.SUCCESS


def test_fail_fast_cancels_what_runs_and_skips_the_rest() -> None:
    harness = Harness()
    started = threading.Event()

    def body(state: TaskState) -> NodeStatus:
        if state.task.key == "bad":
            started.wait(120)
            return NodeStatus.FAILED
        started.set()
        assert state.cancel.wait(120), "the running sibling was not told to stop"
        return NodeStatus.SKIPPED

    statuses = harness.run([task("bad"), task("slow"), task("z", "slow")], body, fail_fast=True)
    assert statuses == {"bad": NodeStatus.FAILED, "slow": NodeStatus.SKIPPED, "z": NodeStatus.SKIPPED}


def test_a_connection_never_runs_more_nodes_than_its_permits() -> None:
    lock = threading.Lock()
    running = most = 0
    both = threading.Barrier(2)

    def body(state: TaskState) -> NodeStatus:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(120)  # proves that two do run at once
        with lock:
            running -= 1
        return NodeStatus.SUCCESS

    Harness().run([task(str(n), connection="db") for n in range(6)], body, permits={"db": 2}, threads=8)
    assert most == 2


def test_zero_threads_are_refused_instead_of_waiting_for_ever() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Harness().run([task("a")], threads=0)


def test_a_cancelled_run_gives_every_node_a_result() -> None:
    harness = Harness()

    def body(state: TaskState) -> NodeStatus:
        harness.cancel.cancel()
        return NodeStatus.SUCCESS

    statuses = harness.run([task("a"), task("b", "a"), task("c", "b")], body)
    assert statuses == {"a": NodeStatus.SUCCESS, "b": NodeStatus.SKIPPED, "c": NodeStatus.SKIPPED}


def test_a_node_over_its_time_is_told_to_stop() -> None:
    def body(state: TaskState) -> NodeStatus:
        return NodeStatus.FAILED if state.cancel.wait(120) else NodeStatus.SUCCESS

    statuses = Harness().run([task("slow"), task("other")], body, node_timeout=timedelta(milliseconds=50))
    assert statuses["slow"] is NodeStatus.FAILED


def test_a_node_that_ignores_its_cancellation_is_left_behind_and_the_rest_cancelled() -> None:
    harness = Harness()
    never = threading.Event()

    def body(state: TaskState) -> NodeStatus:
        if state.task.key == "deaf":
            never.wait(60)
        return NodeStatus.SUCCESS

    statuses = harness.run(
        [task("deaf"), task("below", "deaf")],
        body,
        node_timeout=timedelta(milliseconds=20),
        grace=timedelta(milliseconds=20),
    )
    never.set()
    assert statuses == {"deaf": NodeStatus.FAILED, "below": NodeStatus.SKIPPED}
    assert harness.cancel.cancelled


def test_fused_nodes_run_as_one_task_and_get_a_result_each() -> None:
    nodes = tuple(Node(id=name, kind=NodeKind.PIPELINE, name=name) for name in ("x", "y", "z"))
    statuses = Harness().run([Task(nodes)])
    assert set(statuses) == {"x", "y", "z"}


def test_no_tasks_are_done_at_once() -> None:
    assert Harness().run([]) == {}
