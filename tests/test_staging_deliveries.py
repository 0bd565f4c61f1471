"""The ledger of deliveries: attempts move only where they may, counts only rise, other content begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from pz.errors import EngineError
from pz.staging.delivery_ledger import DeliveryLedger
from pz.staging.fingerprint import Fingerprint
from pz.staging.meta import AttemptState, Ledger
from pz.staging.session import StagingSession

NODE = "0123456789abcdef"
CONTENT = Fingerprint(10, "12345")


@pytest.fixture
def cursor(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with StagingSession.create(tmp_path, memory_limit_bytes=10**8) as session, session.cursor() as opened:
        yield opened


@pytest.fixture
def ledger() -> DeliveryLedger:
    return DeliveryLedger(NODE, "run2")


def test_attempts_are_numbered_within_their_run(cursor: duckdb.DuckDBPyConnection, ledger: DeliveryLedger) -> None:
    assert DeliveryLedger(NODE, "run1").begin_attempt(cursor) == 1
    assert [ledger.begin_attempt(cursor, marker="m"), ledger.begin_attempt(cursor)] == [1, 2]
    assert DeliveryLedger("other", "run2").begin_attempt(cursor) == 1
    assert [(a.run_id, a.ordinal, a.marker) for a in Ledger(cursor).attempts(NODE)] == [
        ("run1", 1, None),
        ("run2", 1, "m"),
        ("run2", 2, None),
    ]


def test_an_attempt_without_a_recorded_end_is_in_doubt(
    cursor: duckdb.DuckDBPyConnection, ledger: DeliveryLedger
) -> None:
    first = DeliveryLedger(NODE, "run1")
    for state in (AttemptState.COMMITTED, AttemptState.ABORTED, AttemptState.UNKNOWN, None):
        ordinal = first.begin_attempt(cursor)
        if state is not None:
            first.end_attempt(cursor, ordinal, state)
    current = ledger.begin_attempt(cursor)
    assert ledger.in_doubt(cursor, but=current) == (("run1", 3), ("run1", 4))
    assert ledger.in_doubt(cursor) == (("run1", 3), ("run1", 4), ("run2", 1))
    assert ledger.is_committed(cursor)


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        (None, AttemptState.COMMITTED, True),
        (None, AttemptState.ABORTED, True),
        (None, AttemptState.UNKNOWN, True),
        (AttemptState.UNKNOWN, AttemptState.COMMITTED, True),
        (AttemptState.UNKNOWN, AttemptState.ABORTED, True),
        (AttemptState.UNKNOWN, AttemptState.UNKNOWN, False),
        (AttemptState.COMMITTED, AttemptState.ABORTED, False),
        (AttemptState.COMMITTED, AttemptState.UNKNOWN, False),
        (AttemptState.COMMITTED, AttemptState.COMMITTED, False),
        (AttemptState.ABORTED, AttemptState.COMMITTED, False),
    ],
)
def test_an_attempt_that_ended_keeps_its_end(
    cursor: duckdb.DuckDBPyConnection,
    ledger: DeliveryLedger,
    before: AttemptState | None,
    after: AttemptState,
    allowed: bool,
) -> None:
    ordinal = ledger.begin_attempt(cursor)
    if before is not None:
        ledger.end_attempt(cursor, ordinal, before)
    if allowed:
        ledger.settle(cursor, "run2", ordinal, after)
        assert Ledger(cursor).attempts(NODE)[0].state is after
    else:
        with pytest.raises(EngineError):
            ledger.settle(cursor, "run2", ordinal, after)
        assert Ledger(cursor).attempts(NODE)[0].state is before


def test_an_attempt_that_was_never_begun_cannot_end(cursor: duckdb.DuckDBPyConnection, ledger: DeliveryLedger) -> None:
    with pytest.raises(EngineError):
        ledger.end_attempt(cursor, 1, AttemptState.COMMITTED)


def test_a_delivery_resumes_behind_what_was_confirmed(
    cursor: duckdb.DuckDBPyConnection, ledger: DeliveryLedger
) -> None:
    assert ledger.resume_point(cursor, CONTENT) is None
    assert ledger.begin_delivery(cursor, CONTENT) == 0
    assert ledger.resume_point(cursor, CONTENT) == 0
    for rows in (3, 3, 7):
        ledger.acknowledge(cursor, rows)
    assert ledger.begin_delivery(cursor, CONTENT) == 7
    ledger.restart_delivery(cursor, CONTENT)
    assert ledger.begin_delivery(cursor, CONTENT) == 0


@pytest.mark.parametrize("other", [Fingerprint(10, "999"), Fingerprint(11, "12345")])
def test_other_content_is_delivered_from_its_beginning(
    cursor: duckdb.DuckDBPyConnection, ledger: DeliveryLedger, other: Fingerprint
) -> None:
    ledger.begin_delivery(cursor, CONTENT)
    ledger.acknowledge(cursor, 5, accepted=[8])
    assert ledger.resume_point(cursor, other) is None
    assert ledger.begin_delivery(cursor, other) == 0
    assert ledger.accepted(cursor) == frozenset()
    assert ledger.resume_point(cursor, CONTENT) is None


def test_a_confirmed_count_never_falls_nor_passes_the_relation(
    cursor: duckdb.DuckDBPyConnection, ledger: DeliveryLedger
) -> None:
    with pytest.raises(EngineError):
        ledger.acknowledge(cursor, 1)
    ledger.begin_delivery(cursor, CONTENT)
    ledger.acknowledge(cursor, 5)
    with pytest.raises(EngineError):
        ledger.acknowledge(cursor, 4)
    with pytest.raises(duckdb.ConstraintException):
        ledger.acknowledge(cursor, 11)
    assert ledger.resume_point(cursor, CONTENT) == 5


def test_rows_accepted_behind_a_refused_one_are_kept_until_the_prefix_passes_them(
    cursor: duckdb.DuckDBPyConnection, ledger: DeliveryLedger
) -> None:
    ledger.begin_delivery(cursor, CONTENT)
    ledger.acknowledge(cursor, 2, accepted=[1, 3, 5, 9])
    assert ledger.accepted(cursor) == {3, 5, 9}
    ledger.acknowledge(cursor, 6, accepted=[8])
    assert ledger.accepted(cursor) == {8, 9}
    ledger.acknowledge(cursor, 10)
    assert ledger.accepted(cursor) == frozenset()


def test_an_empty_relation_is_delivered_at_once(cursor: duckdb.DuckDBPyConnection, ledger: DeliveryLedger) -> None:
    assert ledger.begin_delivery(cursor, Fingerprint(0, "0")) == 0
    ledger.acknowledge(cursor, 0)
    assert ledger.resume_point(cursor, Fingerprint(0, "0")) == 0
