"""Several partition readers, one stream of record batches: a bounded queue between them and whoever takes the rows.

The queue holds `DEPTH` batches, so memory stays bounded whatever the speeds. Time stalled on either side is measured. A
failure of a reader reaches the consumer as it was raised; when the consumer stops early, the readers are told to stop.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pz.connectors.contract import BatchOptions, CancelToken, Partition
from pz.errors import PermanentError

if TYPE_CHECKING:
    import pyarrow as pa

    from pz.engine.context import NodeContext

__all__ = ["BatchStream", "check_shape", "counted", "narrowed", "reader"]

DEPTH = 4
POLL = 0.1
_END = object()


class BatchStream:
    """Iterates over the batches of all partitions, read by up to ``readers`` threads. Use as a context manager."""

    def __init__(
        self, partitions: Sequence[Partition], options: BatchOptions, cancel: CancelToken, readers: int
    ) -> None:
        self._partitions: queue.SimpleQueue[Partition] = queue.SimpleQueue()
        for partition in partitions:
            self._partitions.put(partition)
        self._options = options
        self._cancel = CancelToken(cancel)
        self._queue: queue.Queue[object] = queue.Queue(maxsize=DEPTH)
        count = max(1, min(readers, len(partitions)))
        self._threads = [threading.Thread(target=self._produce, name="pz-reader", daemon=True) for _ in range(count)]
        self.producer_stall_ms = 0
        self.consumer_stall_ms = 0

    def __enter__(self) -> BatchStream:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel.cancel()
        for thread in self._threads:
            thread.join()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        running = len(self._threads)
        while running:
            item = self._take()
            if item is _END:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item

    @property
    def timings(self) -> dict[str, int]:
        """Milliseconds that each side waited for the other."""
        return {"producerStallMs": self.producer_stall_ms, "consumerStallMs": self.consumer_stall_ms}

    def _take(self) -> object:
        begun = time.monotonic()
        while True:
            self._cancel.raise_if_set()
            try:
                item = self._queue.get(timeout=POLL)
            except queue.Empty:
                continue
            self.consumer_stall_ms += round((time.monotonic() - begun) * 1000)
            return item

    def _produce(self) -> None:
        try:
            while True:
                try:
                    partition = self._partitions.get_nowait()
                except queue.Empty:
                    break
                for batch in partition.read(self._options, self._cancel):
                    if not self._put(batch):
                        return
        except BaseException as failure:  # noqa: BLE001 - raised again, as it is, in the consumer's thread
            self._put(failure)
            return
        self._put(_END)

    def _put(self, item: object) -> bool:
        begun = time.monotonic()
        while not self._cancel.cancelled:
            try:
                self._queue.put(item, timeout=POLL)
            except queue.Full:
                continue
            self.producer_stall_ms += round((time.monotonic() - begun) * 1000)
            return True
        return False


def counted(
    context: NodeContext | None, stream: Iterable[pa.RecordBatch], schema: pa.Schema, dataset: str
) -> Iterator[pa.RecordBatch]:
    """The same batches, each checked against the announced schema and counted as progress (None: somebody else counts)."""
    for batch in stream:
        check_shape(batch, schema, dataset)
        if context is not None:
            context.progress(batch.num_rows, batch.nbytes)
        yield batch


def reader(
    context: NodeContext | None, stream: Iterable[pa.RecordBatch], announced: pa.Schema, dataset: str
) -> pa.RecordBatchReader:
    """The batches as one Arrow stream. A connector that was asked for some columns may deliver just those."""
    import pyarrow as pa

    batches = iter(stream)
    first = next(batches, None)
    if first is None:
        return pa.RecordBatchReader.from_batches(announced, iter(()))
    delivered = narrowed(first.schema, announced)
    rest = itertools.chain((first,), batches)
    return pa.RecordBatchReader.from_batches(delivered, counted(context, rest, delivered, dataset))


def narrowed(delivered: pa.Schema, announced: pa.Schema) -> pa.Schema:
    """The announced schema cut to the columns that were delivered, in their order, if they are of it; else as announced."""
    known = set(announced.names)
    if not set(delivered.names) <= known or len(set(announced.names)) != len(announced.names):
        return announced
    import pyarrow as pa

    return pa.schema([announced.field(name) for name in delivered.names])


def check_shape(batch: pa.RecordBatch, expected: pa.Schema, dataset: str) -> None:
    """Refuse a batch whose structure differs from what was announced, before DuckDB sees it.

    Raises:
        PermanentError: names both shapes; no value.
    """
    if not batch.schema.equals(expected, check_metadata=False):
        raise PermanentError(
            f"'{dataset}': the connector delivered {_shape(batch.schema)} where it had announced {_shape(expected)}"
        )


def _shape(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"
