"""The gate that connectors' remote calls go through: pacing, retries of idempotent calls, the server's own budget.

One `Pacer` serves a connection for a whole run, so all its nodes share one token bucket. One `Gate` serves one opened
source or sink and counts what happened there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pz.connectors.contract import CancelToken
from pz.engine.resilience.retry import call_with_retries
from pz.project.model import RateLimit, RetryPolicy

if TYPE_CHECKING:
    from pyrate_limiter import Limiter

__all__ = ["Gate", "Pacer"]

T = TypeVar("T")
MAX_BUDGET_WAIT = 300.0
POLL = 0.05
TOLD_FROM = 3.0
"""Seconds of a wait that are not passed over in silence."""

OnWait = Callable[[float | None], None]
"""Is told the seconds of a wait that the server asked for; None for one of the connection's own limit."""

OnRetry = Callable[[str, int, int, float, BaseException], None]
"""Is told of a call that will be tried again: its label, the failed attempt, the most attempts, the delay, the failure."""


class Pacer:
    """A token bucket of a connection: starts full with ``burst`` tokens and refills at ``requests_per_minute``.

    `report_budget` adds what the server said: with nothing remaining, the next call waits for the reset (capped at
    5 minutes). ``on_wait`` hears of each such wait once, by who must really wait, and once of a long one for a token.
    """

    def __init__(self, limit: RateLimit | None, on_wait: OnWait | None = None) -> None:
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._on_wait = on_wait
        self._told = 0.0
        self._told_of_limit = False
        self._limiter = None if limit is None else _limiter(limit)

    def take(self, cancel: CancelToken) -> float:
        """Wait for a token; returns the seconds waited. Raises `Cancelled`."""
        begun = time.monotonic()
        while True:
            pause = self._not_before - time.monotonic()
            if pause <= 0 and (self._limiter is None or self._limiter.try_acquire("op", blocking=False)):
                return time.monotonic() - begun
            self._tell(pause, time.monotonic() - begun)
            cancel.wait(max(min(pause, 1.0), POLL))
            cancel.raise_if_set()

    def _tell(self, pause: float, waited: float) -> None:
        if self._on_wait is None:
            return
        with self._lock:
            asked = pause >= TOLD_FROM and self._not_before - self._told >= TOLD_FROM
            limited = pause <= 0 and waited >= TOLD_FROM and not self._told_of_limit
            if asked:
                self._told = self._not_before
            self._told_of_limit = self._told_of_limit or limited
        if asked or limited:
            self._on_wait(pause if asked else None)

    def report_budget(self, remaining: int, reset_seconds: float) -> None:
        """Keep the server's word when nothing remains; anything else has no effect."""
        if remaining <= 0:
            with self._lock:
                wait = min(max(reset_seconds, 0.0), MAX_BUDGET_WAIT)
                self._not_before = max(self._not_before, time.monotonic() + wait)


def _limiter(limit: RateLimit) -> Limiter:
    """At most ``burst`` in the time in which ``burst`` tokens refill: that keeps both numbers of the setting."""
    from pyrate_limiter import Duration, InMemoryBucket, Limiter, Rate  # late: it brings asyncio with it

    window = max(1, round(limit.burst * Duration.MINUTE / limit.requests_per_minute))
    return Limiter(InMemoryBucket([Rate(limit.burst, window)]))


class Gate:
    """The `OperationGate` of one opened source or sink."""

    def __init__(self, pacer: Pacer, policy: RetryPolicy, cancel: CancelToken, on_retry: OnRetry | None = None) -> None:
        self._on_retry = on_retry
        self._pacer = pacer
        self._policy = policy
        self._cancel = cancel
        self._lock = threading.Lock()
        self.executed = 0
        self.retried = 0
        self.throttle_wait_ms = 0

    def execute(self, label: str, idempotent: bool, operation: Callable[[], T], cancel: CancelToken | None = None) -> T:
        """Run a remote call, paced; an idempotent one is retried under the node's policy."""
        policy = self._policy if idempotent else RetryPolicy(max_attempts=1)
        until = self._cancel if cancel is None else cancel

        def attempt(number: int) -> T:
            waited = self._pacer.take(until)
            with self._lock:
                self.executed += 1
                self.retried += number > 1
                self.throttle_wait_ms += round(waited * 1000)
            return operation()

        def scheduled(number: int, delay: float, failure: BaseException) -> None:
            if self._on_retry is not None:
                self._on_retry(label, number, policy.max_attempts, delay, failure)

        return call_with_retries(attempt, policy, until, scheduled)

    def report_budget(self, remaining: int, reset_seconds: float) -> None:
        """Pass the server's word to the connection's pacer."""
        self._pacer.report_budget(remaining, reset_seconds)

    @property
    def ops(self) -> dict[str, int] | None:
        """The ``ops`` block of a node result; None when no operation was gated."""
        if self.executed == 0:
            return None
        return {"executed": self.executed, "retried": self.retried, "throttle_wait_ms": self.throttle_wait_ms}
