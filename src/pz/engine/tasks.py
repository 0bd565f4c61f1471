"""From an execution set to dispatchable tasks: one node each, or the three nodes of a fused chain together."""

from __future__ import annotations

from pz.engine.dispatch import Task
from pz.graph.model import Graph, Node, SinkNode, SourceNode
from pz.plan.model import Plan

__all__ = ["tasks_for"]


def tasks_for(graph: Graph, plan: Plan, execution: frozenset[str]) -> tuple[Task, ...]:
    """The tasks of an execution set; parents outside of the set do not hold anybody up."""
    group_of = {node.id: plan[node.id].fused_with or (node.id,) for node in graph.in_order(execution)}
    tasks = []
    for key in dict.fromkeys(group_of.values()):
        nodes = graph.in_order(key)
        parents = {parent for node in nodes for parent in node.parents if parent in execution and parent not in key}
        tasks.append(Task(nodes, tuple(sorted({group_of[p][-1] for p in parents})), _connections(nodes)))
    return tuple(tasks)


def _connections(nodes: tuple[Node, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node.connection for node in nodes if isinstance(node, SourceNode | SinkNode)))
