"""A read that DuckDB does itself: which fragment there is when the node runs, and how it is ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pz.connectors.contract import CancelToken, DatasetSpec, LiveScanningSource, NativeScan, ReadHints, Source
from pz.interrupter import Interrupter

__all__ = ["ended_by", "whole_scan"]

_EVERY = 1.0
"""Seconds between two requests; each may be a connection of its own."""


def whole_scan(source: Source, dataset: DatasetSpec, hints: ReadHints) -> NativeScan | None:
    """The fragment for a whole dataset, from the live system where the source needs it."""
    if isinstance(source, LiveScanningSource):
        return source.live_scan(dataset, hints)
    return source.native_scan(dataset, hints)


@contextmanager
def ended_by(cancel: CancelToken, scan: NativeScan) -> Iterator[None]:
    """Let ``cancel`` end what the fragment waits for while the block runs, beside interrupting DuckDB."""
    if scan.interrupt is None:
        yield
        return
    interrupter = Interrupter(scan.interrupt, _EVERY)
    forget = cancel.on_cancel(interrupter.start)
    try:
        yield
    finally:
        forget()
        interrupter.end()
