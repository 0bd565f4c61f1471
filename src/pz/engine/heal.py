"""Taking over what a dead run left: state for flows whose outputs had all committed, so nothing is delivered twice.

Before anything is read, a run looks back at the last runs that did not end well and replays the advancement walk over
what they recorded: finished loads, committed outputs, results. Only datasets that this run has locked are touched, and
only when the stored state is still what that run had found. An attempt in doubt is settled by asking the destination.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from pz.connectors.contract import CancelToken, Settlement
from pz.engine.advance import candidates_of, store_decisions
from pz.engine.bindings import bindings_of
from pz.engine.doubt import settled
from pz.engine.evidence import Evidence, evidence_of, success_of
from pz.engine.left_behind import edited_appends, edited_since
from pz.engine.locations import location_digest
from pz.engine.locking import hold_locks
from pz.engine.prepare import Prepared
from pz.engine.reading import STATEFUL, entry_record
from pz.errors import Code, Problem, StateError
from pz.events import EventBus, now, timestamp
from pz.frozen import frozen
from pz.graph.model import Node, SinkNode, SourceNode
from pz.runs.directory import hold
from pz.runs.history import RunEntry
from pz.runs.model import NodeResult, NodeStatus, RunRecord, RunResults, RunStatus
from pz.runs.records import write_results
from pz.runs.unsettled import settle, unsettled
from pz.state.advancement import decide, outputs_below
from pz.state.entries import Entry
from pz.state.kinds import StateFiles

__all__ = ["heal", "heal_finished"]


def heal(prepared: Prepared, own_run: str, held: frozenset[str] = frozenset()) -> tuple[Problem, ...]:
    """Replay the advancement of runs that died or could not store state. ``held`` are runs whose lock we have ourselves.

    Returns what could not be stored, and warnings of rows that come again because the project was edited. A run whose files
    cannot be used is passed over: its rows are simply read again. A run stays in sight, whatever ran since, until no state
    can come of it: a flow may rest for a long time after a death.
    """
    found: list[Problem] = []
    state_dir = prepared.project.state_dir
    for entry in unsettled(state_dir):
        if entry.run_id == own_run or (entry.live and entry.run_id not in held):
            continue
        if entry.record is None or entry.finished:
            settle(state_dir, entry.run_id)
            continue
        replayed = _replay(prepared, entry, entry.record)
        found.extend(replayed.problems)
        found.extend(_edited(prepared, entry, entry.record, replayed.waiting))
        if replayed.settled:
            _conclude(entry, entry.record, held)
            settle(state_dir, entry.run_id)
    return tuple(dict.fromkeys(found))  # several runs that did not store the same


def _conclude(entry: RunEntry, record: RunRecord, held: frozenset[str]) -> None:
    """Write the terminal status of a dead run that had done all that it was to do; then nothing is left to be said of it."""
    evidence = (
        evidence_of(entry) if entry.dead or (entry.run_id in held and entry.status is RunStatus.RUNNING) else None
    )
    done = {} if evidence is None else evidence.results
    nodes = tuple(done[node.id] for node in record.nodes if node.id in done)
    if len(nodes) < len(record.nodes) or any(node.status is not NodeStatus.SUCCESS for node in nodes):
        return
    lock = None if entry.run_id in held else hold(entry.path, entry.run_id)
    if lock is None and entry.run_id not in held:
        return
    finished = timestamp(now())
    with suppress(OSError), lock or nullcontext():
        write_results(
            entry.path,
            RunResults(entry.run_id, record.origin, RunStatus.SUCCESS, record.started_at, finished, nodes),
        )


@frozen
class _Replayed:
    """What could not be stored, whether nothing can come of the run any more, and the datasets that this run cannot heal."""

    problems: tuple[Problem, ...] = ()
    settled: bool = False
    waiting: frozenset[str] = frozenset()


def _edited(prepared: Prepared, entry: RunEntry, record: RunRecord, waiting: frozenset[str]) -> Iterable[Problem]:
    """Of the rows that the run had delivered and this one reads again: those that an edited append gets a second time."""
    graph = prepared.graph
    above = graph.ancestors(sink.id for sink, _ in edited_appends(prepared, record)) if waiting else frozenset[str]()
    if not any(source.id in above and source.key in waiting for source in graph.sources()):
        return ()
    evidence = evidence_of(entry)
    return () if evidence is None else edited_since(prepared, evidence)


def heal_finished(
    prepared: Prepared, own_run: str, recorded: Iterable[str], held: frozenset[str]
) -> tuple[Problem, ...]:
    """The same for what a retry need not run again: flows of its chain that had committed, but whose state was not stored.

    Their locks are taken for this moment only, and not waited for: a run that holds one heals the flow itself.
    """
    rest = frozenset(recorded) & frozenset(prepared.graph.by_id) - prepared.execution
    if not rest:
        return ()
    finished = replace(prepared, execution=rest)
    try:
        with hold_locks(finished, own_run, EventBus(), CancelToken(), wait=0.0):
            return heal(finished, own_run, held)
    except StateError as busy:
        if busy.code is not Code.PZ0701:
            raise
        return ()


def _replay(prepared: Prepared, entry: RunEntry, record: RunRecord) -> _Replayed:
    state_dir = prepared.project.state_dir
    files = StateFiles.read(state_dir)
    stored = {
        source.key: files.of(source.key, prepared.plan[source.id].read_shape).own for source in prepared.graph.sources()
    }
    sources = [
        source
        for source in prepared.graph.sources()
        if _may_heal(prepared, record, source) and _unchanged(stored.get(source.key), record.stored.get(source.key))
    ]
    rest = _waiting(prepared, record, files) - {source.key for source in sources}
    # A dead run's staging is opened only for what may come of it: runs would pay for every death before them.
    evidence = evidence_of(entry) if sources else None
    if evidence is None:
        return _Replayed(settled=not rest, waiting=rest)
    wanted = {source.id for source in sources}
    candidates = {k: v for k, v in candidates_of(prepared.graph, evidence.done).items() if k in wanted}
    settled = not rest and evidence.complete
    full_refresh = bool(record.flags.get("full_refresh"))
    if not candidates and not full_refresh:  # a full refresh that read nothing leaves no state
        return _Replayed(settled=settled, waiting=rest)
    seen = {source.key: stored.get(source.key) for source in sources}
    results = _with_settled(prepared, evidence, sources)
    decisions = decide(prepared.graph, results, candidates)
    problems = store_decisions(
        state_dir,
        prepared.graph,
        tuple(d for d in decisions if d.key in seen),
        run_id=record.run_id,
        seen=seen,
        bindings=bindings_of(prepared.project, prepared.graph, prepared.registry),
        full_refresh=full_refresh,
        quiet=True,
    ).problems
    open_ = any(
        a.node_id not in results or results[a.node_id].status is not NodeStatus.SUCCESS for a in evidence.doubtful
    )
    return _Replayed(problems, settled and not problems and not open_, rest)


def _waiting(prepared: Prepared, record: RunRecord, files: StateFiles) -> frozenset[str]:
    """The datasets of a run whose state is still what the run found, so that it may still be moved.

    Of nodes that the project does not have (any more) only the record can tell which keep state.
    """
    by_id = prepared.graph.by_id
    known = [node for found in record.nodes if isinstance(node := by_id.get(found.id), SourceNode)]
    shapes = {node.key: prepared.plan[node.id].read_shape for node in known}
    waiting = {
        key
        for key, shape in shapes.items()
        if shape in STATEFUL and _unchanged(files.of(key, shape).own, record.stored.get(key))
    }
    for key in {*record.stored, *record.probes} - shapes.keys():
        stored: list[Entry | None] = [e for e in (files.watermarks.get(key), files.tokens.get(key)) if e is not None]
        if any(_unchanged(entry, record.stored.get(key)) for entry in stored or [None]):
            waiting.add(key)
    return frozenset(waiting)


def _with_settled(prepared: Prepared, evidence: Evidence, sources: Sequence[SourceNode]) -> Mapping[str, NodeResult]:
    """The results, with outputs whose doubtful attempt is found to have committed counted as such."""
    results = dict(evidence.results)
    outputs = {sink.id: sink for source in sources for sink in outputs_below(prepared.graph, source)}
    for attempt in evidence.doubtful:
        sink = outputs.get(attempt.node_id)
        known = results.get(attempt.node_id)
        if sink is None or (known is not None and known.status is NodeStatus.SUCCESS):
            continue
        if settled(prepared, sink, attempt, evidence.record) is Settlement.COMMITTED:
            results[sink.id] = success_of(sink, evidence.record.run_id, attempt)
    return results


def _may_heal(prepared: Prepared, record: RunRecord, source: SourceNode) -> bool:
    """Whether the dataset is ours to touch: with state, in this execution set (hence locked), unchanged in id and place."""
    if source.id not in prepared.execution or prepared.plan[source.id].read_shape not in STATEFUL:
        return False
    recorded = {node.id: node for node in record.nodes}
    involved: tuple[Node, ...] = (source, *outputs_below(prepared.graph, source))
    return all(
        node.id in recorded
        and isinstance(node, SourceNode | SinkNode)
        and recorded[node.id].location == location_digest(prepared.project, prepared.registry, node.connection)
        for node in involved
    )


def _unchanged(now_stored: Entry | None, recorded: object) -> bool:
    return (None if now_stored is None else entry_record(now_stored)) == recorded
