"""What an earlier run began and this one does not go on with, because the project or the command is another one now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pz.connectors.contract import Settlement, WriteStrategy
from pz.engine.doubt import settled
from pz.engine.evidence import Evidence
from pz.engine.locations import location_digest
from pz.engine.prepare import Prepared
from pz.engine.reading import STATEFUL, entry_record
from pz.errors import Code, Problem, Severity
from pz.graph.model import NodeKind, SinkNode, SourceNode
from pz.runs.history import RunEntry, later_than
from pz.runs.model import NodeStatus, RecordedNode, RunRecord
from pz.runs.unsettled import unsettled
from pz.state.kinds import StateFiles
from pz.state.sync_state import is_pending

__all__ = ["dropped_refreshes", "edited_appends", "edited_since", "unfinished_refreshes"]


def edited_appends(prepared: Prepared, record: RunRecord) -> tuple[tuple[SinkNode, RecordedNode], ...]:
    """The appends of this run that another one had, too, at the same place, but defined otherwise; each as it was then."""
    had = {node.name: node for node in record.nodes if node.kind == NodeKind.SINK_WRITE}
    return tuple(
        (sink, had[sink.name])
        for sink in prepared.graph.sinks()
        if sink.id in prepared.execution
        and sink.write.strategy is WriteStrategy.APPEND
        and sink.name in had
        and had[sink.name].id != sink.id
        and had[sink.name].location == location_digest(prepared.project, prepared.registry, sink.connection)
    )


def edited_since(prepared: Prepared, evidence: Evidence) -> Iterator[Problem]:
    """The warning that an append gets rows again, which it had, or may have, got from an attempt before it was edited."""
    for sink, before in edited_appends(prepared, evidence.record):
        result = evidence.results.get(before.id)
        if result is not None and result.status is NodeStatus.SUCCESS:
            found: Settlement | None = Settlement.COMMITTED
        else:
            found = _asked(prepared, sink, before, evidence)
        if found is Settlement.COMMITTED:
            said = "had committed, and is delivered anew: its rows are added once more"
            yield _warning(
                Code.PZ0713, sink, said, "remove the rows of that attempt, unless they are to be there twice"
            )
        elif found is Settlement.UNKNOWN:
            said = (
                "may have committed, which cannot be told any more; if it did, its rows are there twice after this run"
            )
            yield _warning(Code.PZ0704, sink, said, "look at the destination, and remove what is there twice")


def _warning(code: Code, sink: SinkNode, said: str, hint: str) -> Problem:
    message = f"output '{sink.name}' was edited after an attempt at it that {said}"
    problem = Problem(code, message, hint=hint, severity=Severity.WARNING)
    return problem.at(sink.location.file, sink.location.line) if sink.location else problem


def _asked(prepared: Prepared, sink: SinkNode, before: RecordedNode, evidence: Evidence) -> Settlement | None:
    """What the destination says of the attempts in doubt that were made before the edit; None when there was none."""
    doubtful = (attempt for attempt in evidence.doubtful if attempt.node_id == before.id)
    answers = {settled(prepared, sink, attempt, evidence.record) for attempt in doubtful}
    worst = (Settlement.COMMITTED, Settlement.UNKNOWN, Settlement.NOT_COMMITTED)
    return next((answer for answer in worst if answer in answers), None)


def unfinished_refreshes(state_dir: Path) -> tuple[RunEntry, ...]:
    """The runs that were to read from the beginning and did not finish; asked before `heal` has done with them."""
    return tuple(
        entry
        for entry in unsettled(state_dir)
        if not (entry.live or entry.finished) and entry.record is not None and entry.record.flags.get("full_refresh")
    )


def dropped_refreshes(prepared: Prepared, unfinished: Iterable[RunEntry]) -> Iterator[Problem]:
    """The warning that a full refresh which did not finish is not gone on with; until a run has gone on from the state."""
    state_dir = prepared.project.state_dir
    told: set[str] = set()
    for entry in unfinished:
        if entry.record is None:
            continue
        files = StateFiles.read(state_dir)
        stands = {node.name: node.key for node in _standing(prepared, entry.record, files)}
        gone_on = _gone_on(state_dir, entry) if stands else frozenset()
        if fresh := sorted({key for name, key in stands.items() if name not in gone_on} - told):
            told |= set(fresh)
            yield Problem(
                Code.PZ0713,
                f"run {entry.run_id} was to read {', '.join(map(repr, fresh))} from the beginning (--full-refresh) and did "
                "not finish; this run goes on from the stored state instead",
                hint="run with --full-refresh again, if everything is still to be read",
                severity=Severity.WARNING,
            )


def _standing(prepared: Prepared, record: RunRecord, files: StateFiles) -> Iterator[SourceNode]:
    """The datasets of this run whose state is still the one that a full refresh passed over."""
    for node in prepared.graph.sources():
        shape = prepared.plan[node.id].read_shape if node.id in prepared.execution else None
        stored = files.of(node.key, shape).own if shape in STATEFUL else None
        if stored is not None and not is_pending(stored) and entry_record(stored) == record.stored.get(node.key):
            yield node


def _gone_on(state_dir: Path, entry: RunEntry) -> frozenset[str]:
    """Names of the datasets that a later run read well, and found nothing new."""
    later = [run.record for run in later_than(state_dir, entry) if run.finished and run.record is not None]
    return frozenset(node.name for record in later for node in record.nodes if node.kind == NodeKind.SOURCE_LOAD)
