"""The snapshot of a captured dataset, landed piece by piece.

Each piece commits by itself, and which have is only remembered by this process: the moment that they show dies with it, so
a later run has no use for them. Within a run an attempt goes on where the one before it broke off.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pz.connectors.contract import BatchOptions, CancelToken, PiecewiseSnapshot
from pz.durable import Step
from pz.engine.context import HeldSnapshot
from pz.engine.nodes.batches import reader
from pz.engine.nodes.landing import Landing
from pz.errors import Cancelled

if TYPE_CHECKING:
    import pyarrow as pa

    from pz.engine.context import NodeContext

__all__ = ["hold", "land"]

SHAPE = "__pz_shape"


def hold(
    context: NodeContext, landing: Landing, partition: PiecewiseSnapshot, table: str, schema: pa.Schema
) -> HeldSnapshot:
    """The snapshot of an earlier attempt while it lives, else a new one of ``partition`` with an empty table."""
    held = context.snapshot
    if held is not None and held.partition.is_alive():
        context.run.note(
            f"source '{landing.node.key}': {len(held.landed)} of {len(held.pieces)} pieces of its snapshot have landed; "
            "the others are read under it"
        )
        return held
    if held is not None:
        context.run.note(f"source '{landing.node.key}': its snapshot is gone; it is taken again from its beginning")
    context.release()
    _make_table(context, table, schema)  # first: a held snapshot stands for a table that takes its pieces
    try:
        context.snapshot = HeldSnapshot(partition, partition.pieces(context.cancel))
    except BaseException:  # also an interrupt: nobody else would close the connection that holds the snapshot
        partition.close()
        raise
    return context.snapshot


def _make_table(context: NodeContext, table: str, schema: pa.Schema) -> None:
    with context.cursor() as cursor, context.run.staging.transaction(cursor, Step.STAGE_ROWS) as tx:
        cursor.register(SHAPE, schema.empty_table())
        tx.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {SHAPE}")
        cursor.unregister(SHAPE)


def land(context: NodeContext, landing: Landing, held: HeldSnapshot, table: str, schema: pa.Schema) -> None:
    """Land the pieces that are missing, on several threads. Raises the first failure, as it is; what has landed stays."""
    missing = [number for number in range(len(held.pieces)) if number not in held.landed]
    work = _Work(context, landing.node.key, held, table, schema, CancelToken(context.cancel))
    for number in missing:
        work.waiting.put(number)
    count = min(len(missing), context.run.project.engine.threads)
    threads = [threading.Thread(target=work.run, name="pz-piece", daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    context.cancel.raise_if_set()
    if work.failures:
        raise work.failures[0]


@dataclass
class _Work:
    """The pieces that wait, and what the threads that land them have met."""

    context: NodeContext
    key: str
    held: HeldSnapshot
    table: str
    schema: pa.Schema
    stop: CancelToken
    waiting: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    failures: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        try:
            while not self.stop.cancelled and (number := self._next()) is not None:
                self._one(number)
        except BaseException as failure:  # noqa: BLE001 - raised again, as it is, in the node's thread
            if not (isinstance(failure, Cancelled) and self.stop.cancelled):
                self.failures.append(failure)
            self.stop.cancel()

    def _next(self) -> int | None:
        try:
            return self.waiting.get_nowait()
        except queue.Empty:
            return None

    def _one(self, number: int) -> None:
        staging = self.context.run.staging
        options = BatchOptions(target_bytes=self.context.run.project.engine.batch_bytes)
        name = f"__pz_piece_{threading.get_ident()}"
        with staging.cursor() as cursor, staging.interruptible(cursor, self.stop):
            batches = self.held.pieces[number].read(options, self.stop)
            cursor.register(name, reader(self.context, batches, self.schema, self.key))
            try:
                with staging.transaction(cursor, Step.STAGE_ROWS) as tx:
                    tx.execute(f"INSERT INTO {self.table} SELECT * FROM {name}")
                self.held.landed.add(number)  # nothing may fail between the commit and this: it would land twice
            finally:
                cursor.unregister(name)
