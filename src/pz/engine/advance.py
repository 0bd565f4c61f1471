"""Moving state behind what has committed: at the end of a run, and in the place of a run that died before it could."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pz.cursors import CursorType
from pz.engine.bindings import bindings_of
from pz.engine.context import RunContext
from pz.errors import Code, Problem, Severity
from pz.frozen import frozen
from pz.graph.model import Graph, SourceNode
from pz.runs.model import NodeResult
from pz.staging.meta import Ledger, NodeDone
from pz.state.advancement import Decision, Verdict, decide, store
from pz.state.entries import Binding, Entry, Token, Value, Watermark
from pz.state.sync_state import token_store
from pz.state.watermarks import watermark_store

__all__ = ["Advanced", "advance", "candidates_of", "store_decisions"]


@frozen
class Advanced:
    """Notes, and a PZ0527 error when state could not be stored; the keys whose state was written."""

    problems: tuple[Problem, ...] = ()
    written: tuple[str, ...] = ()


def advance(
    context: RunContext,
    results: Iterable[NodeResult],
    seen: Mapping[str, Entry | None],
) -> Advanced:
    """Decide and store for every dataset of the run. Not for a run that was cut short: the next one heals it."""
    with context.staging.cursor() as cursor:
        done = {entry.node_id: entry for entry in Ledger(cursor).nodes_done()}
    by_id = {result.id: result for result in results}
    candidates = candidates_of(context.graph, done)
    decisions = decide(context.graph, by_id, candidates)
    bindings = bindings_of(context.project, context.graph, context.registry)
    return store_decisions(
        context.project.state_dir,
        context.graph,
        decisions,
        run_id=context.run_id,
        seen=seen,
        bindings=bindings,
        full_refresh=bool(context.record.flags.get("full_refresh")),
    )


def candidates_of(graph: Graph, done: Mapping[str, NodeDone]) -> dict[str, Value]:
    """What each finished load offers as new state, by node id."""
    found: dict[str, Value] = {}
    for source in graph.sources():
        entry = done.get(source.id)
        if entry is None:
            continue
        if entry.token is not None:
            found[source.id] = Token(entry.token)
        elif entry.candidate is not None and entry.candidate_type is not None:
            found[source.id] = Watermark(
                source.read.sync.cursor or "", CursorType(entry.candidate_type), entry.candidate
            )
    return found


def store_decisions(
    state_dir: Path,
    graph: Graph,
    decisions: tuple[Decision, ...],
    *,
    run_id: str,
    seen: Mapping[str, Entry | None],
    bindings: Mapping[str, Binding],
    full_refresh: bool,
    quiet: bool = False,
) -> Advanced:
    """Store what may advance; blocked datasets are reported as notes, unless ``quiet``."""
    keys = {source.id: source.key for source in graph.sources() if isinstance(source, SourceNode)}
    blocked = () if quiet else _blocked(decisions)
    if not full_refresh and not any(d.verdict is Verdict.ADVANCE or d.delivered for d in decisions):
        return Advanced(blocked)
    stored = store(
        decisions,
        watermark_store(state_dir),
        token_store(state_dir),
        run_id=run_id,
        seen=seen,
        bindings={keys[node_id]: binding for node_id, binding in bindings.items()},
        full_refresh=full_refresh,
    )
    return Advanced((*blocked, *((stored.problem,) if stored.problem else ())), stored.written)


def _blocked(decisions: tuple[Decision, ...]) -> tuple[Problem, ...]:
    return tuple(
        Problem(d.code or Code.PZ0714, f"state of '{d.key}' stays where it is: {d.reason}", severity=Severity.NOTE)
        for d in decisions
        if d.verdict is Verdict.BLOCKED
    )
