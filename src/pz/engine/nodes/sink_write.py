"""Delivering a staged relation to an output, natively or through a write session.

The order of a session: keys guarded, attempt recorded, earlier attempts in doubt settled, rows drained in an order that
content alone decides (where the sink can resume), deletes, commit. Commit XOR abort; after a failed commit nothing is
undone, because its outcome is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from pz.connectors.contract import (
    AbortSemantics,
    Capability,
    CheckpointingSession,
    ConfirmingSession,
    DeleteApplyingSession,
    MarkedSession,
    OnDelete,
    OutputSpec,
    PartialUpdateSession,
    RetainingSession,
    Settlement,
    Sink,
    Slice,
    WriteAttempt,
    WriteSession,
    WriteStrategy,
)
from pz.durable import Step, step
from pz.engine.doubt import settlement
from pz.engine.nodes.captured import CapturedInput, Partial, captured_inputs
from pz.engine.nodes.merge_keys import unique_relation
from pz.engine.nodes.native_copy import NativeWrite
from pz.engine.nodes.pipeline import computing_rows
from pz.engine.outcome import Outcome
from pz.errors import Code, NodeError, OutcomeUnknown, Problem
from pz.graph.model import NodeKind, PipelineNode, SinkNode, SourceNode
from pz.plan.model import Way
from pz.plan.specs import output_spec
from pz.sqltext import quote
from pz.staging.delivery_ledger import DeliveryLedger
from pz.staging.fingerprint import Fingerprint, describe, drain_sql, fingerprint
from pz.staging.meta import AttemptState
from pz.staging.results import first_row
from pz.state.advancement import CARRIED_FORWARD

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext

__all__ = ["Feed", "deliver", "deliver_feed", "deliver_native"]

BATCH_ROWS = 122_880
WHOLE = "whole"
"""Stands for the content of a slice whose rows are never staged: the one read of the dataset that the chain delivers."""
_SETTLED = {Settlement.COMMITTED: AttemptState.COMMITTED, Settlement.NOT_COMMITTED: AttemptState.ABORTED}


class Feed(Protocol):
    """Rows that are not staged, on their way into a session."""

    def schema(self) -> pa.Schema:
        """The schema of the relation that they make up."""
        ...

    def send(self, session: WriteSession) -> Iterator[tuple[int, int]]:
        """Hand all rows to the session; yields rows and bytes after each piece."""
        ...


def deliver_feed(context: NodeContext, node: SinkNode, output: OutputSpec, feed: Feed) -> Outcome:
    """Write rows that come from a feed; ``output`` says what they are, but neither attempt nor slice.

    Nothing is known of the content before it is written, so an append's mark names the output's whole read: a chain of
    retries delivers that once, whatever the table holds when it is read again.
    """
    with context.sink(node.connection) as sink, context.cursor() as cursor, context.run.staging.cursor() as books:
        ledger = _ledger(context, node)
        return _Delivery(context, node, sink, cursor, books, ledger, output, "", feed=feed, staged=False).run()


def deliver_native(
    context: NodeContext,
    node: SinkNode,
    sink: Sink,
    cursor: DuckDBPyConnection,
    output: OutputSpec,
    relation: str,
    write: NativeWrite,
) -> int:
    """Write a relation that is not staged by the sink's own statements; ``output`` as for `deliver_feed`."""
    with context.run.staging.cursor() as books:
        ledger = _ledger(context, node)
        return (
            _Delivery(context, node, sink, cursor, books, ledger, output, relation, native=write, staged=False)
            .run()
            .rows
        )


def deliver(context: NodeContext, node: SinkNode) -> Outcome:
    """Write the pipeline's relation to the output; returns the rows that are durable there."""
    pipeline = context.run.graph.by_name[NodeKind.PIPELINE, node.pipeline]
    if isinstance(pipeline, PipelineNode) and pipeline.is_view and not pipeline.passes_through:
        with computing_rows(context, pipeline, node.name):
            return _deliver(context, node)
    return _deliver(context, node)


def _deliver(context: NodeContext, node: SinkNode) -> Outcome:
    with context.sink(node.connection) as sink, context.cursor() as cursor, context.run.staging.cursor() as books:
        relation = f"staging.{quote(node.pipeline)}"
        if node.write.strategy is WriteStrategy.MERGE:
            relation = unique_relation(context, cursor, node, relation)
        output = replace(
            output_spec(node),
            columns=describe(cursor, relation),
            origin=context.run.record.origin,
            node=node.id,
        )
        ledger = _ledger(context, node)
        native = NativeWrite() if context.planned.way is Way.NATIVE_COPY else None
        captured = captured_inputs(context, books, node) if native is None else ()
        return _Delivery(context, node, sink, cursor, books, ledger, output, relation, captured, native=native).run()


def _ledger(context: NodeContext, node: SinkNode) -> DeliveryLedger:
    """What it records survives power loss before the destination hears of it."""
    return DeliveryLedger(node.id, context.run.run_id, context.run.staging.flush_folder)


@dataclass
class _Delivery:
    """One attempt at an output: a session, or the sink's native statements.

    A native write carries no attempt and is never found to have committed, unless it can leave a mark of its slice.
    """

    context: NodeContext
    node: SinkNode
    sink: Sink
    cursor: DuckDBPyConnection
    books: DuckDBPyConnection
    ledger: DeliveryLedger
    output: OutputSpec
    relation: str
    captured: tuple[CapturedInput, ...] = ()
    feed: Feed | None = None
    native: NativeWrite | None = None
    staged: bool = True
    ordinal: int = 0
    sent: int = 0
    resumed: int = 0
    partial: int = 0
    deleted: int = 0

    def run(self) -> Outcome:
        if self.native is not None and not self._marks:
            self.ordinal = self.ledger.begin_attempt(self.books) if self.staged else 0
            return self._copy(self.native)
        deletes = self._deletes_relation()
        content = self._fingerprint() if self.staged else None
        self.output = replace(self.output, slice=self._slice(content))
        found = self._already_there()
        if found is not None:
            return found
        doubtful = self.ledger.in_doubt(self.books)
        self.ordinal = self.ledger.begin_attempt(
            self.books, marker=self.output.slice.mark if self.output.slice is not None else None
        )
        record = self.context.run.record
        attempt = WriteAttempt(self.node.id, record.run_id, self.ordinal, record.origin, doubtful)
        self.output = replace(self.output, attempt=attempt)
        return self._attempt(content, deletes) if self.native is None else self._copy(self.native)

    # --- before the session

    def _fingerprint(self) -> Fingerprint | None:
        """Content identity, where somebody needs it: a resumable drain, or a slice mark of an append."""
        if not self._marks and Capability.CHECKPOINTABLE_WRITES not in self._can:
            return None
        return fingerprint(self.cursor, self.relation)

    @property
    def _can(self) -> Capability:
        return self.context.capabilities(self.node.connection)

    @property
    def _marks(self) -> bool:
        """Whether the output may leave a mark of its slice."""
        return self.node.write.strategy is WriteStrategy.APPEND and Capability.TRANSACTIONAL in self._can

    def _slice(self, content: Fingerprint | None) -> Slice | None:
        what = content.text if content is not None else WHOLE if not self.staged and self._marks else None
        if what is None:
            return None
        run = self.context.run
        anew = run.prior.started_over_by(run.run_id) if run.prior is not None else None
        return Slice(run.record.project, run.record.origin, self.node.id, what if anew is None else f"{what}:{anew}")

    def _already_there(self) -> Outcome | None:
        """What stands at the destination, if an earlier attempt whose outcome was unknown is found to have committed.

        Unless it is of this run, or its mark shows that it wrote these very rows, it counts as carried forward: what was
        read anew since then may be more, so state moves only if the loads are those that it had.
        """
        for run, ordinal in self.ledger.in_doubt(self.books):
            mark = self.ledger.marker(self.books, run, ordinal)
            found = settlement(self.sink, self.output, self.context.run.record.project, run, ordinal, mark)
            if found is not Settlement.UNKNOWN:
                self.ledger.settle(self.books, run, ordinal, _SETTLED[found])
            if found is Settlement.COMMITTED:
                self.context.run.note(
                    f"output '{self.node.name}': an earlier attempt had committed; nothing is sent again"
                )
                same = run == self.context.run.run_id or self._is_content(mark)
                return Outcome(self._count(), {} if same else {"provenance": CARRIED_FORWARD})
            if found is Settlement.UNKNOWN and self.node.write.strategy is WriteStrategy.APPEND:
                self.context.run.note(
                    f"output '{self.node.name}': whether an earlier attempt committed cannot be told; "
                    "its rows are sent again, as the output's consent allows",
                    severity="warning",
                    code=Code.PZ0704,
                )
        return None

    def _is_content(self, mark: str | None) -> bool:
        """Whether a mark stands for the rows that are to be written now, and not only for the output."""
        written = self.output.slice
        return written is not None and self.staged and mark == written.mark

    def _deletes_relation(self) -> str | None:
        """The deletes to apply, for a cdc-fed merge that asks for it. Raises NodeError PZ0340 when keys are unusable."""
        if self.node.write.on_delete not in (OnDelete.DELETE, OnDelete.SOFT):
            return None
        graph = self.context.run.graph
        above = graph.ancestors([self.node.id])
        source = next(s for s in graph.sources() if isinstance(s, SourceNode) and s.id in above)
        relation = f"staging.{quote(source.relation + '__deletes')}"
        present = {column.name for column in describe(self.cursor, relation)}
        missing = [key for key in self.node.write.keys if key not in present]
        if missing:
            raise NodeError(
                self._problem(f"merge key(s) {', '.join(missing)} are not in the deletes of '{source.key}'")
            )
        nulls = " OR ".join(f"{quote(key)} IS NULL" for key in self.node.write.keys)
        row = first_row(self.cursor.execute(f"SELECT count(*) FROM {relation} WHERE {nulls}"))
        if row and row[0]:
            raise NodeError(self._problem(f"{row[0]} delete(s) of '{source.key}' have NULL in a merge key"))
        return relation

    def _problem(self, message: str) -> Problem:
        return Problem(Code.PZ0340, f"output '{self.node.name}': {message}")

    # --- the native write

    def _copy(self, native: NativeWrite) -> Outcome:
        try:
            rows = native.run(self.context, self.cursor, self.sink, self.output, self.relation)
        except Exception:  # goes on to whoever retries; an interrupt is none, and leaves the attempt in doubt
            if not native.committing:
                self._end(AttemptState.ABORTED)
            raise
        self._end(AttemptState.COMMITTED)
        return Outcome(rows)

    def _end(self, state: AttemptState) -> None:
        if self.ordinal:
            self.ledger.end_attempt(self.books, self.ordinal, state)

    # --- the session

    def _attempt(self, content: Fingerprint | None, deletes: str | None) -> Outcome:
        partials = [
            part for found in self.captured for part in found.partials(self.context, self.cursor, self.relation)
        ]
        with ExitStack() as closing:
            session = self.sink.begin_write(self.output, self._schema())
            closing.callback(session.close)
            committing = False
            try:
                self._resume(session, content)
                if self.feed is None:
                    self._drain_into(session)
                else:
                    for rows, size in self.feed.send(session):
                        self.context.cancel.raise_if_set()
                        self.sent += rows
                        self.context.progress(rows, size)
                if partials:
                    self._apply_partials(session, partials)
                if deletes is not None:
                    self._apply_deletes(session, deletes)
                self._retain(session)
                self.context.cancel.raise_if_set()
                self._mark(session)
                committing = True
                with step(Step.SINK_COMMIT):
                    result = session.commit()
            except BaseException as failure:
                self._unwind(session, failure, committing)
                raise
        self.ledger.end_attempt(self.books, self.ordinal, AttemptState.COMMITTED)
        blocks: dict[str, Any] = {}
        if self.resumed:
            blocks["delivery"] = {
                "abort_semantics": str(self.sink.abort_semantics),
                "rows_visible": result.rows,
                "resumed_rows": self.resumed,
            }
        if self.deleted:
            blocks["cdc"] = {"deletes": self.deleted}
        return Outcome(result.rows + self.partial, blocks)

    def _schema(self) -> pa.Schema:
        if self.feed is not None:
            return self.feed.schema()
        return self.cursor.sql(f"SELECT * FROM {self.relation} LIMIT 0").to_arrow_table().schema

    def _drain_into(self, session: WriteSession) -> None:
        for batch in self._batches():
            self.context.cancel.raise_if_set()
            self.sent += batch.num_rows
            session.write_batch(batch)
            self._acknowledge(session)
            self.context.progress(batch.num_rows, batch.nbytes)

    def _mark(self, session: WriteSession) -> None:
        """Make durable by what the commit that follows can be recognised."""
        mark = session.prepare() if isinstance(session, MarkedSession) else None
        if mark is not None:
            self.ledger.mark_attempt(self.books, self.ordinal, mark)

    def _resume(self, session: WriteSession, content: Fingerprint | None) -> None:
        if not isinstance(session, CheckpointingSession) or content is None:
            return
        acknowledged = self.ledger.begin_delivery(self.books, content)
        if acknowledged and session.try_resume(acknowledged):
            self.resumed = acknowledged
        elif acknowledged:
            self.ledger.restart_delivery(self.books, content)
        if isinstance(session, ConfirmingSession):
            session.use_confirm(self._confirm)
            session.skip(self.ledger.accepted(self.books))

    def _confirm(self, rows: int, accepted: Collection[int]) -> None:
        """Keep a confirmed piece at once: a killed process has no teardown."""
        self.ledger.acknowledge(self.books, rows, accepted=accepted)

    def _drain(self, offset: int) -> str:
        assert self.output.columns is not None
        if self.output.slice is not None and Capability.CHECKPOINTABLE_WRITES in self.context.capabilities(
            self.node.connection
        ):
            return drain_sql(self.relation, self.output.columns, offset=offset)
        relation = self.relation
        for found in self.captured:
            relation = found.whole(relation)
        return f"SELECT * FROM {relation}"

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.cursor.sql(self._drain(self.resumed)).to_arrow_reader(BATCH_ROWS)

    def _acknowledge(self, session: WriteSession) -> None:
        if isinstance(session, CheckpointingSession):
            confirmed = session.acknowledged_rows()
            if confirmed is not None:
                self.ledger.acknowledge(self.books, confirmed)

    def _apply_deletes(self, session: WriteSession, deletes: str) -> None:
        if not isinstance(session, DeleteApplyingSession):
            raise NodeError(Problem(Code.PZ0339, f"output '{self.node.name}': the session cannot apply deletes"))
        keys = ", ".join(quote(key) for key in self.node.write.keys)
        for batch in self.cursor.sql(f"SELECT {keys} FROM {deletes}").to_arrow_reader(BATCH_ROWS):
            session.apply_deletes(batch)
            self.deleted += batch.num_rows

    def _apply_partials(self, session: WriteSession, partials: Sequence[Partial]) -> None:
        if not isinstance(session, PartialUpdateSession):
            message = f"output '{self.node.name}': rows came in part, and the connector cannot update some columns only"
            raise NodeError(Problem(Code.PZ0745, message))
        for part in partials:
            for batch in self.cursor.sql(part.query).to_arrow_reader(BATCH_ROWS):
                self.context.cancel.raise_if_set()
                session.apply_partial(batch, part.unchanged)
                self.partial += batch.num_rows
                self.context.progress(batch.num_rows, batch.nbytes)

    def _retain(self, session: WriteSession) -> None:
        """After a snapshot, let the merge remove what the snapshot does not hold."""
        queries = [found.snapshot_keys for found in self.captured if found.snapshot_keys is not None]
        for query in queries:
            if Capability.SNAPSHOT_DELETES not in self._can or not isinstance(session, RetainingSession):
                self.context.run.note(
                    f"output '{self.node.name}': rows that are gone from the source stay; the connector cannot remove them "
                    "after a snapshot",
                    severity="warning",
                )
                return
            keys = self.cursor.sql(query).to_arrow_reader(BATCH_ROWS)
            session.retain_only(_no_rows(keys.schema))
            for batch in keys:
                self.context.cancel.raise_if_set()
                session.retain_only(batch)

    def _unwind(self, session: WriteSession, failure: BaseException, committing: bool) -> None:
        """Abort unless commit was entered; then say what may be visible at the destination.

        A commit that failed without saying how leaves the attempt as it is: in doubt.
        """
        self._acknowledge(session)
        if not committing:
            session.abort()
            self.ledger.end_attempt(self.books, self.ordinal, AttemptState.ABORTED)
        elif isinstance(failure, OutcomeUnknown):
            self.ledger.end_attempt(self.books, self.ordinal, AttemptState.UNKNOWN)
        semantics = self.sink.abort_semantics
        if semantics is not AbortSemantics.DISCARDS_ALL and self.sent:
            visible = self.resumed + self.sent
            if isinstance(session, ConfirmingSession):
                visible = session.exposed_rows()
            block = {"abort_semantics": str(semantics), "rows_visible": visible, "resumed_rows": self.resumed}
            failure.pz_blocks = {"delivery": block}  # type: ignore[attr-defined]

    def _count(self) -> int:
        """Rows of the relation; 0 where it was never staged, so that nobody can tell."""
        if not self.staged:
            return 0
        row = first_row(self.cursor.execute(f"SELECT count(*) FROM {self.relation}"))
        return int(row[0]) if row else 0


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows: an empty snapshot is told too."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
