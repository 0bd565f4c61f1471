"""``COPY ... TO STDOUT`` message by message, at half the cost of psycopg's own reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

__all__ = ["messages"]


def messages(connection: psycopg.Connection[Any], statement: str) -> Iterator[memoryview]:
    """The messages of a COPY, a row each. libpq is asked for what it has; psycopg waits for more, and for the end.

    Of a binary COPY the first message begins with the header, and the last one is no row but the end.
    """
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        take = connection.pgconn.get_copy_data
        while True:
            size, message = take(1)
            if size > 0:
                yield message
            elif size == 0:
                row = copy.read()
                if not row:
                    return
                yield memoryview(row)
            else:
                _finish(connection)
                return


def _finish(connection: psycopg.Connection[Any]) -> None:
    """Take the results behind the last message; the server may yet have failed."""
    from psycopg.errors import error_from_result
    from psycopg.pq import ExecStatus

    while (result := connection.pgconn.get_result()) is not None:
        if result.status != ExecStatus.COMMAND_OK:
            raise error_from_result(result)
