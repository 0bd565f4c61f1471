"""The locks of a run: one per stateful dataset and per output of its execution set, taken before any state is read."""

from __future__ import annotations

from pz.connectors.contract import CancelToken, ReadShape
from pz.engine.prepare import Prepared
from pz.events import EventBus, LockAwaited
from pz.graph.model import SinkNode, SourceNode
from pz.state.locks import WAIT, RunLocks, dataset_lock, output_lock

__all__ = ["hold_locks"]


def hold_locks(prepared: Prepared, run_id: str, bus: EventBus, cancel: CancelToken, *, wait: float = WAIT) -> RunLocks:
    """Take them all within ``wait`` seconds, or none; waiting for another run is told.

    Raises StateError PZ0701 when it keeps one, `Cancelled`.
    """

    def tell(message: str) -> None:
        bus.publish(LockAwaited(run_id=run_id, message=message))

    names = []
    for node in prepared.graph.in_order(prepared.execution):
        if isinstance(node, SinkNode):
            names.append(output_lock(node.name))
        elif isinstance(node, SourceNode) and prepared.plan[node.id].read_shape is not ReadShape.FULL:
            names.append(dataset_lock(node.key))
    return RunLocks.acquire(prepared.project.state_dir, run_id, names, wait=wait, cancel=cancel, tell=tell)
