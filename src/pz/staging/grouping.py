"""Completing many small partitions in few transactions.

A transaction of its own per partition costs about as much as ten thousand rows. A group completes together; when it fails,
halves are tried, so that one bad partition does not hold up its siblings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pz.errors import ConnectorError
from pz.frozen import frozen
from pz.staging.partition_ledger import Arrival, Completed, PartitionLedger

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Failed", "Grouping", "Outcome", "complete_group"]


@frozen
class Failed:
    """A partition that could not be completed, and why."""

    partition_id: str
    error: Exception

    def __repr__(self) -> str:
        return f"Failed(error={type(self.error).__name__})"


@frozen
class Outcome:
    """What became of a group: every arrival is in one of the two."""

    completed: tuple[Completed, ...] = ()
    failed: tuple[Failed, ...] = ()

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(self.completed + other.completed, self.failed + other.failed)


def complete_group(
    ledger: PartitionLedger, cursor: DuckDBPyConnection, arrivals: Sequence[Arrival], *, where: str | None = None
) -> Outcome:
    """Complete partitions in one transaction if possible, else by halves down to the ones that fail.

    Only what a source may cause is isolated; an interrupt, a full disk or other columns (NodeError) end the group at once.
    """
    import duckdb

    if not arrivals:
        return Outcome()
    try:
        return Outcome(ledger.complete(cursor, arrivals, where=where))
    except (duckdb.InterruptException, duckdb.FatalException, duckdb.InternalException):
        raise
    except (duckdb.Error, ConnectorError) as failure:
        if "No space left" in str(failure):
            raise
        if len(arrivals) == 1:
            return Outcome(failed=(Failed(arrivals[0].partition_id, failure),))
    middle = len(arrivals) // 2
    return complete_group(ledger, cursor, arrivals[:middle], where=where) + complete_group(
        ledger, cursor, arrivals[middle:], where=where
    )


class Grouping:
    """Collects arrivals on one cursor and completes them together. Not thread-safe: one for each worker.

    A group is full at ``max_partitions`` or when the sizes given with its arrivals reach ``max_size``, in whatever unit the
    caller counts: rows, or bytes, because batches that wait in a group are memory. `flush` completes the rest.
    """

    def __init__(
        self,
        ledger: PartitionLedger,
        cursor: DuckDBPyConnection,
        *,
        where: str | None = None,
        max_partitions: int = 200,
        max_size: int = 200_000,
    ) -> None:
        self._ledger = ledger
        self._cursor = cursor
        self._where = where
        self._max_partitions = max_partitions
        self._max_size = max_size
        self._waiting: list[Arrival] = []
        self._size = 0

    def add(self, arrival: Arrival, size: int = 0) -> Outcome:
        """Add an arrival; the outcome is empty while the group has room."""
        self._waiting.append(arrival)
        self._size += size
        full = len(self._waiting) >= self._max_partitions or self._size >= self._max_size
        return self.flush() if full else Outcome()

    def flush(self) -> Outcome:
        """Complete what waits."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        return complete_group(self._ledger, self._cursor, waiting, where=self._where)
