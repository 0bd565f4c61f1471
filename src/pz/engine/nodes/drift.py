"""Source drift: what landed is compared with the accepted columns, for datasets without a contract.

``ignore`` neither reads nor writes a baseline; ``warn`` says so on every run until it is accepted; ``fail`` fails the load.
A load that was reused is not looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pz.engine.nodes.landing import Landing
from pz.errors import Code, NodeError, Problem
from pz.events import SourceDriftDetected
from pz.jsonfile import digest
from pz.project.model import DriftPolicy
from pz.staging.meta import NodeDone
from pz.state.schemas import Observed, observe, observed_to_json, schema_store

if TYPE_CHECKING:
    from pz.engine.context import NodeContext

__all__ = ["look_for_drift"]


def look_for_drift(context: NodeContext, landing: Landing, done: NodeDone) -> dict[str, Any]:
    """Compare and report; returns the ``observed_schema`` block, empty where nothing is observed.

    Raises:
        NodeError: PZ0331 under the policy ``fail``.
    """
    policy = context.run.project.on_source_drift
    if policy is DriftPolicy.IGNORE or landing.node.read.columns is not None:
        return {}
    narrowed = {"columns": landing.hints.columns, "predicate": landing.hints.predicate}
    observed = Observed(done.columns, digest(narrowed))
    found = observe(schema_store(context.run.project.state_dir), landing.node.key, observed, context.run.run_id)
    block = {"observed_schema": {"dataset": landing.node.key, **observed_to_json(observed)}}
    if not found:
        return block
    context.run.bus.publish(
        SourceDriftDetected(
            run_id=context.run.run_id,
            node_id=landing.node.id,
            dataset=landing.node.key,
            added=found.added,
            removed=found.removed,
            retyped=found.retyped,
        )
    )
    message = f"dataset '{landing.node.key}' has drifted from its accepted columns: {found}"
    if policy is DriftPolicy.FAIL:
        failure = NodeError(Problem(Code.PZ0331, message))
        failure.pz_blocks = block  # type: ignore[attr-defined]
        raise failure
    context.run.note(message, severity="warning", code=Code.PZ0331)
    return block
