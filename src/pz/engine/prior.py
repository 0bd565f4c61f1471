"""The run that a retry continues, and the chain behind it: what may be reused, resumed and carried forward.

Reuse is an optimisation with a correctness bonus, never a new way to fail: whatever cannot be used is read again, with a
note that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import Capability, SeesChanges, WriteStrategy
from pz.engine.evidence import Evidence, evidence_of
from pz.engine.nodes.landing import watermark_block
from pz.engine.outcome import Outcome
from pz.errors import Code, Problem, StateError
from pz.frozen import frozen
from pz.graph.model import Graph, Node, NodeKind, PipelineNode, SinkNode, SourceNode
from pz.oslock import OsLock
from pz.runs.history import RunEntry, later_than
from pz.runs.model import NodeResult, NodeStatus, RunRecord
from pz.staging.delivery_ledger import DeliveryLedger
from pz.staging.meta import Ledger, NodeDone, NodeWindow, PlannedPartition
from pz.staging.partition_ledger import PartitionLedger
from pz.staging.prior_run import (
    Asked,
    NotReused,
    PriorLoad,
    Reused,
    ReusedPartitions,
    can_reuse,
    copy_deliveries,
    read_load,
    reuse_node,
    reuse_partitions,
)
from pz.state.advancement import CARRIED_FORWARD, REUSED
from pz.state.entries import Entry, Token

if TYPE_CHECKING:
    from pz.engine.context import NodeContext, RunContext

__all__ = ["Inherited", "PriorRun", "gather"]

STARTS_OVER = "starts_over"
"""The flag in a run's record that it is a retry with ``--full-refresh``: what was before it is no part of its chain."""


@frozen(slots=False)
class Inherited:
    """What a dataset inherits from the chain: the pinned slice as ``run.json`` keeps it, and the state it was read from."""

    slice: Mapping[str, Any] | None
    used: Entry | None


@dataclass
class PriorRun:
    """A chain of runs, newest first, with its evidence; made by `engine.retry` under the newest run's lock.

    ``same_place`` are ids of nodes whose connection is still where it was. ``fresh`` is set for an explicit
    ``--full-refresh``: nothing is reused then, no attempt of before counts, and the chain begins anew with this retry.
    """

    entries: tuple[RunEntry, ...]
    evidence: tuple[Evidence, ...]
    lock: OsLock
    same_place: frozenset[str] = frozenset()
    fresh: bool = False
    _moved_on: set[str] = field(default_factory=set)
    _reread: set[str] = field(default_factory=set)

    @property
    def record(self) -> RunRecord:
        """The record of the run that is continued directly."""
        record = self.entries[0].record
        assert record is not None
        return record

    @property
    def held(self) -> frozenset[str]:
        """Runs whose lock this retry holds."""
        return frozenset({self.entries[0].run_id})

    @property
    def origin_started_at(self) -> datetime:
        """When the chain began."""
        return datetime.fromisoformat(self.record.origin_started_at)

    @property
    def succeeded(self) -> Mapping[str, NodeResult]:
        """Results of the chain's nodes that succeeded, by id; the newest run that has one counts."""
        found: dict[str, NodeResult] = {}
        for evidence in reversed(self.evidence):
            found |= {r.id: r for r in evidence.results.values() if r.status is NodeStatus.SUCCESS}
        return found

    def recorded_nodes(self) -> tuple[tuple[str, str, str], ...]:
        """Kind, name and id of every node that the chain was to execute, without repetition; newest id per name."""
        found: dict[tuple[str, str], str] = {}
        for evidence in reversed(self.evidence):
            found |= {(node.kind, node.name): node.id for node in evidence.record.nodes}
        return tuple((kind, name, node_id) for (kind, name), node_id in found.items())

    def is_done(self, node: Node) -> bool:
        """Whether the node's work stands: succeeded under the same id, at the same place."""
        return not self.fresh and node.id in self.succeeded and self._in_place(node)

    def _in_place(self, node: Node) -> bool:
        return not isinstance(node, SourceNode | SinkNode) or node.id in self.same_place

    def refuse_overtaken(self, state_dir: Path, nodes: Iterable[Node]) -> None:
        """Raise StateError PZ0520 when a run that began later had one of these outputs: what is staged here is older.

        Asked under the locks of the outputs: while a retry waits for them, whoever holds them delivers.
        """
        outputs = {node.name for node in nodes if isinstance(node, SinkNode)}
        for later in later_than(state_dir, self.entries[0]):
            touched = {n.name for n in later.record.nodes if n.kind == NodeKind.SINK_WRITE} if later.record else set()
            if overtaken := sorted(outputs & touched):
                message = f"run {later.run_id} has had output '{overtaken[0]}' since run {self.record.run_id}"
                hint = "run `pz retry` again: it continues the newer run, if that left anything"
                raise StateError(Problem(Code.PZ0520, message, hint=hint))

    # --- what the run inherits

    def continued_by(self, record: RunRecord) -> RunRecord:
        """The record of the retry: same chain, same run constants, what the chain had found.

        Also the project's name of then, by which the destination knows the slices of the chain: under a new one they would
        be others, and an append that had committed would be sent again.
        """
        mine = self.record
        inherited = {} if self.fresh else mine.stored
        return replace(
            record,
            project=mine.project,
            origin=mine.origin,
            origin_started_at=mine.origin_started_at,
            retry_of=mine.run_id,
            flags={**record.flags, STARTS_OVER: self.fresh},
            stored={**record.stored, **{key: value for key, value in inherited.items() if key not in self._moved_on}},
        )

    def started_over_by(self, run_id: str) -> str | None:
        """The retry that let the chain begin anew, ``run_id`` being the present one; None when it goes back to its origin."""
        if self.fresh:
            return run_id
        first = self.entries[-1]
        return first.run_id if first.record is not None and _starts_over(first) else None

    def slice_of(self, node: SourceNode, stored: Mapping[str, Any] | None, entry: Entry | None) -> Inherited | None:
        """The slice that the chain pinned for a dataset, if the stored state is still what the chain found or made.

        ``stored`` is the present entry as ``run.json`` would keep it.
        """
        mine = self.record
        known = node.key in mine.probes or node.key in mine.used or node.key in mine.stored
        if self.fresh or not self._in_place(node) or node.id not in {n.id for n in mine.nodes}:
            return None
        if stored != mine.stored.get(node.key) and not self._made_by_chain(node, stored):
            self._moved_on.add(node.key)
            return None
        if not known:
            return Inherited(None, None) if node.id in self.succeeded else None
        used = entry if mine.used.get(node.key) is not None and stored == mine.used.get(node.key) else None
        return Inherited(mine.probes.get(node.key), used)

    def _made_by_chain(self, node: SourceNode, stored: Mapping[str, Any] | None) -> bool:
        """Whether the stored state is what the chain's newest finished load offered: its outputs had committed."""
        done = next((e.done[node.id] for e in self.evidence if node.id in e.done), None)
        if stored is None or done is None:
            return False
        if done.token is not None:
            return stored.get("tokenDigest") == Token(done.token).digest
        return done.candidate is not None and stored.get("value") == done.candidate

    def inherit(self, context: RunContext, add: Callable[[tuple[NodeResult, ...]], None]) -> None:
        """Copy the chain's attempts and deliveries into this run's ledger; record what is carried forward."""
        executing = frozenset(node.id for node in context.record.nodes)
        sinks = [sink for sink in context.graph.sinks() if sink.id in executing]
        for entry in self.entries if sinks and not self.fresh else ():
            copied = copy_deliveries(context.staging, entry.path, [sink.id for sink in sinks])
            if isinstance(copied, NotReused) and copied.reason is not None:
                _tell_unknown(context, f"attempts of run {entry.run_id} are not known any more: {copied.reason}", sinks)
        reused = sum(source.id in executing and self._holds(context, source) for source in context.graph.sources())
        if reused:
            context.note(f"reusing staged data for {reused} source load(s) from run {self.record.run_id}")
        carried = tuple(self._carried(context.graph, executing))
        if carried:
            context.note(f"carrying forward {len(carried)} committed sink write(s) from run {self.record.run_id}")
            add(carried)

    def _carried(self, graph: Graph, executing: frozenset[str]) -> Iterable[NodeResult]:
        """Committed outputs outside of the execution set whose every load is to be reused in it."""
        succeeded = self.succeeded
        for sink in graph.sinks():
            if sink.id in executing or not self.is_done(sink):
                continue
            above = graph.ancestors([sink.id])
            loads = [source for source in graph.sources() if source.id in above]
            if loads and all(load.id in executing and self.may_reuse(load) for load in loads):
                yield replace(succeeded[sink.id], provenance=CARRIED_FORWARD, duration_ms=0)

    # --- reuse of loads

    def may_reuse(self, node: SourceNode) -> bool:
        """Whether the load is finished in the chain and its state has not moved on."""
        return (
            not self.fresh
            and self._in_place(node)
            and node.key not in self._moved_on
            and any(node.id in evidence.done for evidence in self.evidence)
        )

    def _holds(self, context: RunContext, node: SourceNode) -> bool:
        """Whether a run of the chain has the load as it is needed now."""
        return self.may_reuse(node) and any(
            can_reuse(context.staging, entry.path, node.id, _asked(node))
            for entry, evidence in zip(self.entries, self.evidence, strict=True)
            if node.id in evidence.done
        )

    def _tell_reread(self, context: NodeContext, node: SourceNode, reason: str) -> None:
        """Once for a load, however many runs and parts of it cannot be used."""
        if node.id not in self._reread:
            self._reread.add(node.id)
            context.run.note(f"source '{node.key}': {reason}; re-extracting")

    def reuse_load(self, context: NodeContext, node: SourceNode) -> Outcome | None:
        """Copy a finished load from the newest run of the chain that has it; None, with a note, when that fails."""
        if not self.may_reuse(node):
            return None
        reason = "no run of the chain has it any more"
        for entry, evidence in zip(self.entries, self.evidence, strict=True):
            if node.id not in evidence.done:
                continue
            found = reuse_node(context.run.staging, entry.path, node.id, _asked(node))
            if isinstance(found, Reused):
                _tell_age(context, node, entry)
                return _reused(node, found.done)
            reason = found.reason or reason
        self._tell_reread(context, node, reason)
        return None

    def reuse_input(self, context: NodeContext, node: PipelineNode) -> Outcome | None:
        """Copy the relation that an open or doubtful delivery drains, if everything above it is reused too."""
        graph = context.run.graph
        above = graph.ancestors([node.id])
        if not all(self.may_reuse(source) for source in graph.sources() if source.id in above):
            return None
        below = [graph.by_id[child] for child in graph.children[node.id]]
        if not any(isinstance(sink, SinkNode) and self._in_place(sink) and _is_open(context, sink) for sink in below):
            return None
        for entry, evidence in zip(self.entries, self.evidence, strict=True):
            if node.id in evidence.done:
                found = reuse_node(context.run.staging, entry.path, node.id)
                if isinstance(found, Reused):
                    return Outcome(found.done.rows, {"provenance": REUSED})
        return None

    def pinned_plan(self, context: NodeContext, node: SourceNode) -> tuple[PlannedPartition, ...]:
        """The closed partition plan of an unfinished load; empty when there is none to inherit."""
        for entry in self.entries if self._may_continue(node) else ():
            found = read_load(context.run.staging, entry.path, node.id)
            if isinstance(found, PriorLoad) and found.total is not None:
                return found.plan
        return ()

    def reuse_partitions(
        self,
        context: NodeContext,
        node: SourceNode,
        ledger: PartitionLedger,
        planned: Sequence[str],
        window: NodeWindow | None,
    ) -> None:
        """Copy the finished partitions and checkpointed prefixes of an unfinished load, from the newest run that has any."""
        reason: str | None = None
        checkpoints = Capability.CHECKPOINTABLE_READS in context.capabilities(node.connection)
        for entry in self.entries if self._may_continue(node) else ():
            found = reuse_partitions(
                context.run.staging, entry.path, ledger, planned=planned, window=window, checkpoints=checkpoints
            )
            if isinstance(found, ReusedPartitions):
                if found.done:
                    context.run.note(
                        f"source '{node.key}': {found.done} finished partition(s) reused from run {entry.run_id}"
                    )
                return
            reason = reason or found.reason
        if reason is not None:
            self._tell_reread(context, node, reason)

    def _may_continue(self, node: SourceNode) -> bool:
        """Whether parts of an unfinished load may be used.

        Without an upper bound, a row that changed since its partition was read could fall below a candidate that another
        partition offers today, and never be read again.
        """
        pinned = self.record.probes.get(node.key)
        bounded = pinned is None or pinned.get("upper") is not None
        return not self.fresh and self._in_place(node) and node.key not in self._moved_on and bounded


def _tell_unknown(context: RunContext, said: str, sinks: Sequence[SinkNode]) -> None:
    """Also what that means for appends, which nothing keeps from getting the rows of such an attempt again."""
    appends = ", ".join(f"'{sink.name}'" for sink in sinks if sink.write.strategy is WriteStrategy.APPEND)
    if appends:
        said += f"; what one of them may have committed to {appends} is sent again, and is there twice then"
    context.note(said, severity="warning" if appends else "note", code=Code.PZ0704 if appends else None)


def _is_open(context: NodeContext, sink: SinkNode) -> bool:
    """Whether the chain has an attempt in doubt on an output, or a delivery that was not finished."""
    with context.run.staging.cursor() as cursor:
        ledger = DeliveryLedger(sink.id, context.run.run_id)
        return bool(ledger.in_doubt(cursor)) or Ledger(cursor).delivery(sink.id) is not None


def _asked(node: SourceNode) -> Asked:
    return Asked(node.pushdown.columns, node.pushdown.predicate)


def _tell_age(context: NodeContext, node: SourceNode, entry: RunEntry) -> None:
    """That a reused load is as it was read: who has mended the source since wants another run."""
    changed = _changed(context, node, entry)
    if changed is not None:
        context.run.note(f"source '{node.key}': {changed}; what was read before is used, `pz run` reads it again")
    else:
        context.run.note("reused loads are as they were read before; `pz run` reads the sources again")


def _changed(context: NodeContext, node: SourceNode, entry: RunEntry) -> str | None:
    """What is known to have changed at the source since it was read."""
    with context.source(node.connection) as source:
        if not isinstance(source, SeesChanges):
            return None
        found = read_load(context.run.staging, entry.path, node.id)
        specs = [part.spec for part in found.plan if part.spec is not None] if isinstance(found, PriorLoad) else []
        return next((told for spec in specs if (told := source.changed_since(spec)) is not None), None)


def _reused(node: SourceNode, done: NodeDone) -> Outcome:
    blocks: dict[str, Any] = {"provenance": REUSED}
    if done.candidate is not None:
        blocks["watermark"] = watermark_block(node, done)
    return Outcome(done.rows, blocks)


def gather(entries: tuple[RunEntry, ...], lock: OsLock) -> PriorRun | None:
    """Put the chain together, back to where it began anew; None when nothing of its newest run can be used."""
    anew = next((place for place, entry in enumerate(entries) if _starts_over(entry)), len(entries))
    entries = entries[: anew + 1]
    pairs = [(entry, found) for entry in entries if (found := evidence_of(entry)) is not None]
    if not pairs or pairs[0][0] is not entries[0]:
        return None
    return PriorRun(tuple(e for e, _ in pairs), tuple(f for _, f in pairs), lock)


def _starts_over(entry: RunEntry) -> bool:
    return entry.record is not None and bool(entry.record.flags.get(STARTS_OVER))
