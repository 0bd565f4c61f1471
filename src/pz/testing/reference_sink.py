"""The write side of the reference connectors: one transaction with a mark, or rows that are visible as they are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import (
    AbortSemantics,
    Capability,
    Column,
    NativeCopy,
    OperationGate,
    OutcomeUnknown,
    OutputProbe,
    OutputSpec,
    PermanentError,
    Settlement,
    WriteResult,
    WriteSession,
    WriteStrategy,
)
from pz.connectors.deletes import LIMIT, LIMIT_SCHEMA
from pz.durable import Step, step
from pz.frozen import frozen
from pz.sqltext import literal
from pz.testing.server import Server, table_to_cells
from pz.testing.values import duck_types
from pz.testing.writes import Mark, Write, pack_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

__all__ = ["OUTPUT_SCHEMA", "ReferenceSink", "StreamingSession", "TransactionalSession"]

OUTPUT_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "native": {"type": "boolean", "description": "Let DuckDB write a Parquet file of the target itself."},
        LIMIT: LIMIT_SCHEMA,
        "partition_by": {"type": "array", "items": {"type": "string"}, "description": "Recorded with the target."},
        "acknowledge": {"enum": ["each", "lagging", "never"], "description": "When sent rows count as confirmed."},
        "resume": {"enum": ["accept", "decline"], "description": "Whether a delivery continues behind a prefix."},
        "on_refusal": {"enum": ["stop", "continue"], "description": "What follows a refused item in its batch."},
    },
}


class ReferenceSink:
    """The write side of an open connection. ``transactional``, ``abort`` and ``settle`` are connection options."""

    def __init__(self, server: Server, options: Mapping[str, Any], capabilities: Capability) -> None:
        self._server = server
        self._capabilities = capabilities
        self._transactional = bool(options.get("transactional", True))
        default = AbortSemantics.DISCARDS_ALL if self._transactional else AbortSemantics.NONE
        self._abort = AbortSemantics(options.get("abort", default))
        self._settles = options.get("settle", "works") == "works"
        self._gate: OperationGate | None = None

    @property
    def abort_semantics(self) -> AbortSemantics:
        """See `Sink`."""
        return self._abort

    def use_gate(self, gate: OperationGate) -> None:
        """See `Gated`."""
        self._gate = gate

    def native_copy(self, output: OutputSpec) -> NativeCopy | None:
        """See `Sink`: one Parquet file for a replace, one per origin run and node for an append."""
        wanted = output.options.get("native") and self._capabilities & Capability.NATIVE_COPY
        if not wanted or output.strategy is WriteStrategy.MERGE:
            return None
        with self._server.script.call("native_copy", output.entity):
            folder = self._server.path / "native_out" / output.entity
            appended = f"{output.entity}-{output.origin}-{output.node[:8]}.parquet"
            final = folder / (appended if output.strategy is WriteStrategy.APPEND else f"{output.entity}.parquet")
            aside = final.with_suffix(".tmp")
            statement = f"COPY (SELECT * FROM {{relation}}) TO {literal(str(aside))} (FORMAT parquet)"
            return NativeCopy(
                (statement,), "parquet file of the server", moves=((aside, final),), directories=(folder,)
            )

    def probe_output(self, output: OutputSpec) -> OutputProbe:
        """See `ProbingSink`."""
        with self._server.script.call("probe_output", output.entity):
            schema = self._server.target_schema(output.entity)
            if schema is None:
                return OutputProbe(False)
            return OutputProbe(True, tuple(Column(name, kind) for name, kind in duck_types(schema)))

    def settle(self, output: OutputSpec, run: str, ordinal: int) -> Settlement:
        """See `SettlingSink`. Only a transaction leaves a mark. A ``wrong`` fault gives the opposite of the truth."""
        with self._server.script.call("settle", output.entity) as special:
            if not self._settles or not self._transactional:
                return Settlement.UNKNOWN
            marks = {(m["output"], m["run"], m["ordinal"]) for m in self._server.slices()}
            committed = ((output.entity, run, ordinal) in marks) != (special == "wrong")
            return Settlement.COMMITTED if committed else Settlement.NOT_COMMITTED

    def begin_write(self, output: OutputSpec, schema: pa.Schema) -> WriteSession:
        """See `Sink`."""
        if output.strategy is WriteStrategy.MERGE and not self._capabilities & Capability.MERGE_WRITES:
            raise PermanentError(f"target {output.entity!r}: this connector cannot merge")
        target = _Target(self._server, output, schema, self._gate)
        with self._server.script.call("begin_write", output.entity):
            if self._transactional:
                return TransactionalSession(target, self._abort)
            return StreamingSession(target, self._abort)

    def close(self) -> None:
        """See `Sink`."""
        with self._server.script.call("close_sink", "*"):
            pass


@frozen(slots=False)
class _Target:
    """What a session writes to, and through which gate."""

    server: Server
    output: OutputSpec
    schema: pa.Schema
    gate: OperationGate | None

    def blank(self, *, mark: bool) -> Write:
        """A write to this target that carries nothing yet."""
        output = self.output
        lengths = {"max_text_lengths": dict(output.max_text_lengths)} if output.max_text_lengths else {}
        return Write(
            output.entity,
            output.strategy.value,
            pack_schema(self.schema),
            keys=output.keys,
            dedupe_by=output.dedupe_by,
            policy=output.schema_policy.value,
            on_delete=None if output.on_delete is None else output.on_delete.value,
            options=dict(output.options) | lengths,
            mark=_mark(output) if mark else None,
        )

    def send(self, label: str, operation: Callable[[], int]) -> int:
        """A remote call that must not be repeated blindly."""
        return operation() if self.gate is None else self.gate.execute(label, False, operation)


def _mark(output: OutputSpec) -> Mark | None:
    if output.slice is None or output.attempt is None:
        return None
    attempt = output.attempt
    return Mark(output.slice.project, output.entity, output.slice.mark, attempt.run, attempt.ordinal)


@dataclass
class _Session:
    """What both kinds of session share: the calls that may come once, and in which order."""

    target: _Target
    semantics: AbortSemantics
    batches: int = 0
    finished: str | None = None
    closed: bool = False
    deletes: list[dict[str, Any]] = field(default_factory=list)
    partials: list[tuple[dict[str, Any], list[str]]] = field(default_factory=list)
    retained: list[dict[str, Any]] | None = None

    def _enter(self, verb: str) -> None:
        if self.closed or self.finished is not None:
            raise RuntimeError(f"{verb} after {self.finished or 'close'}: a defect of the caller")

    def apply_deletes(self, keys: pa.RecordBatch) -> None:
        """See `DeleteApplyingSession`."""
        self._enter("apply_deletes")
        with self._call("apply_deletes", keys.num_rows):
            self.deletes += table_to_cells(keys)

    def apply_partial(self, batch: pa.RecordBatch, unchanged: Sequence[str]) -> None:
        """See `PartialUpdateSession`."""
        self._enter("apply_partial")
        with self._call("apply_partial", batch.num_rows):
            self.partials += [(row, list(unchanged)) for row in table_to_cells(batch)]

    def retain_only(self, keys: pa.RecordBatch) -> None:
        """See `RetainingSession`."""
        self._enter("retain_only")
        with self._call("retain_only", keys.num_rows):
            self.retained = (self.retained or []) + table_to_cells(keys)

    def _last(self, write: Write) -> Write:
        """The write with what follows the rows."""
        return replace(write, deletes=self.deletes, partials=self.partials, retained=self.retained)

    def close(self) -> None:
        """See `WriteSession`; with neither commit nor abort it acts as an abort."""
        if self.closed:
            raise RuntimeError("close twice: a defect of the caller")
        if self.finished is None:
            self.abort()
        self.closed = True
        with self._call("close"):
            pass

    def abort(self) -> None:
        """See `WriteSession`."""
        raise NotImplementedError

    def _call(self, op: str, rows: int = 0) -> Any:
        return self.target.server.script.call(op, self.target.output.entity, rows=rows)


class TransactionalSession(_Session):
    """Keeps everything until commit, which is one transaction: the mark, the rows, the deletes."""

    def __init__(self, target: _Target, semantics: AbortSemantics) -> None:
        super().__init__(target, semantics)
        self._rows: list[dict[str, Any]] = []

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """See `WriteSession`."""
        self._enter("write_batch")
        with self._call("write_batch", batch.num_rows):
            rows = table_to_cells(batch)
            refused = _refused(self.target, rows)
            if refused:
                raise PermanentError(f"target {self.target.output.entity!r} refused {len(refused)} row(s)")
            self._rows += rows
            self.batches += 1

    def commit(self) -> WriteResult:
        """See `WriteSession`. A ``late`` fault sends the write, loses it, and lets it arrive some other day."""
        self._enter("commit")
        self.finished = "commit"
        write = self._last(replace(self.target.blank(mark=True), rows=self._rows))
        with self._call("commit", len(self._rows)) as special, step(Step.SINK_COMMIT):
            if special == "late":
                self.target.server.delay(write)
                raise OutcomeUnknown(f"target {self.target.output.entity!r}: no answer to the commit")
            landed = self.target.send("commit", lambda: self.target.server.apply(write))
        return WriteResult(landed, self.batches)

    def abort(self) -> None:
        """Nothing was sent, so nothing is left."""
        self._enter("abort")
        self.finished = "abort"
        with self._call("abort"):
            self._rows.clear()


class StreamingSession(_Session):
    """Every batch is visible as soon as it is sent; what an abort undoes follows the declared semantics."""

    def __init__(self, target: _Target, semantics: AbortSemantics) -> None:
        super().__init__(target, semantics)
        self._resumed = 0
        self._accepted = 0
        self._confirmed = 0
        self._told: int | None = None
        self._begun = False
        self._unconfirmed = 0

    def try_resume(self, acknowledged: int) -> bool:
        """See `CheckpointingSession`."""
        with self._call("resume_write", acknowledged):
            if self.target.output.options.get("resume", "accept") == "decline":
                return False
            self._resumed = self._confirmed = acknowledged
            return True

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """See `WriteSession`. Refused items are counted, the others of their batch may land (``on_refusal``)."""
        self._enter("write_batch")
        self._begin()
        with self._call("write_batch", batch.num_rows), step(Step.SINK_WRITE):
            rows = table_to_cells(batch)
            refused = _refused(self.target, rows)
            prefix = min(refused, default=len(rows))
            sent = [row for index, row in enumerate(rows) if index not in refused]
            if self.target.output.options.get("on_refusal", "stop") == "stop":
                sent = rows[:prefix]
            self.target.send("send rows", lambda: self._land(sent))
            self._accepted += prefix
            if refused:
                self._confirm()
                raise PermanentError(f"target {self.target.output.entity!r} refused {len(refused)} row(s)")
            self.batches += 1
        self._confirm()

    def acknowledged_rows(self) -> int | None:
        """See `CheckpointingSession`."""
        with self._call("acknowledged"):
            if self._confirmed == self._told or self._option("acknowledge") == "never":
                return None
            self._told = self._confirmed
            return self._confirmed

    def commit(self) -> WriteResult:
        """See `WriteSession`: the rows are there already; updates in part and deletes go last."""
        self._enter("commit")
        self.finished = "commit"
        self._begin()
        write = self._last(self._blank())
        with self._call("commit", self._accepted), step(Step.SINK_COMMIT):
            self.target.send("commit", lambda: self.target.server.apply(write))
            self._confirmed = self._resumed + self._accepted
        return WriteResult(self._resumed + self._accepted, self.batches)

    def abort(self) -> None:
        """``best_effort`` takes back what it can: all but the last row sent. ``none`` takes back nothing."""
        self._enter("abort")
        self.finished = "abort"
        with self._call("abort"):
            if self.semantics is AbortSemantics.BEST_EFFORT and self._accepted > 1:
                self.target.server.take_back(self.target.output.entity, self._accepted, keep=1)

    def _begin(self) -> None:
        """A replace empties the target before its first row: visible too."""
        if self._begun:
            return
        self._begun = True
        strategy = self.target.output.strategy
        fresh = strategy is WriteStrategy.REPLACE and self._resumed == 0
        blank = self._blank()
        with step(Step.SINK_PREPARE):
            self.target.server.apply(replace(blank, strategy="replace") if fresh else blank)

    def _blank(self) -> Write:
        blank = self.target.blank(mark=False)
        return replace(blank, strategy="append") if blank.strategy == "replace" else blank

    def _land(self, rows: list[dict[str, Any]]) -> int:
        return self.target.server.apply(replace(self._blank(), rows=rows))

    def _confirm(self) -> None:
        """A lagging destination confirms a batch only when the next one has arrived."""
        lagging = self._option("acknowledge") == "lagging"
        self._confirmed = self._resumed + (self._unconfirmed if lagging else self._accepted)
        self._unconfirmed = self._accepted

    def _option(self, name: str) -> Any:
        return self.target.output.options.get(name)


def _refused(target: _Target, rows: Sequence[Mapping[str, Any]]) -> frozenset[int]:
    rules = target.server.refused(target.output.entity)
    return frozenset(index for index, row in enumerate(rows) if any(row.get(name) == value for name, value in rules))
