"""One run, from a request to its terminal status. This is the file to read first: `run` is the phases, in order.

prepare        load, compile, dry-compile, select, plan: every refusal that needs no live system
directory      a run id, a number and the run's lock
locks          one per stateful dataset and per output, before any state is read
reading        stored state, probes, pinned bounds: what each dataset reads in this run
record         run.json, durable: from here on a dead run can be taken over
dispatch       every node to its one result
advancement    state moves only behind sinks that have committed
finish         the terminal status, the last durable write
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from pz.connectors.contract import CancelToken
from pz.engine.advance import Advanced, advance
from pz.engine.bindings import bindings_of
from pz.engine.capture import acknowledge, mark_pending_snapshots, tell_left_captures
from pz.engine.context import RunContext
from pz.engine.dispatch import Dispatcher
from pz.engine.executor import Executor, completed_event
from pz.engine.heal import heal, heal_finished
from pz.engine.left_behind import dropped_refreshes, unfinished_refreshes
from pz.engine.locations import location_digest
from pz.engine.locking import hold_locks
from pz.engine.prepare import Prepared, Request, prepare
from pz.engine.prior import PriorRun
from pz.engine.probe import Probed, Retries, probe
from pz.engine.reading import Reading, resolve_reading
from pz.engine.result import Progress, RunResult
from pz.engine.tasks import tasks_for
from pz.errors import Problem, PzError, Severity
from pz.events import EventBus, Notice, OutlineNode, RetentionSwept, RunCompleted, RunStarted, now, timestamp
from pz.graph.model import CheckNode, Node, PipelineNode, SinkNode, SourceNode
from pz.graph.selection import flow_names
from pz.plan.artifact import write_plan
from pz.runs.directory import RunDirectory, removed
from pz.runs.history import leave_trace
from pz.runs.model import NodeResult, NodeStatus, RecordedNode, RunRecord, RunResults, RunStatus
from pz.runs.records import ResultsWriter, write_record, write_results
from pz.runs.retention import sweep
from pz.runs.unsettled import settle
from pz.staging.session import StagingSession
from pz.state.entries import Binding

__all__ = ["execute", "run"]


def run(root: Path, environ: Mapping[str, str], request: Request, bus: EventBus, cancel: CancelToken) -> RunResult:
    """Run what was asked for. Raises ProjectError or StateError when refused before anything moved."""
    try:
        return execute(prepare(root, environ, request), request, bus, cancel)
    except PzError:
        if request.verb == "run":
            leave_trace(root / ".pz")  # what was to be delivered was not: no success of an earlier run hides that
        raise


def execute(
    prepared: Prepared, request: Request, bus: EventBus, cancel: CancelToken, prior: PriorRun | None = None
) -> RunResult:
    """Run a prepared execution set; ``prior`` is the run that a retry continues."""
    with ExitStack() as held:
        directory = held.enter_context(RunDirectory.create(prepared.project.state_dir))
        held.enter_context(hold_locks(prepared, directory.run_id, bus, cancel))
        if prior is not None:
            prior.refuse_overtaken(prepared.project.state_dir, prepared.graph.in_order(prepared.execution))
        unfinished = unfinished_refreshes(prepared.project.state_dir)
        healed = heal(prepared, directory.run_id, prior.held if prior else frozenset())
        if prior is not None:
            chain = (node_id for _, _, node_id in prior.recorded_nodes())
            healed += heal_finished(prepared, directory.run_id, chain, prior.held)
        started = now()
        bindings = bindings_of(prepared.project, prepared.graph, prepared.registry)
        probed = probe(prepared, cancel, Retries(bus, directory.run_id))
        began = prior.origin_started_at if prior else started
        origin = prior.record.origin if prior else directory.run_id
        reading = resolve_reading(prepared, request, began, prior, bindings, probed, origin)
        reading = mark_pending_snapshots(prepared, reading, directory.run_id, bindings)
        record = _record(prepared, request, directory, reading, bindings, prior, timestamp(started))
        write_record(directory.path, record)
        write_plan(prepared.project.state_dir / "target", prepared.plan)
        journal = _Journal(directory, record, bus)
        dropped = () if prior is not None or request.full_refresh else dropped_refreshes(prepared, unfinished)
        told = (*prepared.warnings, *healed, *dropped, *reading.problems, *tell_left_captures(prepared))
        journal.begin(prepared, told)
        with _staging(prepared, directory) as staging:
            context = _context(prepared, record, staging, bus, cancel, reading, prior, probed)
            if prior is not None:
                prior.inherit(context, journal.add)
            _dispatch(context, prepared, request, journal)
            # Asked once: a signal that comes when all is committed must not keep the state of a success from its place.
            cut = cancel.cancelled and any(found.status is not NodeStatus.SUCCESS for found in journal.results)
            advanced = Advanced() if cut else advance(context, journal.results, reading.seen)
        for kept in () if cut else acknowledge(prepared, bindings):
            journal.warn(kept)
        result = journal.finish(cancelled=cut, problems=advanced.problems, keep_last=prepared.project.keep_last)
        return replace(result, progress=Progress.of(reading, stored=bool(advanced.written)))


def _outline(prepared: Prepared) -> tuple[OutlineNode, ...]:
    """What will run, flow by flow; a flow is called after its last pipeline."""
    graph = prepared.graph
    return tuple(
        OutlineNode(node.id, node.kind.value, node.name, name, counted=_counted(node))
        for name, flow in zip(flow_names(graph), graph.components(), strict=True)
        for node in graph.in_order(flow & prepared.execution)
    )


def _counted(node: Node) -> bool:
    """Whether the node's result says how many rows there are."""
    computed_later = isinstance(node, PipelineNode) and node.is_view and not node.passes_through
    return not (computed_later or isinstance(node, CheckNode))


@dataclass
class _Journal:
    """The run's growing results: on disk after every node, on the bus, and terminal last."""

    directory: RunDirectory
    record: RunRecord
    bus: EventBus
    results: list[NodeResult] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._writer = ResultsWriter(self.directory.path, self.warn)
        self._begun = time.monotonic()

    def begin(self, prepared: Prepared, problems: tuple[Problem, ...]) -> None:
        """Open the stream: run_started, then what was found while preparing."""
        run_id = self.record.run_id
        self.bus.publish(
            RunStarted(
                run_id=run_id,
                project_name=prepared.project.name,
                node_count=len(prepared.execution),
                outline=_outline(prepared),
            )
        )
        for problem in problems:
            self.warn(problem)
        self._writer.write(self._view(RunStatus.RUNNING))

    def warn(self, problem: Problem) -> None:
        """Keep a warning or note and tell the bus; once, also of what an earlier run left and this one could not mend."""
        if problem in self.problems:
            return
        self.problems.append(problem)
        text = f"{problem.message} ({problem.where})" if problem.where else problem.message
        run_id = self.record.run_id
        hint = None if problem.severity is Severity.NOTE else problem.hint
        self.bus.publish(Notice(run_id=run_id, severity=problem.severity, message=text, code=problem.code, hint=hint))

    def add(self, results: tuple[NodeResult, ...]) -> None:
        """Keep the results of a task, rewrite the view, tell the bus."""
        self.results.extend(results)
        self._writer.write(self._view(RunStatus.RUNNING))
        for result in results:
            self.bus.publish(completed_event(self.record.run_id, result))

    def finish(self, *, cancelled: bool, problems: tuple[Problem, ...], keep_last: int | None) -> RunResult:
        """Write the terminal status, sweep old runs, close the stream."""
        if (lost := removed(self.directory.path)) is not None:
            problems = (*problems, lost)
        for problem in problems:
            self.warn(problem)
        status = _terminal(self.results, cancelled, failed_late=any(p.severity is Severity.ERROR for p in problems))
        final = self._view(status)
        if lost is None:
            write_results(self.directory.path, final)
        if status is RunStatus.SUCCESS:
            settle(self.directory.path.parents[1], self.record.run_id)
        counts = {s: sum(r.status is s for r in self.results) for s in NodeStatus}
        self.bus.publish(
            RunCompleted(
                run_id=self.record.run_id,
                status=status,
                succeeded=counts[NodeStatus.SUCCESS],
                failed=counts[NodeStatus.FAILED],
                skipped=counts[NodeStatus.SKIPPED],
                duration_ms=round((time.monotonic() - self._begun) * 1000),
            )
        )
        self._sweep(keep_last)
        return RunResult(self.record.run_id, self.directory.path, final, tuple(self.problems), cancelled=cancelled)

    def _sweep(self, keep_last: int | None) -> None:
        if keep_last is None:
            return
        swept = sweep(self.directory.path.parents[1], keep_last)
        self.bus.publish(RetentionSwept(run_id=self.record.run_id, runs=len(swept.cleaned), bytes=swept.bytes))

    def _view(self, status: RunStatus) -> RunResults:
        finished = None if status is RunStatus.RUNNING else timestamp(now())
        return RunResults(
            self.record.run_id, self.record.origin, status, self.record.started_at, finished, tuple(self.results)
        )


def _terminal(results: list[NodeResult], cancelled: bool, *, failed_late: bool) -> RunStatus:
    if failed_late or any(result.status is NodeStatus.FAILED for result in results):
        return RunStatus.COMPLETED_WITH_FAILURES
    if cancelled and any(result.status is NodeStatus.SKIPPED for result in results):
        return RunStatus.FATAL
    return RunStatus.SUCCESS


def _record(
    prepared: Prepared,
    request: Request,
    directory: RunDirectory,
    reading: Reading,
    bindings: Mapping[str, Binding],
    prior: PriorRun | None,
    started: str,
) -> RunRecord:
    own = RunRecord(
        run_id=directory.run_id,
        number=directory.number,
        project=prepared.project.name,
        started_at=started,
        verb=request.verb,
        nodes=_recorded_nodes(prepared),
        origin=directory.run_id,
        origin_started_at=started,
        flags={"full_refresh": request.full_refresh, "fail_fast": request.fail_fast},
        vars=dict(request.vars),
        stored=reading.stored_json(),
        used=reading.used_json(),
        probes=reading.slices_json({node.id: node.key for node in prepared.graph.sources()}),
        places={
            node.key: {"location": bindings[node.id].location, "dataset": bindings[node.id].dataset}
            for node in prepared.graph.sources()
            if node.key in reading.seen
        },
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    return own if prior is None else prior.continued_by(own)


def _recorded_nodes(prepared: Prepared) -> tuple[RecordedNode, ...]:
    found = []
    for node in prepared.graph.in_order(prepared.execution):
        where = None
        if isinstance(node, SourceNode | SinkNode):
            where = location_digest(prepared.project, prepared.registry, node.connection)
        found.append(RecordedNode(node.id, node.kind, node.name, where))
    return tuple(found)


def _staging(prepared: Prepared, directory: RunDirectory) -> StagingSession:
    settings = prepared.project.engine.duckdb
    temp = prepared.project.root / settings.temp_directory / directory.run_id if settings.temp_directory else None
    return StagingSession.create(
        directory.path,
        memory_limit_bytes=prepared.plan.budget.duckdb,
        threads=settings.threads,
        temp_directory=temp,
    )


def _context(
    prepared: Prepared,
    record: RunRecord,
    staging: StagingSession,
    bus: EventBus,
    cancel: CancelToken,
    reading: Reading,
    prior: PriorRun | None,
    probed: Probed,
) -> RunContext:
    return RunContext(
        project=prepared.project,
        graph=prepared.graph,
        plan=prepared.plan,
        registry=prepared.registry,
        record=record,
        staging=staging,
        bus=bus,
        cancel=cancel,
        slices=reading.slices,
        tokens=reading.tokens,
        watermarks=reading.watermarks,
        totals={node_id: found.rows for node_id, found in probed.sources.items() if found.rows is not None},
        prior=prior,
    )


def _dispatch(context: RunContext, prepared: Prepared, request: Request, journal: _Journal) -> None:
    done = {result.id for result in journal.results}
    executor = Executor(context)
    Dispatcher(
        tasks_for(prepared.graph, prepared.plan, prepared.execution - done),
        executor,
        threads=prepared.project.engine.threads,
        cancel=context.cancel,
        on_results=journal.add,
        on_unresponsive=executor.unresponsive,
        permits={
            name: connection.max_concurrency
            for name, connection in prepared.project.connections.items()
            if connection.max_concurrency is not None
        },
        fail_fast=request.fail_fast,
        node_timeout=prepared.project.engine.node_timeout,
    ).run()
