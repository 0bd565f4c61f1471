"""Retry loop, gate and breaker."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pz.connectors.contract import CancelToken
from pz.engine.resilience.breaker import CircuitBreaker
from pz.engine.resilience.gate import Gate, Pacer
from pz.engine.resilience.retry import call_with_retries, delay_before
from pz.errors import Cancelled, Code, NodeError, OutcomeUnknown, PermanentError, TransientError
from pz.project.model import Breaker, RateLimit, RetryPolicy, RetrySettings

QUICK = RetryPolicy(3, timedelta(0), timedelta(0))


def failing(times: int, failure: Exception) -> tuple[list[int], object]:
    calls: list[int] = []

    def operation(attempt: int) -> str:
        calls.append(attempt)
        if len(calls) <= times:
            raise failure
        return "done"

    return calls, operation


def test_a_transient_failure_is_tried_again_with_rising_attempt_numbers() -> None:
    calls, operation = failing(2, TransientError("busy"))
    assert call_with_retries(operation, QUICK, CancelToken()) == "done"  # type: ignore[arg-type]
    assert calls == [1, 2, 3]


def test_the_last_failure_surfaces_as_it_was_raised() -> None:
    failure = TransientError("busy", retry_after=0)
    calls, operation = failing(9, failure)
    with pytest.raises(TransientError) as raised:
        call_with_retries(operation, QUICK, CancelToken())  # type: ignore[arg-type]
    assert raised.value is failure
    assert calls == [1, 2, 3]


@pytest.mark.parametrize("failure", [PermanentError("no"), OutcomeUnknown("lost"), ValueError("bug"), Cancelled()])
def test_anything_but_a_transient_failure_is_final(failure: Exception) -> None:
    calls, operation = failing(9, failure)
    with pytest.raises(type(failure)):
        call_with_retries(operation, QUICK, CancelToken())  # type: ignore[arg-type]
    assert calls == [1]


def test_waiting_ends_when_the_run_is_cancelled() -> None:
    cancel = CancelToken()
    calls, operation = failing(9, TransientError("busy"))
    slow = RetryPolicy(3, timedelta(hours=1), timedelta(hours=1))
    with pytest.raises(Cancelled):
        call_with_retries(operation, slow, cancel, lambda *_: cancel.cancel())  # type: ignore[arg-type]
    assert calls == [1]


def test_delays_double_are_capped_and_jittered_by_a_quarter() -> None:
    policy = RetryPolicy(9, timedelta(seconds=1), timedelta(seconds=5))
    for attempt, nominal in ((1, 1), (2, 2), (3, 4)):
        seen = [delay_before(attempt, None, policy) for _ in range(200)]
        assert min(seen) >= 0.75 * nominal
        assert max(seen) <= min(1.25 * nominal, 5)
    assert delay_before(30, None, policy) == 5


def test_what_the_far_side_asks_for_replaces_the_delay_but_is_capped() -> None:
    policy = RetryPolicy(9, timedelta(seconds=1), timedelta(seconds=5))
    assert delay_before(1, TransientError("busy", retry_after=3), policy) == 3
    assert delay_before(1, TransientError("busy", retry_after=3600), policy) == 5
    assert delay_before(1, TransientError("busy", retry_after=-4), policy) == 0


def test_policies_cascade_field_by_field() -> None:
    entity = RetrySettings(max_attempts=7)
    connection = RetrySettings(max_attempts=2, max_delay=timedelta(seconds=9))
    assert RetryPolicy.cascade(entity, connection) == RetryPolicy(7, timedelta(seconds=1), timedelta(seconds=9))


def test_the_gate_retries_only_idempotent_operations_and_counts_them() -> None:
    gate = Gate(Pacer(None), QUICK, CancelToken())
    calls: list[int] = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise TransientError("busy")
        return "ok"

    assert gate.execute("fetch", True, flaky) == "ok"
    assert gate.ops == {"executed": 2, "retried": 1, "throttle_wait_ms": 0}
    calls.clear()
    with pytest.raises(TransientError):
        gate.execute("send", False, flaky)


def test_the_pacer_grants_its_burst_and_then_makes_callers_wait() -> None:
    pacer = Pacer(RateLimit(requests_per_minute=600, burst=3))
    cancel = CancelToken()
    assert sum(pacer.take(cancel) for _ in range(3)) < 0.05
    assert pacer.take(cancel) > 0


def test_an_exhausted_budget_delays_the_next_call_and_a_remaining_one_does_not() -> None:
    pacer = Pacer(None)
    pacer.report_budget(5, 3600)
    assert pacer.take(CancelToken()) < 0.05
    pacer.report_budget(0, 3600)
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        pacer.take(cancel)


def breaker(threshold: int, cool_down: timedelta) -> tuple[CircuitBreaker, list[str]]:
    states: list[str] = []
    return CircuitBreaker("db", Breaker(threshold, cool_down), lambda _, state: states.append(state)), states


def test_the_breaker_opens_after_the_threshold_and_closes_after_a_good_probe() -> None:
    circuit, states = breaker(2, timedelta(0))
    circuit.record(transient_failure=True)
    circuit.record(transient_failure=True)
    circuit.admit(CancelToken())
    circuit.record(transient_failure=False)
    circuit.admit(CancelToken())
    assert states == ["open", "half_open", "closed"]


def test_a_node_that_waited_twice_fails_with_its_own_code() -> None:
    circuit, _ = breaker(1, timedelta(milliseconds=10))
    circuit.record(transient_failure=True)
    circuit.admit(CancelToken())  # the one half-open probe, which never reports back
    with pytest.raises(NodeError) as raised:
        circuit.admit(CancelToken())
    assert raised.value.code is Code.PZ0506
