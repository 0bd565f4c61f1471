"""One transaction on one cursor: begun, and committed or rolled back, in one place.

`Transaction` is the proof that a transaction is open; `pz.staging.meta` takes nothing else for writing, so that the
ledger can only change together with the data it accounts for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pz.durable import Step, step
from pz.sqltext import filled

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Transaction", "transaction"]

_ROLLBACK_TRIES = 20


class Transaction:
    """An open transaction. Valid only inside the ``with`` block that gave it."""

    def __init__(self, cursor: DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._open = True

    @property
    def cursor(self) -> DuckDBPyConnection:
        """The cursor that the transaction is open on. Raises RuntimeError once it has ended."""
        if not self._open:
            raise RuntimeError("the transaction has ended")
        return self._cursor

    def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> DuckDBPyConnection:
        """Run a statement in the transaction; ``parameters`` stand for its question marks."""
        return self.cursor.execute(sql if parameters is None else filled(sql, parameters))

    def close(self) -> None:
        """Make the object useless; called when the block ends."""
        self._open = False


@contextmanager
def transaction(cursor: DuckDBPyConnection, name: Step) -> Iterator[Transaction]:
    """Run a block in one transaction, as the durable step ``name``.

    Commits when the block ends, rolls back whatever leaves it (also an interrupt and a failed commit), so that the
    cursor stays usable. Transactions don't nest.
    """
    with step(name):
        cursor.begin()
        current = Transaction(cursor)
        try:
            yield current
            current.close()
            cursor.commit()
        except BaseException:
            current.close()
            _roll_back(cursor)
            raise


def _roll_back(cursor: DuckDBPyConnection) -> None:
    """Roll back for certain: an interrupt that is still being delivered may hit the ROLLBACK itself."""
    import duckdb

    for _ in range(_ROLLBACK_TRIES):
        try:
            cursor.rollback()
            return
        except duckdb.InterruptException:
            continue
        except duckdb.Error:
            return  # nothing to roll back (a failed commit did it), or the database is gone: the first error tells
