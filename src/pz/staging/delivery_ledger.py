"""What is known of an output's attempts and of how far a resumable delivery has come.

A destination cannot commit together with this ledger, so everything is written *before* it can be needed: the attempt
before its session begins, the fingerprint before the first row is sent, the count after each acknowledgement. A process
that dies leaves an attempt ``begun``, which means in doubt, and a count that is at most one acknowledgement behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pz.durable import Step
from pz.staging import meta
from pz.staging.fingerprint import Fingerprint
from pz.staging.meta import AcceptedRow, AttemptState, Delivery, Ledger, SinkAttempt
from pz.staging.transaction import Transaction, transaction

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["DeliveryLedger"]

_FROM = {
    AttemptState.COMMITTED: (AttemptState.BEGUN, AttemptState.UNKNOWN),
    AttemptState.ABORTED: (AttemptState.BEGUN, AttemptState.UNKNOWN),
    AttemptState.UNKNOWN: (AttemptState.BEGUN,),
}
"""The states that an attempt may come from; committed and aborted are final."""


class DeliveryLedger:
    """The ledger of one output. Methods take the caller's cursor; one thread at a time writes an output.

    ``committed`` is called when a record is committed, before anything outside may rely on it: a run passes
    `StagingSession.flush_folder`.
    """

    def __init__(self, node_id: str, run_id: str, committed: Callable[[], None] | None = None) -> None:
        self.node_id = node_id
        self.run_id = run_id
        self._committed = committed
        self._single: bool | None = None
        """Whether single rows behind the prefix are recorded; None before somebody looked. Nearly always there are none, and
        a statement that removes none takes a fifth of an acknowledgement."""

    @contextmanager
    def _transaction(self, cursor: DuckDBPyConnection, name: Step) -> Iterator[Transaction]:
        with transaction(cursor, name) as tx:
            yield tx
        if self._committed is not None:
            self._committed()

    # ---- attempts

    def begin_attempt(self, cursor: DuckDBPyConnection, *, marker: str | None = None) -> int:
        """Record an attempt before its session begins; return its ordinal within this run, from 1."""
        own = [attempt.ordinal for attempt in self._attempts(cursor) if attempt.run_id == self.run_id]
        ordinal = max(own, default=0) + 1
        with self._transaction(cursor, Step.RECORD_ATTEMPT) as tx:
            meta.record(tx, SinkAttempt(self.node_id, self.run_id, ordinal, AttemptState.BEGUN, marker))
        return ordinal

    def mark_attempt(self, cursor: DuckDBPyConnection, ordinal: int, marker: str) -> None:
        """Record by what an attempt's commit can be recognised, before it commits."""
        with self._transaction(cursor, Step.RECORD_ATTEMPT) as tx:
            meta.mark_attempt(tx, self.node_id, self.run_id, ordinal, marker)

    def marker(self, cursor: DuckDBPyConnection, run_id: str, ordinal: int) -> str | None:
        """The mark that was recorded for an attempt."""
        wanted = (run_id, ordinal)
        return next((a.marker for a in self._attempts(cursor) if (a.run_id, a.ordinal) == wanted), None)

    def end_attempt(self, cursor: DuckDBPyConnection, ordinal: int, state: AttemptState) -> None:
        """Record how an attempt of this run ended. Raises EngineError when it is not in a state for that."""
        self.settle(cursor, self.run_id, ordinal, state)

    def settle(self, cursor: DuckDBPyConnection, run_id: str, ordinal: int, state: AttemptState) -> None:
        """Record what became of an attempt of any run of the chain, once the destination has told."""
        with self._transaction(cursor, Step.RECORD_ATTEMPT) as tx:
            meta.move_attempt(tx, self.node_id, run_id, ordinal, state, allowed=_FROM[state])

    def in_doubt(self, cursor: DuckDBPyConnection, *, but: int | None = None) -> tuple[tuple[str, int], ...]:
        """Attempts of the chain whose outcome is unknown, as ``(run, ordinal)``, oldest first: `WriteAttempt.prior`.

        ``but`` leaves out the attempt of this run that is being made.
        """
        return tuple(
            (attempt.run_id, attempt.ordinal)
            for attempt in self._attempts(cursor)
            if attempt.state in {AttemptState.BEGUN, AttemptState.UNKNOWN}
            and (attempt.run_id, attempt.ordinal) != (self.run_id, but)
        )

    def is_committed(self, cursor: DuckDBPyConnection) -> bool:
        """Whether some attempt of the chain is known to have committed."""
        return any(attempt.state is AttemptState.COMMITTED for attempt in self._attempts(cursor))

    def _attempts(self, cursor: DuckDBPyConnection) -> tuple[SinkAttempt, ...]:
        return Ledger(cursor).attempts(self.node_id)

    # ---- resumable deliveries

    def resume_point(self, cursor: DuckDBPyConnection, fingerprint: Fingerprint) -> int | None:
        """Rows of this very relation that the destination has confirmed without a gap; None when nothing was begun."""
        known = Ledger(cursor).delivery(self.node_id)
        if known is None or (known.fingerprint_rows, known.fingerprint_hash) != (fingerprint.rows, fingerprint.hash):
            return None
        return known.acknowledged_rows

    def begin_delivery(self, cursor: DuckDBPyConnection, fingerprint: Fingerprint) -> int:
        """Record which relation is delivered, before its first row is sent; return the offset to send from.

        A ledger of other content is scratched: the delivery then begins at 0.
        """
        point = self.resume_point(cursor, fingerprint)
        if point is None:
            self.restart_delivery(cursor, fingerprint)
        return point or 0

    def restart_delivery(self, cursor: DuckDBPyConnection, fingerprint: Fingerprint) -> None:
        """Begin at 0 again, say because the session cannot resume."""
        with self._transaction(cursor, Step.RECORD_DELIVERY) as tx:
            for kind in (Delivery, AcceptedRow):
                meta.erase(tx, kind, self.node_id)
            meta.record(tx, Delivery(self.node_id, 0, fingerprint.rows, fingerprint.hash))

    def acknowledge(self, cursor: DuckDBPyConnection, rows: int, *, accepted: Collection[int] = ()) -> None:
        """Record that the destination has confirmed the first ``rows`` rows, and single rows behind them.

        ``rows`` ends before the first refused row; ``accepted`` are offsets behind it, to be skipped singly next time.
        Counts only rise: a smaller one raises EngineError, one beyond the relation a ConstraintException.
        """
        if self._single is None:
            self._single = bool(self.accepted(cursor))
        behind = sorted(offset for offset in accepted if offset >= rows)
        with self._transaction(cursor, Step.RECORD_DELIVERY) as tx:
            meta.advance_delivery(tx, self.node_id, rows)
            if self._single:
                meta.forget_accepted(tx, self.node_id, rows)
            meta.record(tx, *(AcceptedRow(self.node_id, offset) for offset in behind))
        self._single = self._single or bool(behind)

    def accepted(self, cursor: DuckDBPyConnection) -> frozenset[int]:
        """Offsets behind the confirmed prefix that need not be sent again."""
        return Ledger(cursor).accepted_rows(self.node_id)
