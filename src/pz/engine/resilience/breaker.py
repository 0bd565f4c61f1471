"""A circuit breaker per connection: after enough transient node failures in a row, nodes wait instead of hammering.

Only final node outcomes count; permanent errors don't touch it. While open, a node waits for the cool-down without
using up an attempt; one probe passes half-open. A node that waited twice fails with PZ0506, which `pz retry` continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pz.connectors.contract import CancelToken
from pz.errors import Code, NodeError, Problem
from pz.project.model import Breaker

__all__ = ["CircuitBreaker"]

MAX_WAITS = 2


class CircuitBreaker:
    """States: closed, open (until a moment), half_open (one probe under way)."""

    def __init__(self, connection: str, settings: Breaker, on_change: Callable[[str, str], None]) -> None:
        self._connection = connection
        self._settings = settings
        self._on_change = on_change
        self._lock = threading.Lock()
        self._failures = 0
        self._state = "closed"
        self._open_until = 0.0

    def admit(self, cancel: CancelToken) -> None:
        """Return when a node may start; raises `NodeError` PZ0506 after two waits, `Cancelled` when cancelled."""
        for _ in range(MAX_WAITS + 1):
            pause = self._enter()
            if pause is None:
                return
            cancel.wait(pause)
            cancel.raise_if_set()
        seconds = self._settings.cool_down.total_seconds()
        raise NodeError(
            Problem(Code.PZ0506, f"connection '{self._connection}': circuit breaker is open (cool-down {seconds:g} s)")
        )

    def record(self, *, transient_failure: bool, retry_after: float | None = None) -> None:
        """Tell the final outcome of a node: a transient failure, or anything that shows the far side is alive."""
        with self._lock:
            if not transient_failure:
                self._failures = 0
                self._set("closed")
                return
            self._failures += 1
            if self._failures >= self._settings.failure_threshold or self._state == "half_open":
                pause = max(self._settings.cool_down.total_seconds(), retry_after or 0.0)
                self._open_until = time.monotonic() + pause
                self._set("open")

    def _enter(self) -> float | None:
        with self._lock:
            if self._state == "closed":
                return None
            pause = self._open_until - time.monotonic()
            if self._state == "open" and pause <= 0:
                self._set("half_open")
                return None
            return max(pause, self._settings.cool_down.total_seconds() if self._state == "half_open" else 0.01)

    def _set(self, state: str) -> None:
        if state != self._state:
            self._state = state
            self._on_change(self._connection, state)
