"""Partition mode: every partition lands once, in the transaction that records it as done.

An attempt reads only what is not done yet. A failing partition does not stop its siblings; what they finish stays done
for the next attempt or the next ``pz retry``. The three ways a partition lands:

    native fragment     one INSERT ... SELECT from the fragment
    checkpointing       batch by batch into a part table, with a token whenever the connector offers one
    plain batches       one INSERT from its stream; small partitions complete in groups (`pz.staging.grouping`)
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pz.connectors.contract import (
    BatchOptions,
    CancelToken,
    CheckpointingPartition,
    IdentifiedPartition,
    NativePartition,
    NativeScan,
    Partition,
    PinnedPartition,
    RestoringSource,
    Source,
    VerifiablePartition,
)
from pz.engine.nodes import lints
from pz.engine.nodes.batches import counted, narrowed
from pz.engine.nodes.explain import explained
from pz.engine.nodes.landing import Landing
from pz.engine.nodes.scans import ended_by
from pz.engine.outcome import Outcome
from pz.errors import Cancelled, Code, ConnectorError, NodeError, PermanentError, Problem, TransientError
from pz.plan.model import Way
from pz.staging.grouping import Grouping
from pz.staging.grouping import Outcome as GroupOutcome
from pz.staging.meta import Ledger, NodeDone, NodeRead, NodeWindow, PlannedPartition
from pz.staging.part_writer import PartWriter
from pz.staging.partition_ledger import Arrival, Completed, PartitionLedger, PlanChanged, pin_window

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext

__all__ = ["load"]

PINNED_AT_ONCE = 1_000
SMALL_BYTES = 4 * 1024 * 1024
GROUP = 64


def load(context: NodeContext, landing: Landing, source: Source) -> tuple[Outcome, NodeDone]:
    """Land what is missing of the dataset; `node_done` when the last partition is in."""
    node = landing.node
    ledger = PartitionLedger(node.id, node.relation, NodeRead(node.id, landing.hints.columns, landing.hints.predicate))
    with context.cursor() as cursor:
        window = _pin_window(cursor, landing)
        ledger.start(cursor)
        try:
            parts = _partitions(context, cursor, landing, source, ledger)
        except PlanChanged:
            ledger.reset(cursor)
            raise
        if context.run.prior is not None and context.ordinal == 1:
            context.run.prior.reuse_partitions(context, node, ledger, [p.partition_id for p in parts], window)
        done_before = Ledger(cursor).finished(node.id)
        todo = [part for part in parts if part.partition_id not in done_before]
        work = _Work(context, landing, ledger, source)
        work.run(todo)
        if ledger.columns is None:
            _create_empty(cursor, landing, source, ledger)
        done = ledger.finish(cursor, landing.facts(cursor))
    counts = {"total": len(parts), "completed": len(todo), "reused": len(done_before), "resumed": work.resumed}
    if work.inferred is not None:
        lints.warn_about_inference(context, node, work.inferred)
    return landing.outcome(done, partitions=counts), done


def _pin_window(cursor: DuckDBPyConnection, landing: Landing) -> NodeWindow | None:
    dataset = landing.dataset
    if landing.bounds is None or dataset.cursor is None:
        return None
    kind = landing.bounds.cursor_type
    window = NodeWindow.of(landing.node.id, dataset.lower, dataset.upper, dataset.cursor, str(kind) if kind else None)
    return pin_window(cursor, window)


def _partitions(
    context: NodeContext, cursor: DuckDBPyConnection, landing: Landing, source: Source, ledger: PartitionLedger
) -> Sequence[IdentifiedPartition]:
    """The partitions of the pinned plan where there is a closed one that the source can rebuild, else a fresh plan.

    A retry inherits the plan of the run it continues, so that ranges and file lists stay what they were.
    """
    if not isinstance(source, RestoringSource):
        return _enumerate(cursor, landing, source, ledger)
    plan: Sequence[PlannedPartition] = ()
    if Ledger(cursor).plan_total(landing.node.id) is not None:
        plan = Ledger(cursor).plan(landing.node.id)
    elif context.run.prior is not None:
        plan = context.run.prior.pinned_plan(context, landing.node)
    specs = [entry.spec for entry in plan if entry.spec is not None]
    if not specs or len(specs) != len(plan):
        return _enumerate(cursor, landing, source, ledger)
    try:
        restored = [_identified(source.restore_partition(landing.dataset, landing.hints, s), landing) for s in specs]
    except PermanentError as gone:
        context.run.note(f"source '{landing.node.key}': {gone.message}; planning anew")
        return _enumerate(cursor, landing, source, ledger)
    _pin(cursor, ledger, restored)
    return restored


def _pin(cursor: DuckDBPyConnection, ledger: PartitionLedger, parts: Sequence[IdentifiedPartition]) -> None:
    pinning = ledger.pinning(cursor)
    pinning.add(_ids_and_specs(parts))
    pinning.close()


def _enumerate(
    cursor: DuckDBPyConnection, landing: Landing, source: Source, ledger: PartitionLedger
) -> Sequence[IdentifiedPartition]:
    """Plan anew, pinning as the partitions come; a lazy enumeration is never held up by a huge transaction."""
    pinning = ledger.pinning(cursor)
    found: list[IdentifiedPartition] = []
    stream = iter(source.plan_read(landing.dataset, landing.hints))
    while chunk := list(itertools.islice(stream, PINNED_AT_ONCE)):
        for one in _one_of_each_type(chunk):
            _identified(one, landing)
        identified = cast(list[IdentifiedPartition], chunk)
        pinning.add(_ids_and_specs(identified))
        found.extend(identified)
    pinning.close()
    return found


def _identified(partition: Partition, landing: Landing) -> IdentifiedPartition:
    if not _can(partition, IdentifiedPartition):
        raise NodeError(
            Problem(
                Code.PZ0319, f"'{landing.node.key}': a partition has no id, though the connector promises stable ids"
            )
        )
    return cast(IdentifiedPartition, partition)


def _one_of_each_type(parts: Sequence[Partition]) -> Iterable[Partition]:
    """What holds for these holds for all: there may be thousands, and what a partition can do its type says."""
    return {type(part): part for part in parts}.values()


def _ids_and_specs(parts: Sequence[IdentifiedPartition]) -> Iterator[tuple[str, str | None]]:
    pinned = {type(one) for one in _one_of_each_type(parts) if _can(one, PinnedPartition)}
    for part in parts:
        yield part.partition_id, cast(PinnedPartition, part).spec if type(part) in pinned else None


_able: dict[tuple[type, type], bool] = {}
"""Which types of partitions fulfil which protocol: to look takes Python 100 microseconds, too long for each of thousands."""


def _can(partition: Partition, protocol: Any) -> bool:
    """Whether a partition has an ability; partitions of one type have the same."""
    key = (type(partition), protocol)
    if key not in _able:
        _able[key] = isinstance(partition, protocol)
    return _able[key]


def _create_empty(cursor: DuckDBPyConnection, landing: Landing, source: Source, ledger: PartitionLedger) -> None:
    """A read without rows still makes the table, with the columns that the source announces."""
    # The stream of the table: for a table itself DuckDB imports pyarrow.dataset, a tenth of a second.
    cursor.register("__pz_empty", source.schema(landing.dataset).empty_table().__arrow_c_stream__())
    try:
        ledger.create_main(cursor, "__pz_empty")
    finally:
        cursor.unregister("__pz_empty")


@dataclass
class _Work:
    """Reads partitions on several threads and completes them; gathers failures."""

    context: NodeContext
    landing: Landing
    ledger: PartitionLedger
    source: Source
    failures: list[BaseException] = field(default_factory=list)
    resumed: int = 0
    inferred: NativeScan | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, parts: Sequence[IdentifiedPartition]) -> None:
        """Land all of ``parts``. Raises what failed: transient only if every failure is."""
        if not parts:
            return
        waiting: queue.SimpleQueue[IdentifiedPartition] = queue.SimpleQueue()
        for part in parts:
            waiting.put(part)
        stop = CancelToken(self.context.cancel)
        count = min(len(parts), self.context.run.project.engine.threads)
        threads = [
            threading.Thread(target=self._worker, args=(waiting, stop), name="pz-partition", daemon=True)
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.context.cancel.raise_if_set()
        if self.failures:
            raise self._failure(len(parts))

    def _worker(self, waiting: queue.SimpleQueue[IdentifiedPartition], stop: CancelToken) -> None:
        try:
            with self.context.run.staging.cursor() as cursor, self.context.run.staging.interruptible(cursor, stop):
                small = Grouping(
                    self.ledger, cursor, where=self.landing.where, max_partitions=GROUP, max_size=SMALL_BYTES
                )
                while not stop.cancelled:
                    try:
                        part = waiting.get_nowait()
                    except queue.Empty:
                        self._grouped(small.flush())
                        return
                    self._one(cursor, part, stop, small)
        except Cancelled:
            return
        except BaseException as failure:  # noqa: BLE001 - gathered, raised by run()
            with self._lock:
                self.failures.append(failure)
            stop.cancel()

    def _one(self, cursor: DuckDBPyConnection, part: IdentifiedPartition, stop: CancelToken, small: Grouping) -> None:
        """Land one partition. A connector's failure is kept and the siblings go on; an engine-side fault is raised."""
        try:
            scan = part.native_scan() if isinstance(part, NativePartition) and self._may_scan() else None
            if scan is not None:
                with explained(self.source), ended_by(stop, scan):
                    self._native(cursor, part, scan)
            elif isinstance(part, CheckpointingPartition):
                self._checkpointed(cursor, part, stop)
            else:
                self._plain(cursor, part, stop, small)
        except ConnectorError as failure:
            with self._lock:
                self.failures.append(failure)

    def _may_scan(self) -> bool:
        return self.context.planned.way is not Way.ARROW_STREAM

    # --- the three ways

    def _native(self, cursor: DuckDBPyConnection, part: IdentifiedPartition, scan: NativeScan) -> None:
        self.context.run.staging.run_setup(scan.setup)
        if scan.schema_inferred:
            self.inferred = scan
        arrival = Arrival(
            part.partition_id,
            source=scan.relation,
            from_text=scan.from_text,
            full_texts=scan.full_texts,
            before=scan.before,
        )
        for done in self._complete(cursor, [arrival], _verifier(part)):
            self.context.progress(done.rows, every=1)

    def _checkpointed(self, cursor: DuckDBPyConnection, part: CheckpointingPartition, stop: CancelToken) -> None:
        writer = PartWriter(cursor, self.landing.node.id, part.partition_id)
        if writer.checkpoint is not None:
            if part.try_resume(writer.checkpoint.token):
                with self._lock:
                    self.resumed += 1
            else:
                writer.restart()
        for batch in self._read(part, stop):
            stop.raise_if_set()
            writer.append(batch)
            token = part.try_get_checkpoint()
            if token is not None:
                writer.save(token)
        stop.raise_if_set()
        self._complete(cursor, [writer.arrival()], _verifier(part))

    def _plain(self, cursor: DuckDBPyConnection, part: IdentifiedPartition, stop: CancelToken, small: Grouping) -> None:
        import pyarrow as pa

        stream = self._read(part, stop)
        head: list[pa.RecordBatch] = []
        size = 0
        for batch in stream:
            head.append(batch)
            size += batch.nbytes
            if size > SMALL_BYTES:
                break
        stop.raise_if_set()
        if size <= SMALL_BYTES:
            # Verified before it joins a group: what is in the group will be recorded as done.
            _verify(part)
            if head:
                arrival = Arrival(part.partition_id, batch=pa.Table.from_batches(head))
            else:  # nothing says which of the announced columns would have come
                arrival = Arrival(part.partition_id, tables=())
            self._grouped(small.add(arrival, size))
            return
        schema = head[0].schema
        name = f"__pz_stream_{threading.get_ident()}"
        cursor.register(name, pa.RecordBatchReader.from_batches(schema, itertools.chain(head, stream)))
        try:
            self._complete(cursor, [Arrival(part.partition_id, source=name)], _verifier(part))
        finally:
            cursor.unregister(name)

    def _read(self, part: Partition, stop: CancelToken) -> Iterator[pa.RecordBatch]:
        options = BatchOptions(target_bytes=self.context.run.project.engine.batch_bytes)
        announced = self.source.schema(self.landing.dataset)
        batches = part.read(options, stop)
        first = next(batches, None)
        if first is None:
            return iter(())
        shape = narrowed(first.schema, announced)
        return counted(self.context, itertools.chain((first,), batches), shape, self.landing.node.key)

    # --- completion

    def _grouped(self, group: GroupOutcome) -> None:
        with self._lock:
            self.failures.extend(failed.error for failed in group.failed)

    def _complete(
        self, cursor: DuckDBPyConnection, arrivals: Sequence[Arrival], verify: Callable[[], None] | None
    ) -> tuple[Completed, ...]:
        return self.ledger.complete(cursor, arrivals, where=self.landing.where, before_commit=verify)

    def _failure(self, total: int) -> BaseException:
        """One error for all: an engine-side fault first; else transient only when every failure is transient."""
        own = next((f for f in self.failures if not isinstance(f, ConnectorError)), None)
        if own is not None:
            return own
        first = self.failures[0]
        assert isinstance(first, ConnectorError)
        counted = f"{len(self.failures)} of {total} partitions failed: " if total > 1 else ""
        message = f"{counted}{first.message}"
        transient = [f for f in self.failures if isinstance(f, TransientError)]
        if len(transient) == len(self.failures):
            asked = [f.retry_after for f in transient if f.retry_after is not None]
            return TransientError(message, retry_after=max(asked, default=None), hint=first.hint, code=first.code)
        permanent = next(f for f in self.failures if not isinstance(f, TransientError))
        assert isinstance(permanent, ConnectorError)
        return PermanentError(f"{counted}{permanent.message}", hint=permanent.hint, code=permanent.code)


def _verifier(part: Partition) -> Callable[[], None] | None:
    return part.verify if isinstance(part, VerifiablePartition) else None


def _verify(part: Partition) -> None:
    if isinstance(part, VerifiablePartition):
        part.verify()
