"""One retry loop for nodes and for gated operations.

Transient failures are tried again: exponential, factor 2, +-25 % jitter, capped; what the far side asked for
(``retry_after``) replaces the computed delay but is capped too. Permanent failures, unknown outcomes and cancellation
pass through at once. Waiting ends when the run is cancelled.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import tenacity

from pz.connectors.contract import CancelToken
from pz.errors import TransientError
from pz.project.model import RetryPolicy

__all__ = ["call_with_retries", "delay_before"]

T = TypeVar("T")
JITTER = 0.25


def delay_before(attempt: int, failure: BaseException | None, policy: RetryPolicy) -> float:
    """Seconds to wait after the failed ``attempt`` (from 1)."""
    cap = policy.max_delay.total_seconds()
    asked = failure.retry_after if isinstance(failure, TransientError) else None
    if asked is not None:
        return min(max(asked, 0.0), cap)
    grown = policy.base_delay.total_seconds() * 2.0 ** min(attempt - 1, 60)
    spread = 1 + random.uniform(-JITTER, JITTER)
    return float(min(grown * spread, cap))


def call_with_retries(
    operation: Callable[[int], T],
    policy: RetryPolicy,
    cancel: CancelToken,
    on_retry: Callable[[int, float, BaseException], None] | None = None,
) -> T:
    """Call ``operation(attempt)`` until it succeeds or the policy is exhausted; the last failure is raised as it is.

    ``on_retry(attempt, delay_seconds, failure)`` is told before each wait.
    """

    def wait(state: tenacity.RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        return delay_before(state.attempt_number, failure, policy)

    def announce(state: tenacity.RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome else None
        if on_retry is not None and failure is not None and state.next_action is not None:
            on_retry(state.attempt_number, state.next_action.sleep, failure)

    def pause(seconds: float) -> None:
        cancel.wait(seconds)
        cancel.raise_if_set()

    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(policy.max_attempts),
        wait=wait,
        retry=tenacity.retry_if_exception_type(TransientError),
        before_sleep=announce,
        sleep=pause,
        reraise=True,
    )
    for attempt in retrying:
        with attempt:
            cancel.raise_if_set()
            return operation(attempt.retry_state.attempt_number)
    raise AssertionError("tenacity either returns or raises")  # pragma: no cover
