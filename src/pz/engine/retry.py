"""`pz retry`: continue the last run from what is durable. Re-runs what failed, was skipped, never started or has changed.

Also a run whose process died, was cancelled or lost power: its lock is free, so nobody is working on it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pz.connectors.contract import CancelToken
from pz.engine.heal import heal
from pz.engine.left_behind import edited_since
from pz.engine.locations import location_digest
from pz.engine.locking import hold_locks
from pz.engine.prepare import Prepared, Request, prepare
from pz.engine.prior import PriorRun, gather
from pz.engine.result import RunResult
from pz.engine.run import execute
from pz.errors import Code, Problem, ProjectError, StateError
from pz.events import EventBus, Notice
from pz.graph.model import Graph, SinkNode, SourceNode
from pz.runs import history
from pz.runs.directory import hold, owner_of
from pz.runs.history import RunEntry
from pz.runs.model import RunResults, RunStatus

__all__ = ["retry"]


def retry(
    root: Path,
    environ: Mapping[str, str],
    bus: EventBus,
    cancel: CancelToken,
    *,
    full_refresh: bool = False,
    fail_fast: bool = False,
) -> RunResult:
    """Continue the last run.

    Raises:
        ProjectError: PZ0502 there is none, PZ0503 it is still going on, PZ0504 nothing is left of it to be done but a newer
            one was refused or died before it began, or the project no longer compiles.
        StateError: PZ0707 its files are damaged.
    """
    entry = _last_run(root / ".pz")
    if entry.status is RunStatus.SUCCESS:
        _refuse_unbegun(root / ".pz", entry)
        return _nothing(entry, bus, f"nothing to retry: the last run, {entry.run_id}, succeeded")
    lock = hold(entry.path, entry.run_id)
    if lock is None:
        raise _still_running(entry)
    with lock:
        prior = gather(history.chain(root / ".pz", entry), lock)
        if prior is None:
            raise StateError(Problem(Code.PZ0707, f"run {entry.run_id} left nothing that can be continued"))
        return _continue(root, environ, bus, cancel, prior, full_refresh=full_refresh, fail_fast=fail_fast)


def _last_run(state_dir: Path) -> RunEntry:
    entry = history.latest(state_dir)
    if entry is not None and _passed_test(entry):
        # It delivered nothing, so it finished nothing that an earlier run left open.
        entry = next((run for run in history.list_runs(state_dir) if not _passed_test(run)), entry)
    if entry is None:
        raise ProjectError(Problem(Code.PZ0502, "there is no run to retry"))
    if entry.live:
        raise _still_running(entry)
    if entry.damage:
        raise StateError(entry.damage)
    return entry


def _refuse_unbegun(state_dir: Path, entry: RunEntry) -> None:
    """Raise PZ0504 where "nothing to retry" would hide that the newest run delivered nothing at all."""
    unbegun = history.unbegun_after(state_dir, entry)
    if unbegun is not None:
        raise ProjectError(
            Problem(
                Code.PZ0504,
                f"there is nothing to retry of the newest run, {unbegun}: a refused run, or one that stopped before anything "
                f"moved, which `pz runs` does not list (the last one that began, {entry.run_id}, is done)",
                hint="mend what it was refused for, then: pz run",
            )
        )


def _passed_test(entry: RunEntry) -> bool:
    return entry.finished and entry.record is not None and entry.record.verb == "test"


def _still_running(entry: RunEntry) -> ProjectError:
    owner = owner_of(entry.path)
    by = "another process" if owner is None else owner.place if owner.run == entry.run_id else str(owner)
    return ProjectError(Problem(Code.PZ0503, f"run {entry.run_id} is still going on (held by {by})"))


def _continue(
    root: Path,
    environ: Mapping[str, str],
    bus: EventBus,
    cancel: CancelToken,
    prior: PriorRun,
    *,
    full_refresh: bool,
    fail_fast: bool,
) -> RunResult:
    record = prior.record
    prior.fresh = full_refresh
    request = Request(
        record.verb,
        vars=record.vars,
        full_refresh=full_refresh or bool(record.flags.get("full_refresh")),
        fail_fast=fail_fast,
    )
    chosen: set[str] = set()
    changed: list[str] = []

    def choose(graph: Graph) -> frozenset[str]:
        todo, renamed = _todo(graph, prior)
        changed.extend(renamed)
        chosen.update(todo)
        return graph.ancestors(todo)

    prior.same_place = _same_place(prepare(root, environ, request, choose=lambda graph: frozenset()), prior)
    prepared = prepare(root, environ, request, choose=choose)
    if not chosen:
        return _heal_only(prepared, prior, bus)
    if gone := _gone(prepared.graph, prior):
        message = f"no longer in the project, so not run again: {', '.join(gone)}"
        bus.publish(Notice(run_id=record.run_id, severity="note", message=message))
    for name in changed:
        bus.publish(Notice(run_id=record.run_id, severity="note", message=f"'{name}' changed since; it runs again"))
    edited = (problem for evidence in prior.evidence for problem in edited_since(prepared, evidence))
    warned = replace(prepared, warnings=tuple(dict.fromkeys((*prepared.warnings, *edited))))
    return execute(warned, request, bus, cancel, prior)


def _todo(graph: Graph, prior: PriorRun) -> tuple[set[str], list[str]]:
    """What must run: by kind and name, everything of the chain that is not done; and what is done under another id."""
    todo: set[str] = set()
    changed: list[str] = []
    done_names = {(node.kind, node.name) for node in prior.succeeded.values()}
    by_name = {(str(node.kind), node.name): node for node in graph.nodes}
    for kind, name, _ in prior.recorded_nodes():
        node = by_name.get((kind, name))
        if node is None or prior.is_done(node):
            continue
        todo.add(node.id)
        if (kind, name) in done_names and isinstance(node, SinkNode) and not prior.fresh:
            changed.append(node.name)
    return todo, changed


def _gone(graph: Graph, prior: PriorRun) -> list[str]:
    """What is not done and has no node of its name any more."""
    there = {(str(node.kind), node.name) for node in graph.nodes}
    done = {(str(node.kind), node.name) for node in prior.succeeded.values()}
    return [name for kind, name, _ in prior.recorded_nodes() if (str(kind), name) not in there | done]


def _same_place(prepared: Prepared, prior: PriorRun) -> frozenset[str]:
    """Ids of sources and sinks whose connection is where it was when the chain recorded them."""
    recorded = {n.id: n.location for evidence in prior.evidence for n in evidence.record.nodes}
    return frozenset(
        node.id
        for node in prepared.graph.nodes
        if isinstance(node, SourceNode | SinkNode)
        and recorded.get(node.id) == location_digest(prepared.project, prepared.registry, node.connection)
    )


def _heal_only(prepared: Prepared, prior: PriorRun, bus: EventBus) -> RunResult:
    """Nothing has to run; state that could not be stored then is stored now."""
    record = prior.record
    everything = Prepared(
        prepared.project,
        prepared.graph,
        prepared.registry,
        prepared.plan,
        frozenset(node.id for node in record.nodes) & frozenset(prepared.graph.by_id),
        prepared.warnings,
    )
    with hold_locks(everything, record.run_id, bus, CancelToken()):
        problems = heal(everything, "", prior.held)
    if problems:
        raise StateError(problems)
    _refuse_unbegun(prepared.project.state_dir, prior.entries[0])
    gone = _gone(prepared.graph, prior)
    why = f"what is left is no longer in the project: {', '.join(gone)}" if gone else _DONE
    return _nothing(prior.entries[0], bus, f"nothing to retry: {why}")


_DONE = "everything that the last run was to do is done"


def _nothing(entry: RunEntry, bus: EventBus, message: str) -> RunResult:
    bus.publish(Notice(run_id=entry.run_id, severity="note", message=message))
    results = entry.results or RunResults(entry.run_id, entry.origin, RunStatus.SUCCESS, "")
    return RunResult(entry.run_id, entry.path, results, nothing_to_do=True, notes=(message,))
