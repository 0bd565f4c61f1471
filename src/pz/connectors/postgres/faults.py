"""What the drivers raise, as the contract's errors: decided by SQLSTATE, never by the words of a message.

A server's message may quote a row value (``invalid input syntax for type integer: "..."``), so for the classes that do so
only the SQLSTATE and the names of the objects are published.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pz.errors import Code, ConnectorError, PermanentError, TransientError

__all__ = ["lost_connection", "lost_slot", "sqlstate_of", "translate", "translated"]

_TRANSIENT_CLASSES = ("08", "53", "55", "57", "58", "40")
_PERMANENT_STATES = frozenset({"53400", "55000", "58P01", "58P02"})
_QUOTES_VALUES = ("22", "23", "2B", "44", "P0")

_NAMES = {
    "22001": "a text is longer than its column",
    "22003": "a number is out of the range of its column",
    "22007": "a date or time cannot be read",
    "22008": "a date or time is out of range",
    "22021": "a text holds a NUL character or is not valid in the server's encoding",
    "22P02": "a value cannot be read as the type of its column",
    "22P05": "a character does not exist in the server's encoding",
    "23502": "NULL in a column that is declared NOT NULL",
    "23503": "a foreign key would be violated",
    "23505": "a unique key would be violated",
    "23514": "a check constraint would be violated",
    "28P01": "the password was refused",
    "28000": "the login was refused",
    "3D000": "the database does not exist",
    "42501": "permission denied",
    "55P03": "a lock was not granted in time",
    "57014": "the statement was cancelled or took too long",
}


BUSY = "wait until connections are free, lower max_concurrency, or raise the limit of the server or the role"

# Words of refusals that come before the server says a SQLSTATE: the first will be the same next time.
_REFUSED = {
    "certificate verify failed": "set ca_file to the authority of the server's certificate",
    "does not match host name": "connect by a name of the certificate, or set ssl_mode: verify-ca",
    "root certificate": "set ca_file to the authority of the server's certificate",
    "client certificate": "set client_cert and client_key",
    "certificate file": "correct client_cert and client_key",
    "private key file": "correct client_key; only its owner may read it",
    "does not support SSL": "set ssl_mode to what the server offers",
    "no encryption": "set ssl_mode: require, or let the server's pg_hba.conf accept this login",
    "pg_hba.conf": "let the server's pg_hba.conf accept this login",
}
_CONNECTING = {
    "SSL": "set ssl_mode to what the server offers",
    "too many c": BUSY,
    "connection slots are reserved": BUSY,
}


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Raise what the drivers raise as Transient- or PermanentError; ``subject`` starts the message."""
    import psycopg

    try:
        yield
    except psycopg.Error as failure:
        raise translate(failure, subject) from failure
    except Exception as failure:  # of the other driver, which is imported by the reads that need it
        if not _of_adbc(failure):
            raise
        raise translate(failure, subject) from failure


def _of_adbc(failure: Exception) -> bool:
    manager = sys.modules.get("adbc_driver_manager")
    return manager is not None and isinstance(failure, manager.Error)


_SLOT_STATES = {
    "42704": "the replication slot or the publication is gone",
    "55000": "the replication slot was invalidated, or cannot be read any more",
    "58P01": "the server has removed log that the replication slot needed",
}


@contextmanager
def lost_slot(subject: str, hint: str) -> Iterator[None]:
    """Raise PermanentError PZ0744 for what says that the rest of the log will never come."""
    import psycopg

    try:
        yield
    except psycopg.Error as failure:
        why = _SLOT_STATES.get(sqlstate_of(failure) or "")
        if why is None:
            raise
        raise PermanentError(f"{subject}: changes are lost: {why}", hint=hint, code=Code.PZ0744) from failure


def sqlstate_of(failure: BaseException) -> str | None:
    """The five letters of the server, None when the server said nothing (lost or refused connections)."""
    state = getattr(failure, "sqlstate", None)
    return state if state and state != "\0\0\0\0\0" else None


def lost_connection(failure: BaseException) -> bool:
    """Whether the connection is gone, so that the fate of what was asked last is not known."""
    import psycopg

    state = sqlstate_of(failure)
    if state is None:
        return isinstance(failure, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError)
    return state[:2] == "08" or state in {"57P01", "57P02", "57P05"}


def translate(failure: BaseException, subject: str) -> ConnectorError:
    """The contract's error for a driver's error."""
    state = sqlstate_of(failure)
    message = f"{subject}: {_words(failure, state)}"
    if state is None:
        return _without_state(failure, message)
    if state[:2] in _TRANSIENT_CLASSES and state not in _PERMANENT_STATES:
        return TransientError(message, hint=_hint(state))
    return PermanentError(message, hint=_hint(state))


def _without_state(failure: BaseException, message: str) -> ConnectorError:
    """Refused logins come without SQLSTATE at connect time; everything else without one is the network's."""
    text = str(failure)
    if "password authentication failed" in text:
        return PermanentError(f"{message.partition(': ')[0]}: {_NAMES['28P01']}", hint=_hint("28P01"))
    refused = next((hint for words, hint in _REFUSED.items() if words in text), None)
    if refused is not None:
        return PermanentError(message, hint=refused)
    if re.search(r'(database|role) "[^"]*" does not exist', text):
        return PermanentError(message, hint="check database and user of the connection")
    if re.search(r"ReadRecord|overflow|schema", text):
        return PermanentError(
            message, hint="cast the column to text in `query:` or declare it as varchar in `columns:`"
        )
    return TransientError(message, hint=next((hint for words, hint in _CONNECTING.items() if words in text), None))


def _words(failure: BaseException, state: str | None) -> str:
    diagnosis = getattr(failure, "diag", None)
    if state is None:
        return _first_line(str(failure))
    known = _NAMES.get(state)
    if state.startswith(_QUOTES_VALUES):
        return f"{known or 'the server refused a value'} (SQLSTATE {state}{_objects(diagnosis)})"
    said = getattr(diagnosis, "message_primary", None) or _first_line(str(failure))
    return f"{said} (SQLSTATE {state})"


def _objects(diagnosis: object) -> str:
    """Names of what was violated, and the column that COPY was reading; all of them names, no values."""
    named = [
        f"{what} {name}"
        for what, name in (
            ("constraint", getattr(diagnosis, "constraint_name", None)),
            ("column", getattr(diagnosis, "column_name", None) or _copied_column(diagnosis)),
            ("type", getattr(diagnosis, "datatype_name", None)),
        )
        if name
    ]
    return "".join(f"; {part}" for part in named)


def _copied_column(diagnosis: object) -> str | None:
    """``COPY target, line 7, column price: "..."``: the value after the colon is left out."""
    context = getattr(diagnosis, "context", None) or ""
    found = re.search(r", line \d+, column ([^:\n]+)", context)
    return found.group(1) if found else None


# What the drivers put before the words of the server.
_WRAPPING = re.compile(
    r"^(connection failed: |[A-Z_]+: (?=\[libpq\]|Failed to )|IO: |INVALID_STATE: |\[libpq\] |Failed to \w+ query: "
    r"|could not begin COPY: |ERROR:\s+)+"
)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _WRAPPING.sub("", lines[0]) if lines else "no message"


def _hint(state: str) -> str | None:
    if state[:2] == "28":
        return "check user and password of the connection"
    if state == "42501":
        return "grant the role of the connection what it needs (see docs/postgres.md, privileges)"
    if state in {"57014", "55P03"}:
        return "raise command_timeout_seconds, or find out what the server is busy with"
    if state == "55006":
        return "wait for the session that uses it, or end that session: pg_terminate_backend"
    if state == "53300":
        return BUSY
    if state in {"22021", "22P05"}:
        return "clean the text in the pipeline, for example replace(column, chr(0), '')"
    return None
