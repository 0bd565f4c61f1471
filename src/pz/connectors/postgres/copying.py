"""An open ``COPY ... FROM STDIN``, whose pieces go out on a thread of its own while the next ones are made.

The server takes as long for a row as it takes to fetch and encode one. Done in turns, each side would wait for the other.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pz.sqltext import quote

if TYPE_CHECKING:
    import psycopg

    from pz.connectors.postgres.binary import BinaryEncoder

__all__ = ["DEPTH", "Copy", "Piece"]

DEPTH = 2
"""Pieces that wait at most. They are held beside DuckDB's memory limit."""

Piece = bytes | bytearray | memoryview


class Copy:
    """Nothing else may run on the connection until `end` or `cancel`.

    `send` returns before its piece is out: what goes wrong with it is raised by a later `send`, or by `end`. The piece must not
    change any more. `write` returns when it is out.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        into: str,
        names: Sequence[str],
        form: str = "csv",
        encoder: BinaryEncoder | None = None,
    ) -> None:
        self.form = form
        self._encoder = encoder
        self._sender: _Sender | None = None
        listed = ", ".join(quote(name) for name in names)
        self._cursor = connection.cursor()
        self._context = self._cursor.copy(f"COPY {into} ({listed}) FROM STDIN (FORMAT {form})")
        self._copy = self._context.__enter__()
        if encoder is not None:
            self._copy.write(encoder.start())

    def send(self, piece: Piece) -> None:
        """Hand over a piece; waits while too many of them wait."""
        if self._sender is None:
            self._sender = _Sender(self._copy.write)
        self._sender.put(piece)

    def write(self, piece: Piece) -> None:
        """Send a piece, behind all others."""
        self._drain()
        self._copy.write(piece)

    def end(self) -> None:
        """All rows are there, or the first failure is raised."""
        self._drain()
        if self._encoder is not None:
            self._copy.write(self._encoder.finish())
        self._context.__exit__(None, None, None)

    def cancel(self) -> None:
        """End the COPY with an error, so that the transaction cannot commit any more. Pieces that wait are dropped."""
        if self._sender is not None:
            self._sender.end(discard=True)
            self._sender = None
        stop = _Cancelled()
        try:
            self._context.__exit__(_Cancelled, stop, None)
        except _Cancelled:
            return

    def _drain(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.end()
            sender.raise_failure()


class _Sender:
    """Writes pieces in their order. After a failure it takes them and drops them, so that nobody waits for ever to put one."""

    def __init__(self, write: Callable[[Piece], None]) -> None:
        self._write = write
        self._waiting: queue.Queue[Piece | None] = queue.Queue(DEPTH)
        self._discarding = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pz-postgres-copy", daemon=True)
        self._thread.start()

    def put(self, piece: Piece) -> None:
        self.raise_failure()
        self._waiting.put(piece)

    def end(self, *, discard: bool = False) -> None:
        """Return when nothing is written any more. ``discard``: what waits is not sent."""
        self._discarding = discard
        self._waiting.put(None)
        self._thread.join()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (piece := self._waiting.get()) is not None:
            if self._discarding or self._failure is not None:
                continue
            try:
                self._write(piece)
            except BaseException as failure:  # noqa: BLE001 - raised again, as it is, where the pieces come from
                self._failure = failure


class _Cancelled(Exception):
    pass
