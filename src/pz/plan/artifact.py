"""``.pz/target/plan.json`` and ``pz plan --json``: a plan as data for programs. No SQL, no options, no secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pz.durable import Step, write_atomic
from pz.plan.model import Budget, Plan, PlannedNode
from pz.project.model import RetryPolicy

__all__ = ["PLAN_VERSION", "plan_to_json", "write_plan"]

PLAN_VERSION = 1


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The nodes in topological order, the budget in bytes, the notes. What does not apply to a node is absent."""
    return {
        "version": PLAN_VERSION,
        "nodes": [_node(node) for node in plan.nodes],
        "memoryBudget": _budget(plan.budget),
        "notes": list(plan.notes),
    }


def write_plan(target: Path, plan: Plan) -> Path:
    """Write ``plan.json`` into ``target``, atomically; return its path."""
    target.mkdir(parents=True, exist_ok=True)
    path = target / "plan.json"
    write_atomic(path, (json.dumps(plan_to_json(plan), indent=2) + "\n").encode(), Step.WRITE_PLAN)
    return path


def _node(node: PlannedNode) -> dict[str, Any]:
    optional = {
        "readShape": None if node.read_shape is None else node.read_shape.value,
        "guarantees": _guarantees(node),
        "retry": None if node.retry is None else _retry(node.retry),
        "partitions": node.partitions,
        "fusedWith": list(node.fused_with) or None,
        "refusal": None if node.refusal is None else {"code": node.refusal.code, "message": node.refusal.message},
    }
    present = {key: value for key, value in optional.items() if value is not None}
    return {
        "id": node.node_id,
        "kind": node.kind.value,
        "name": node.name,
        "way": node.way.value,
        "reason": node.reason,
        **present,
    }


def _guarantees(node: PlannedNode) -> dict[str, dict[str, str]] | None:
    """By the key of each dataset above the sink."""
    return {
        dataset: {"level": guarantee.level, "condition": guarantee.condition}
        for dataset, guarantee in (node.guarantees or {}).items()
    } or None


def _retry(policy: RetryPolicy) -> dict[str, Any]:
    return {
        "maxAttempts": policy.max_attempts,
        "baseDelaySeconds": policy.base_delay.total_seconds(),
        "maxDelaySeconds": policy.max_delay.total_seconds(),
    }


def _budget(budget: Budget) -> dict[str, int | None]:
    return {
        "duckdbBytes": budget.duckdb,
        "channelBytes": budget.channels,
        "fixedOverheadBytes": budget.overhead,
        "totalBytes": budget.total,
        "stagingDiskBytes": budget.staging_disk,
    }
