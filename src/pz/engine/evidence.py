"""What a run has durably done, whatever became of its process: its ledger and its results put together."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pz.errors import StateError
from pz.frozen import frozen
from pz.graph.model import NodeKind, SinkNode
from pz.runs.history import RunEntry
from pz.runs.model import NodeResult, NodeStatus, RecordedNode, RunRecord
from pz.staging.meta import AttemptState, Ledger, NodeDone, SinkAttempt
from pz.staging.session import STAGING_FILE, StagingSession
from pz.state.advancement import CARRIED_FORWARD

__all__ = ["Evidence", "evidence_of", "success_of"]

log = logging.getLogger(__name__)

_DOUBTFUL = (AttemptState.BEGUN, AttemptState.UNKNOWN)


@frozen(slots=False)
class Evidence:
    """What a run has durably done, put together from its ledger and its results; results by node id.

    ``doubtful`` are attempts whose outcome only the destination can tell. ``complete``: the ledger could be read, or is
    gone for good.
    """

    record: RunRecord
    results: Mapping[str, NodeResult]
    done: Mapping[str, NodeDone]
    doubtful: tuple[SinkAttempt, ...] = ()
    complete: bool = True


def evidence_of(entry: RunEntry) -> Evidence | None:
    """Put together what is durable of a run; None without a usable record.

    Without usable staging the results alone count: nothing can be reused then, but what has succeeded has succeeded.
    """
    if entry.record is None:
        return None
    done: dict[str, NodeDone] = {}
    committed: dict[str, SinkAttempt] = {}
    doubtful: tuple[SinkAttempt, ...] = ()
    complete = True
    try:
        with StagingSession.open_read_only(entry.path) as session, session.cursor() as cursor:
            ledger = Ledger(cursor)
            done = {found.node_id: found for found in ledger.nodes_done()}
            attempts = ledger.attempts()
            committed = {found.node_id: found for found in attempts if found.state is AttemptState.COMMITTED}
            doubtful = tuple(found for found in attempts if found.state in _DOUBTFUL)
    except StateError as unusable:
        complete = not (entry.path / STAGING_FILE).exists()
        log.info("staging of run %s cannot be used: %s", entry.run_id, unusable.code)
    results = {node.id: node for node in (entry.results.nodes if entry.results else ())}
    for node in entry.record.nodes:
        proven = node.id in committed or (node.id in done and node.kind == NodeKind.SOURCE_LOAD)
        known = results.get(node.id)
        if proven and (known is None or known.status is not NodeStatus.SUCCESS):
            rows = done[node.id].rows if node.id in done else 0
            results[node.id] = success_of(node, entry.run_id, committed.get(node.id), rows)
    return Evidence(entry.record, results, done, doubtful, complete)


def success_of(node: RecordedNode | SinkNode, run_id: str, attempt: SinkAttempt | None, rows: int = 0) -> NodeResult:
    """The result of a node of a run that only its ledger, or the destination, tells.

    An output is carried forward where an earlier run of the chain had committed it: this run may have read other rows.
    """
    earlier = attempt is not None and attempt.run_id != run_id
    provenance = CARRIED_FORWARD if earlier else None
    return NodeResult(node.id, node.kind, node.name, NodeStatus.SUCCESS, rows, provenance=provenance)
