"""What became of a transaction whose answer was lost, asked of the server that ran it.

A transaction is known by its number only on its own cluster and timeline: after a restore or a failover the same number may
stand for another one. Every write of ours holds the lock of its output until it ends, so whoever gets that lock asks about a
transaction that is over. A standby may not know yet that it committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pz.connectors.contract import Settlement
from pz.connectors.postgres import marks
from pz.connectors.postgres.catalog import Name, in_recovery
from pz.connectors.postgres.connect import Server
from pz.errors import ConnectorError
from pz.frozen import frozen

if TYPE_CHECKING:
    import psycopg

__all__ = ["Transaction", "fate_of"]

PREFIX = "pg-xact"

IDENTITY = """
SELECT pg_current_xact_id()::text::int8, (SELECT system_identifier FROM pg_control_system()),
       (SELECT timeline_id FROM pg_control_checkpoint())
"""

FATE = """
SELECT pg_xact_status(%s::text::xid8), (SELECT system_identifier FROM pg_control_system()),
       (SELECT timeline_id FROM pg_control_checkpoint())
"""

_SETTLED = {"committed": Settlement.COMMITTED, "aborted": Settlement.NOT_COMMITTED}


@frozen
class Transaction:
    """What identifies a transaction beyond its connection."""

    xid: int
    system: int
    timeline: int

    @classmethod
    def of(cls, connection: psycopg.Connection[Any]) -> Transaction:
        """The one that is open on the connection; it gets a number if it has none yet."""
        row = connection.execute(IDENTITY).fetchone()
        assert row is not None
        return cls(*row)

    @property
    def mark(self) -> str:
        """As text, to be stored before the commit."""
        return f"{PREFIX} {self.system} {self.timeline} {self.xid}"

    @classmethod
    def of_mark(cls, mark: str) -> Transaction | None:
        """The inverse; None for another text."""
        prefix, _, rest = mark.partition(" ")
        numbers = rest.split(" ")
        if prefix != PREFIX or len(numbers) != 3:
            return None
        system, timeline, xid = map(int, numbers)
        return cls(xid, system, timeline)


def fate_of(server: Server, output: Name, transaction: Transaction) -> Settlement:
    """Ask, once no write of ours on the output is open any more; unknown when that or the answer does not come."""
    import psycopg

    try:
        with server.control() as connection:
            marks.lock_output(connection, output)
            if in_recovery(connection):
                return Settlement.UNKNOWN
            row = connection.execute(FATE, [transaction.xid]).fetchone()
    except (psycopg.Error, ConnectorError):
        return Settlement.UNKNOWN
    if row is None or (row[1], row[2]) != (transaction.system, transaction.timeline):
        return Settlement.UNKNOWN
    return _SETTLED.get(str(row[0]), Settlement.UNKNOWN)
