"""One exported snapshot for all readers of a source: a transaction that stays open and does nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pz.connectors.postgres.connect import Server

if TYPE_CHECKING:
    import psycopg

__all__ = ["SharedSnapshot"]


class SharedSnapshot:
    """Opened on first use, gone with `close`: then nobody can read under it any more."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._name: str | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection that holds the snapshot: what is asked on it is seen as all readers see it."""
        with self._lock:
            if self._connection is None:
                self._open()
            assert self._connection is not None
            return self._connection

    @property
    def name(self) -> str:
        """What other transactions adopt."""
        with self._lock:
            if self._name is None:
                self._open()
            assert self._name is not None
            return self._name

    def close(self) -> None:
        """End the transaction."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection, self._name = None, None

    def _open(self) -> None:
        import psycopg

        connection = self._server.control(patient=True)
        try:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            row = connection.execute("SELECT pg_export_snapshot()").fetchone()
        except BaseException:
            connection.close()
            raise
        self._connection, self._name = connection, str(row[0]) if row else None
