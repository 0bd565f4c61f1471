"""The snapshot of a captured dataset, landed piece by piece.

Each piece commits by itself, and which have is only remembered by this process: the moment that they show dies with it, so
a later run has no use for them. Within a run an attempt goes on where the one before it broke off.
"""

from __future__ import annotations

import queue
import threading
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
    try:
        context.snapshot = HeldSnapshot(partition, partition.pieces(context.cancel))
    except BaseException:
        partition.close()
        raise
    with context.cursor() as cursor, context.run.staging.transaction(cursor, Step.STAGE_ROWS) as tx:
        cursor.register(SHAPE, schema.empty_table())
        tx.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {SHAPE}")
        cursor.unregister(SHAPE)
    return context.snapshot


def land(context: NodeContext, landing: Landing, held: HeldSnapshot, table: str, schema: pa.Schema) -> None:
    """Land the pieces that are missing, on several threads. Raises the first failure, as it is; what has landed stays."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    missing = [number for number in range(len(held.pieces)) if number not in held.landed]
    for number in missing:
        waiting.put(number)
    stop = CancelToken(context.cancel)
    failures: list[BaseException] = []
    options = BatchOptions(target_bytes=context.run.project.engine.batch_bytes)
    staging, key = context.run.staging, landing.node.key

    def one(number: int) -> None:
        name = f"__pz_piece_{threading.get_ident()}"
        with staging.cursor() as cursor, staging.interruptible(cursor, stop):
            batches = held.pieces[number].read(options, stop)
            cursor.register(name, reader(context, batches, schema, key))
            try:
                with staging.transaction(cursor, Step.STAGE_ROWS) as tx:
                    tx.execute(f"INSERT INTO {table} SELECT * FROM {name}")
            finally:
                cursor.unregister(name)
        held.landed.add(number)

    def worker() -> None:
        try:
            while not stop.cancelled:
                one(waiting.get_nowait())
        except queue.Empty:
            return
        except Cancelled:
            return
        except BaseException as failure:  # noqa: BLE001 - raised again, as it is, in the node's thread
            failures.append(failure)
            stop.cancel()

    count = min(len(missing), context.run.project.engine.threads)
    threads = [threading.Thread(target=worker, name="pz-piece", daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    context.cancel.raise_if_set()
    if failures:
        raise failures[0]
