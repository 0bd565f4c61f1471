"""What DuckDB says of a read that its extension made: it hands the server's words on, without the SQLSTATE.

So here, and only here, words decide. A server that speaks another language still has its lost connections told by the
client's library, and a wait is then permanent where it would have been transient. No word of a refusal is published that
could quote a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pz.connectors.postgres.reading import unfit
from pz.connectors.postgres.scanner import MARK
from pz.errors import ConnectorError, PermanentError, TransientError

if TYPE_CHECKING:
    from pz.connectors.postgres.relation import Relation

__all__ = ["explained"]

_LOST = re.compile(
    "server closed the connection|no connection to the server|connection (?:not open|refused|timed out|reset)"
    "|could not (?:connect|receive data|send data|translate host)|Unable to connect to Postgres|terminating connection"
    "|SSL connection has been closed|SSL SYSCALL|lost synchronization",
    re.IGNORECASE,
)
_BUSY = re.compile(
    "(?:canceling statement due to|deadlock detected|could not serialize|too many (?:clients|connections)"
    "|remaining connection slots|the database system is)[^\n]*"
)
_REFUSED = re.compile('permission denied for [^\n"]*|(?:relation|column|schema|function) "[^"\n]*" does not exist')
_OURS = re.compile(
    "Failed to (?:execute query|prepare query|fetch header for COPY|copy)|Unable to (?:read binary COPY|query Postgres)"
)


def explained(error: Exception, place: str, relations: Iterable[Relation]) -> ConnectorError | None:
    """The contract's error; None for what the extension did not say."""
    text = str(error)
    relation = next(reversed(list(relations)), None)
    subject = relation.subject if relation is not None else place
    found = re.search(rf"(?<!'){MARK}(\d+)(?!')", text)  # in apostrophes it is our statement, which other errors quote
    if found and relation is not None:
        return unfit([relation.columns[int(found[1])]], subject)
    if _LOST.search(text):
        return TransientError(f"{subject}: the connection to {place} was lost")
    if not _OURS.search(text):
        return None
    if (busy := _BUSY.search(text)) is not None:
        return TransientError(f"{subject}: {busy[0].strip()}")
    refused = _REFUSED.search(text)
    said = refused[0].strip() if refused else "the server ended the read with an error"
    return PermanentError(f"{subject}: {said}", hint="`engine.force_universal: true` reads in batches, and tells more")
