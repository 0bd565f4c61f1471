"""Connections to the server, all with the same session: UTC, ISO formats, exact floats, no waiting for ever.

Two drivers are used. psycopg carries everything that needs control (catalogue, transactions, COPY into a table,
replication); ADBC carries rows out of a table as Arrow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pz.connectors.localpath import local_path
from pz.connectors.postgres.faults import translated
from pz.frozen import frozen
from pz.interrupter import Interrupter

if TYPE_CHECKING:
    import psycopg
    from adbc_driver_postgresql.dbapi import Connection as AdbcConnection

    from pz.connectors.contract import CancelToken, ConnectionSpec

__all__ = ["AGAIN", "NO_LIMIT", "PINNED", "Server", "connection_faults", "ended_by"]

# The driver warns of what goes wrong while it closes a broken COPY, in the server's words, which may quote a row. Without a
# handler Python prints that to the console.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

PINNED: Mapping[str, str] = {
    "client_encoding": "UTF8",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "xmloption": "content",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "default_transaction_read_only": "off",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "statement_timeout": "0",
}
"""Set on every session, whatever the server, the database or the role has as default: text forms must not vary."""

NO_LIMIT = "SET statement_timeout TO '0'"
"""For what may take as long as it takes, on a connection that began with a look at the catalogue."""

AGAIN = 0.5
"""Seconds between two requests to cancel."""

_LIMITS = ("idle_in_transaction_session_timeout", "idle_session_timeout", "statement_timeout", "lock_timeout")

_TLS_FILES = {"ca_file": "sslrootcert", "client_cert": "sslcert", "client_key": "sslkey"}
"""The options that name files, as libpq calls them."""

_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

CONNECTION_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "required": ["host", "database"],
    "properties": {
        "host": {"type": "string", "minLength": 1, "description": "Host name, address, or the socket's directory."},
        "port": {"type": "integer", "minimum": 1, "maximum": 65535, "description": "Port (default 5432)."},
        "database": {"type": "string", "minLength": 1, "description": "Name of the database."},
        "user": {"type": "string", "description": "Role to log in as."},
        "password": {"type": "string", "description": "Password of the role."},
        "ssl_mode": {
            "enum": list(_SSL_MODES),
            "description": "As libpq's sslmode (default prefer; verify-full with `ca_file`).",
        },
        "ca_file": {
            "type": "string",
            "minLength": 1,
            "description": "PEM file of authorities that the server must be of.",
        },
        "client_cert": {"type": "string", "minLength": 1, "description": "PEM file of a client certificate."},
        "client_key": {
            "type": "string",
            "minLength": 1,
            "description": "PEM file of its key, readable by its owner alone.",
        },
        "connect_timeout_seconds": {
            "type": "integer",
            "minimum": 1,
            "maximum": 3600,
            "description": "Longest wait for a connection (default 15).",
        },
        "command_timeout_seconds": {
            "type": "integer",
            "minimum": 0,
            "maximum": 86400,
            "description": "Longest wait for a lock, and for one look at the catalogue (default 30, 0 for no limit).",
        },
    },
}


def connection_faults(connection: ConnectionSpec) -> Iterator[str]:
    """Everything about TLS that the schema does not see; offline. libpq would read a missing file as none."""
    options = connection.options
    for option in _TLS_FILES:
        if option in options and not local_path(connection.base_dir, str(options[option])).is_file():
            yield f"{option} '{options[option]}' is not a file"
    if ("client_cert" in options) != ("client_key" in options):
        yield "client_cert and client_key go together"
    if "ca_file" in options and options.get("ssl_mode", "verify-full") not in {"verify-full", "verify-ca", "require"}:
        yield f"ca_file is of no use with ssl_mode: {options['ssl_mode']}"


@frozen
class Server:
    """Where to connect, as whom, and how long to wait. Never printed: it holds the password."""

    host: str
    port: int
    database: str
    user: str | None
    password: str | None
    ssl_mode: str | None
    connect_timeout: int
    command_timeout: int
    tls_files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, connection: ConnectionSpec) -> Server:
        """From the options of a connection."""
        options = connection.options
        return cls(
            host=str(options["host"]),
            port=int(options.get("port", 5432)),
            database=str(options["database"]),
            user=options.get("user"),
            password=options.get("password"),
            ssl_mode=options.get("ssl_mode", "verify-full" if "ca_file" in options else None),
            connect_timeout=int(options.get("connect_timeout_seconds", 15)),
            command_timeout=int(options.get("command_timeout_seconds", 30)),
            tls_files={
                name: str(local_path(connection.base_dir, str(options[option])))
                for option, name in _TLS_FILES.items()
                if option in options
            },
        )

    def __repr__(self) -> str:
        return f"Server({self.host}:{self.port}/{self.database})"

    def place_of(self, table: str) -> str:
        """One text for a table, whatever connection leads to it; a host that goes by several names is taken for several."""
        return f"{self.host}:{self.port}/{self.database} {table}"

    def parameters(self) -> dict[str, str | int]:
        """libpq's parameters; keepalives find a peer that vanished without a word."""
        given: dict[str, str | int | None] = {
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
            "user": self.user,
            "password": self.password,
            "sslmode": self.ssl_mode,
            **self.tls_files,
            "connect_timeout": self.connect_timeout,
            "application_name": "pz",
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
        }
        return {name: value for name, value in given.items() if value is not None}

    def control(self, *, patient: bool = False) -> psycopg.Connection[Any]:
        """A psycopg connection, not in autocommit. ``patient``: statements may take any time, only locks are limited."""
        import psycopg

        with translated(self.place):
            # libpq's own parameters, all of them text; psycopg's stub takes them for its keyword arguments.
            connection = psycopg.connect("", **self.parameters(), prepare_threshold=None, autocommit=True)  # type: ignore[arg-type]
            with _closed_on_failure(connection):
                connection.execute(self._pin(statement_limit=not patient))  # one round trip, without BEGIN and COMMIT
                connection.autocommit = False
            return connection

    def replication(self) -> psycopg.Connection[Any]:
        """A psycopg connection that takes replication commands, one at a time, each for itself.

        It waits without limit for open transactions, and holds a snapshot as long as it stands, whatever the role's limits.
        """
        import psycopg

        with translated(self.place):
            # libpq's own parameters, all of them text; psycopg's stub takes them for its keyword arguments.
            connection = psycopg.connect("", **self.parameters(), replication="database", autocommit=True)  # type: ignore[arg-type]
            with _closed_on_failure(connection):
                for name in ("client_encoding", *_LIMITS):
                    connection.execute(f"SET {name} TO '{PINNED.get(name, 0)}'")
            return connection

    def stream(self) -> AdbcConnection:
        """An ADBC connection in its own transaction."""
        from adbc_driver_postgresql import dbapi
        from psycopg.conninfo import make_conninfo

        with translated(self.place):
            parameters: dict[str, Any] = self.parameters()
            connection = dbapi.connect(make_conninfo("", **parameters), autocommit=True)
            with _closed_on_failure(connection):
                with connection.cursor() as cursor:
                    cursor.executescript(self._pin(statement_limit=False))
                connection.adbc_connection.set_autocommit(False)
            return connection

    @property
    def place(self) -> str:
        """What messages call the server."""
        return f"{self.host}:{self.port}/{self.database}"

    def startup_options(self) -> str:
        """The settings of a patient session for libpq's ``options``: for who connects without asking us."""
        settings = self._settings(statement_limit=False).items()
        return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings)

    def _pin(self, *, statement_limit: bool) -> str:
        settings = self._settings(statement_limit=statement_limit)
        return "; ".join(f"SET {name} TO '{value}'" for name, value in settings.items())

    def _settings(self, *, statement_limit: bool) -> dict[str, str]:
        limit = f"{self.command_timeout}s" if self.command_timeout else "0"
        settings = {**PINNED, "lock_timeout": limit}
        if statement_limit:
            settings["statement_timeout"] = limit
        return settings


@contextmanager
def ended_by(cancel: CancelToken, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Let ``cancel`` end what waits for the server in the block, whichever statement that is. Raises `Cancelled` then."""
    cancel.raise_if_set()
    interrupter = Interrupter(connection.cancel, AGAIN)
    forget = cancel.on_cancel(interrupter.start)
    try:
        yield
    except Exception:  # a cancelled statement fails in the server's words; then the cancellation is the reason
        cancel.raise_if_set()
        raise
    finally:
        forget()
        interrupter.end()


@contextmanager
def _closed_on_failure(connection: psycopg.Connection[Any] | AdbcConnection) -> Iterator[None]:
    try:
        yield
    except BaseException:  # an interrupt, too, must not leave a session behind that nobody knows
        connection.close()
        raise
