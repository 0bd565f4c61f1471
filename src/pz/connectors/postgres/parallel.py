"""Several readers into one stream: a bounded queue between them and whoever takes the batches."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pz.connectors.contract import CancelToken

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Reader", "merged"]

Reader = Callable[[CancelToken], "Iterator[pa.RecordBatch]"]
DEPTH = 2
POLL = 0.1


def merged(readers: Sequence[Reader], workers: int, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
    """The batches of all readers, in no particular order, read by up to ``workers`` threads.

    The first failure stops the others and is raised as it is; a consumer that stops early stops the readers.
    """
    stop = CancelToken(cancel)
    waiting: queue.SimpleQueue[Reader] = queue.SimpleQueue()
    for reader in readers:
        waiting.put(reader)
    out: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(maxsize=DEPTH * workers)
    count = max(1, min(workers, len(readers)))
    threads = [
        threading.Thread(target=_produce, args=(waiting, out, stop), name="pz-postgres", daemon=True)
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        running = count
        while running:
            item = _take(out, cancel)
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        stop.cancel()
        for thread in threads:
            thread.join()


def _take(
    out: queue.Queue[pa.RecordBatch | BaseException | None], cancel: CancelToken
) -> pa.RecordBatch | BaseException | None:
    while True:
        cancel.raise_if_set()
        try:
            return out.get(timeout=POLL)
        except queue.Empty:
            continue


def _produce(
    waiting: queue.SimpleQueue[Reader], out: queue.Queue[pa.RecordBatch | BaseException | None], stop: CancelToken
) -> None:
    try:
        while not stop.cancelled:
            try:
                reader = waiting.get_nowait()
            except queue.Empty:
                break
            for batch in reader(stop):
                _put(out, batch, stop)
        _put(out, None, stop)
    except BaseException as failure:  # noqa: BLE001 - raised again, as it is, in the consumer's thread
        _put(out, failure, stop)


def _put(
    out: queue.Queue[pa.RecordBatch | BaseException | None],
    item: pa.RecordBatch | BaseException | None,
    stop: CancelToken,
) -> None:
    while not stop.cancelled:
        try:
            out.put(item, timeout=POLL)
        except queue.Full:
            continue
        return
