"""What each stateful dataset reads in this run: stored state, live probes and declarations become pinned slices.

Resolved under the run's locks and before the first row; written to ``run.json``, from where a retry inherits it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

from pz.connectors.contract import Bound, ReadShape, SourceProbe, WriteStrategy, find_column
from pz.cursors import CursorError, CursorType
from pz.engine.differences import differences
from pz.engine.prepare import Prepared, Request
from pz.engine.prior import PriorRun
from pz.engine.probe import Probed
from pz.engine.repeats import delivered_as_another, full_read_over_state, refreshed, state_lost
from pz.errors import Code, Problem, Problems, Severity, StateError
from pz.events import timestamp
from pz.frozen import frozen
from pz.graph.delivery import merges_everywhere
from pz.graph.model import Node, SinkNode, SourceNode
from pz.graph.watermarks import resolve, value_sql
from pz.project.model import NullCursor
from pz.runs.history import find
from pz.staging.redaction import redact
from pz.state.advancement import outputs_below
from pz.state.binding import check_binding, check_slot, redefined
from pz.state.entries import Binding, Entry, Token, Watermark, entry_to_json
from pz.state.kinds import Found, StateFiles, check_kind
from pz.state.sync_state import is_pending
from pz.state.windows import SliceBounds, candidate, declared_cursor_type, resolve_slice, resolve_sql_slice

__all__ = ["DatasetSlice", "Reading", "entry_record", "resolve_reading", "slice_from_json"]

STATEFUL = (ReadShape.INCREMENTAL, ReadShape.FEED, ReadShape.CDC)


@frozen(slots=False)
class DatasetSlice:
    """A slice with the type in whose order its ends compare; None while only the landed column can tell."""

    bounds: SliceBounds
    cursor_type: CursorType | None = None

    @property
    def lower(self) -> Bound | None:
        """The lower end, None when open."""
        return self.bounds.lower

    @property
    def upper(self) -> Bound | None:
        """The upper end, None when open."""
        return self.bounds.upper

    def candidate(self, landed: str | None, kind: CursorType) -> str | None:
        """The value that state may advance to, given the highest cursor that landed."""
        return candidate(self.bounds, landed, kind)


@frozen(slots=False)
class Reading:
    """Per dataset node: slice or token; per dataset key, as ``run.json`` keeps it: state found, state used, what was asked."""

    slices: Mapping[str, DatasetSlice] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    watermarks: Mapping[str, str] = field(default_factory=dict)
    seen: Mapping[str, Entry | None] = field(default_factory=dict)
    used: Mapping[str, Entry] = field(default_factory=dict)
    inherited: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()

    def stored_json(self) -> dict[str, Any]:
        """``stored`` of run.json."""
        return {key: entry_record(entry) for key, entry in self.seen.items() if entry is not None}

    def used_json(self) -> dict[str, Any]:
        """``used`` of run.json."""
        return {key: entry_record(entry) for key, entry in self.used.items()}

    def slices_json(self, keys: Mapping[str, str]) -> dict[str, Any]:
        """``probes`` of run.json: the pinned slices by dataset key; ``keys`` maps node ids to keys."""
        return {keys[node_id]: _slice_to_json(found) for node_id, found in self.slices.items()}


def resolve_reading(
    prepared: Prepared,
    request: Request,
    started_at: datetime,
    prior: PriorRun | None,
    bindings: Mapping[str, Binding],
    probed: Probed,
    run_id: str,
) -> Reading:
    """Resolve every stateful dataset of the execution set.

    Raises:
        StateError: with every refusal (foreign location, foreign type, damaged files, refused by a probe).
    """
    return _Resolver(prepared, request, started_at, prior, bindings, probed, run_id).resolve()


class _Resolver:
    def __init__(
        self,
        prepared: Prepared,
        request: Request,
        started_at: datetime,
        prior: PriorRun | None,
        bindings: Mapping[str, Binding],
        probed: Probed,
        run_id: str,
    ) -> None:
        self._prepared = prepared
        self._full_refresh = request.full_refresh
        self._started_at = started_at
        self._prior = prior
        self._bindings = bindings
        self._probed = probed
        self._run_id = run_id
        self._problems = Problems()
        self._slices: dict[str, DatasetSlice] = {}
        self._tokens: dict[str, str] = {}
        self._watermarks: dict[str, str] = {}
        self._seen: dict[str, Entry | None] = {}
        self._used: dict[str, Entry] = {}
        self._inherited: set[str] = set()
        self._redefined: dict[str, list[str]] = {}

    def resolve(self) -> Reading:
        nodes = [node for node in self._prepared.graph.sources() if node.id in self._prepared.execution]
        stateful = [node for node in nodes if self._prepared.plan[node.id].read_shape in STATEFUL]
        appended = [node for node in nodes if node not in stateful and self._appends(node)]
        if stateful or appended:
            stored = StateFiles.read(self._prepared.project.state_dir)
            self._resolve_all(stateful, stored)
            for node in appended:
                self._in_full(node, stored.of(node.key, ReadShape.FULL))
            self._tell_redefined()
        if self._problems.errors:
            raise StateError(self._problems.errors)
        return Reading(
            self._slices,
            self._tokens,
            self._watermarks,
            self._seen,
            self._used,
            frozenset(self._inherited),
            self._problems.warnings,
        )

    def _resolve_all(self, nodes: list[SourceNode], stored: StateFiles) -> None:
        for node in nodes:
            found = stored.of(node.key, self._prepared.plan[node.id].read_shape)
            self._seen[node.key] = found.own
            try:
                self._one(node, found, stored)
            except StateError as refused:
                self._problems.extend(_at(node, problem) for problem in refused.problems)

    def _appends(self, node: SourceNode) -> tuple[SinkNode, ...]:
        """The outputs of this run below a dataset that keep every row that they are given."""
        below = outputs_below(self._prepared.graph, node)
        return tuple(
            sink
            for sink in below
            if sink.id in self._prepared.execution and sink.write.strategy is WriteStrategy.APPEND
        )

    def _tell_redefined(self) -> None:
        """Once for each output that is written in this run; a retry does not repeat what its chain was told."""
        told = {node.id for node in self._prior.record.nodes} if self._prior is not None else frozenset[str]()
        for sink in self._prepared.graph.sinks():
            keys = self._redefined.get(sink.name) if sink.id in self._prepared.execution - told else None
            if keys:
                self._problems.add(_at(sink, _redefined_since(sink, keys, self._edited(sink, keys))))

    def _edited(self, sink: SinkNode, keys: list[str]) -> tuple[str, ...]:
        """Where its definition differs from that of the run that stored the state; empty when that run was swept."""
        found = find(self._prepared.project.state_dir, self._used[keys[0]].run_id)
        record = found.record if found is not None else None
        return () if record is None else differences(self._prepared.graph, sink, record)

    def _in_full(self, node: SourceNode, found: Found) -> None:
        """A dataset that keeps no state; what is stored of it is from when it did."""
        told = refreshed if self._full_refresh else full_read_over_state
        self._tell(node, told(node, found, self._appends(node)))

    def _tell(self, node: SourceNode, *problems: Problem | None) -> None:
        self._problems.extend(_at(node, problem) for problem in problems if problem is not None)

    def _one(self, node: SourceNode, found: Found, stored: StateFiles) -> None:
        shape, entry = self._prepared.plan[node.id].read_shape, found.own
        if shape is not None and (problem := self._another_kind(node, found, shape)) is not None:
            self._tell(node, problem)
            return
        recorded = None if entry is None else entry_record(entry)
        inherited = self._prior.slice_of(node, recorded, entry) if self._prior is not None else None
        if inherited is not None:
            self._inherited.add(node.id)
            if inherited.used is not None:
                self._use(node, inherited.used)
            if inherited.slice is not None:
                self._slices[node.id] = slice_from_json(inherited.slice)
            return
        if self._full_refresh:
            self._tell(node, refreshed(node, found, self._appends(node)))
        if entry is None:
            keys = {source.key for source in self._prepared.graph.sources()}
            here, appends = self._bindings[node.id], self._appends(node)
            self._tell(node, *delivered_as_another(node, here, appends, stored, keys, refresh=self._full_refresh))
            if self._prior is None:
                self._tell(node, state_lost(node, appends, self._prepared.project.state_dir))
        used = None if self._full_refresh or (entry is not None and is_pending(entry)) else entry
        if used is not None:
            refusals = self._refusals(node, used, from_state=node.read.sync.start == "from_state")
            self._tell(node, *refusals)
            if refusals:
                return
            if node.read.sync.start == "from_state":
                self._tell(node, *map(_accepted, self._refusals(node, used, from_state=False)))
            self._use(node, used)
        if shape is ReadShape.INCREMENTAL:
            self._slices[node.id] = self._slice(node, used)

    def _refusals(self, node: SourceNode, used: Entry, *, from_state: bool) -> tuple[Problem, ...]:
        return check_binding(
            node.key,
            used,
            self._bindings[node.id],
            cursor=node.read.sync.cursor,
            to_create=self._probed.to_create,
            appends=[
                sink.name
                for sink in outputs_below(self._prepared.graph, node)
                if sink.write.strategy is WriteStrategy.APPEND
            ],
            from_state=from_state,
        )

    def _another_kind(self, node: SourceNode, found: Found, shape: ReadShape) -> Problem | None:
        """The refusal of state that another way of reading has stored. A full refresh leaves no slot behind unseen either."""
        here = self._bindings[node.id]
        if self._full_refresh:
            return None if found.own is None else check_slot(node.key, found.own, here)
        return check_kind(node.key, found, shape, here)

    def _use(self, node: SourceNode, entry: Entry) -> None:
        self._used[node.key] = entry
        for output in redefined(entry, self._bindings[node.id]):
            self._redefined.setdefault(output, []).append(node.key)
        if isinstance(entry.value, Token):
            self._tokens[node.id] = entry.value.token
        else:
            self._watermarks[node.key] = value_sql(entry.value.value, entry.value.type)

    # --- incremental reads

    def _slice(self, node: SourceNode, used: Entry | None) -> DatasetSlice:
        stored = used.value if used is not None and isinstance(used.value, Watermark) else None
        probe = self._probed.sources.get(node.id, SourceProbe())
        kind = declared_cursor_type(node) or _probed_type(node, probe) or (stored.type if stored else None)
        if stored is None and kind is not None:
            self._watermarks[node.key] = value_sql(None, kind)
        self._look_at_nulls(node, probe)
        if node.bounds:
            bounds = self._sql_slice(node, stored, probe, kind)
        else:
            bounds = resolve_slice(
                node,
                stored,
                run_started_at=self._started_at,
                probe_upper=probe.upper,
                all_sinks_merge=merges_everywhere(self._prepared.graph, node),
                cursor_type=kind,
            )
        if bounds.caught_up:
            self._warn(node, None, "is caught up; nothing new is expected", Severity.NOTE)
        if bounds.beyond_now:
            self._warn(node, None, "holds a cursor value later than this run; later rows below it would be missed")
        return DatasetSlice(bounds, kind)

    def _sql_slice(
        self, node: SourceNode, stored: Watermark | None, probe: SourceProbe, kind: CursorType | None
    ) -> SliceBounds:
        import duckdb

        value = stored.value if stored is not None else None
        with duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"}) as scratch:
            scratch.execute("SET TimeZone = 'UTC'")
            try:
                lower, upper = resolve(
                    node.bounds, value, kind, scratch, run_id=self._run_id, run_started_at=timestamp(self._started_at)
                )
            except (CursorError, duckdb.Error) as failure:
                reason = redact(failure).splitlines()[0]
                problem = Problem(
                    Code.PZ0505, f"dataset '{node.key}': its watermark() bound has no usable value: {reason}"
                )
                raise StateError(problem) from failure
        return resolve_sql_slice(
            lower, upper, stored=stored, probe_upper=probe.upper, cursor_type=kind, run_started_at=self._started_at
        )

    def _look_at_nulls(self, node: SourceNode, probe: SourceProbe) -> None:
        if not probe.null_cursors:
            return
        policy = node.read.sync.null_cursor
        told = f"has {probe.null_cursors} row(s) without a value in cursor '{node.read.sync.cursor}'"
        if policy is NullCursor.REFUSE:
            self._problems.add(_at(node, Problem(Code.PZ0712, f"dataset '{node.key}' {told}")))
        elif policy is NullCursor.DEFAULT:
            again = "they are read only when the dataset is read from its beginning"
            if probe.upper is None:
                again = "no row has one, so no state can be stored, and every run reads them again"
            self._warn(node, Code.PZ0712, f"{told}; {again}")

    def _warn(self, node: SourceNode, code: Code | None, message: str, severity: Severity = Severity.WARNING) -> None:
        place = node.location
        problem = Problem(code or Code.PZ0713, f"dataset '{node.key}' {message}", severity=severity)
        self._problems.add(problem.at(place.file, place.line) if place and code else problem)


def _at(node: Node, problem: Problem) -> Problem:
    return problem.at(node.location.file, node.location.line) if node.location else problem


def _redefined_since(sink: SinkNode, keys: list[str], edited: tuple[str, ...]) -> Problem:
    appends = sink.write.strategy is WriteStrategy.APPEND
    said = ", ".join(f"'{key}'" for key in keys)
    since = f" (edited since: {', '.join(edited)})" if edited else ""
    return Problem(
        Code.PZ0713,
        f"output '{sink.name}' was defined otherwise when the state of {said} was stored{since}: what it got before stays "
        "as it was made then, and only what is new is made as it is now",
        hint=f"{'empty the output and ' if appends else ''}run with --full-refresh to have all of it made anew",
        severity=Severity.WARNING,
    )


def _accepted(refusal: Problem) -> Problem:
    """The note on what would be refused without consent; the consent is good for this once."""
    return Problem(
        Code.PZ0713,
        f"{refusal.message}; `start: from_state` accepts that. Remove it after this run: it would accept the next such "
        "change as well",
        severity=Severity.NOTE,
    )


def _probed_type(node: SourceNode, probe: SourceProbe) -> CursorType | None:
    column = find_column(probe.columns or (), node.read.sync.cursor or "")
    return CursorType.from_duckdb(column.type) if column else None


def entry_record(entry: Entry) -> dict[str, Any]:
    """An entry as ``run.json`` keeps it: a token only as a digest, because run records are for everybody's eyes."""
    content = entry_to_json(entry)
    if isinstance(entry.value, Token):
        del content["token"]
        content["tokenDigest"] = entry.value.digest
    return content


def _slice_to_json(found: DatasetSlice) -> dict[str, Any]:
    bounds = found.bounds
    return {
        "lower": _bound_to_json(bounds.lower),
        "upper": _bound_to_json(bounds.upper),
        "floor": bounds.floor,
        "caughtUp": bounds.caught_up,
        "hasStop": bounds.has_stop,
        "movesWhenEmpty": bounds.moves_when_empty,
        "cursorType": str(found.cursor_type) if found.cursor_type else None,
    }


def slice_from_json(content: Mapping[str, Any]) -> DatasetSlice:
    """The slice that ``run.json`` keeps."""
    bounds = SliceBounds(
        _bound_from_json(content["lower"]),
        _bound_from_json(content["upper"]),
        content["floor"],
        content["caughtUp"],
        content["hasStop"],
        content["movesWhenEmpty"],
    )
    return DatasetSlice(bounds, CursorType(content["cursorType"]) if content["cursorType"] else None)


def _bound_to_json(bound: Bound | None) -> dict[str, Any] | None:
    return None if bound is None else {"value": bound.value, "inclusive": bound.inclusive}


def _bound_from_json(content: Mapping[str, Any] | None) -> Bound | None:
    return None if content is None else Bound(content["value"], content["inclusive"])
