"""A private PostgreSQL server for tests: its own cluster on a free port, thrown away afterwards.

As a fixture there is one server per test process, with one database that every test finds as new. By hand, `make postgres`
runs this file, which keeps a server in the foreground until it is interrupted. `initdb` refuses to run as root, so root
hands the cluster to the account `postgres`.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

SETTINGS = """
listen_addresses = '127.0.0.1'
wal_level = logical
max_wal_senders = 20
max_replication_slots = 20
max_connections = 100
shared_buffers = 64MB
wal_sender_timeout = 0
autovacuum = off
"""
FAST = "fsync = off\nfull_page_writes = off\n"
KICK = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
LEFTOVERS = """
SELECT format('DROP PUBLICATION %I', pubname) FROM pg_publication
UNION ALL
SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)'
"""
READY = re.compile(rb"database system is ready to accept (read-only )?connections")
SUPERUSER = "pz"
PASSWORD = "p/@ss%w:o?r#d"
"""Characters that break connection strings which are glued together."""


def binaries() -> Path | None:
    """The directory of the newest installed server; None when there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def _die_with_parent() -> None:
    """A killed test process takes its server along."""
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class PostgresServer:
    """A running cluster. ``folder`` holds data, socket and log, and is removed by `stop`."""

    folder: Path
    port: int
    user: str | None
    bin: Path
    durable: bool = False
    process: subprocess.Popen[bytes] | None = None
    _databases: int = 0
    _drain: threading.Thread | None = field(default=None, repr=False)

    @classmethod
    def create(cls, *, port: int | None = None, durable: bool = False) -> PostgresServer:
        """Make a cluster and start it. ``durable`` keeps fsync on."""
        programs = binaries()
        if programs is None:
            raise RuntimeError("no PostgreSQL server is installed (Debian package `postgresql`)")
        folder = Path(tempfile.mkdtemp(prefix="pz-postgres-"))
        user = _unprivileged() if os.getuid() == 0 else None
        if user is not None:
            shutil.chown(folder, user)
        server = cls(folder, port or _free_port(), user, programs, durable)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        if user is not None:
            shutil.chown(secret, user)
        server._initdb(secret)
        server.start()
        return server

    def _initdb(self, secret: Path) -> None:
        command = [
            *(str(self.bin / "initdb"), "-D", str(self.data), "-U", SUPERUSER, "--pwfile", str(secret)),
            *("-A", "scram-sha-256", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"),
        ]
        subprocess.run(command, user=self.user, check=True, stdout=subprocess.DEVNULL, cwd="/")
        settings = SETTINGS + ("" if self.durable else FAST)
        with (self.data / "postgresql.conf").open("a") as out:
            out.write(f"{settings}port = {self.port}\nunix_socket_directories = '{self.folder}'\n")

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        prepare = _die_with_parent if sys.platform == "linux" else None
        self.process = subprocess.Popen(
            [str(self.bin / "postgres"), "-D", str(self.data)],
            user=self.user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=prepare,
        )
        stream = self.process.stderr
        assert stream is not None
        log = (self.folder / "log").open("ab", buffering=0)
        for line in stream:
            log.write(line)
            if READY.search(line):
                break
        else:
            log.close()
            raise RuntimeError(f"the server did not start: {(self.folder / 'log').read_text()[-2000:]}")
        self._drain = threading.Thread(target=_copy_log, args=(stream, log), daemon=True)
        self._drain.start()

    def shutdown(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT fast, SIGQUIT like a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(120)
            self.process = None
        if self._drain is not None:
            self._drain.join(10)
            self._drain = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop and start again, on the same port."""
        self.shutdown(how)
        self.start()

    def stop(self) -> None:
        """Stop at once and remove everything."""
        self.shutdown(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self, **settings: str) -> Database:
        """A fresh database, with ``settings`` as its defaults."""
        self._databases += 1
        name = f"db_{os.getpid()}_{self._databases}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
            for key, value in settings.items():
                connection.execute(f"ALTER DATABASE {name} SET {key} TO '{value}'")
        return Database(self, name)

    def standby(self) -> PostgresServer:
        """A server that follows this one by streaming replication, and takes no writes."""
        folder = Path(tempfile.mkdtemp(prefix="pz-postgres-"))
        if self.user is not None:
            shutil.chown(folder, self.user)
        made = PostgresServer(folder, _free_port(), self.user, self.bin)
        command = [
            *(str(self.bin / "pg_basebackup"), "-D", str(made.data), "-h", "127.0.0.1", "-p", str(self.port)),
            *("-U", SUPERUSER, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"),
        ]
        subprocess.run(command, user=self.user, check=True, cwd="/", env={**os.environ, "PGPASSWORD": PASSWORD})
        with (made.data / "postgresql.conf").open("a") as out:
            out.write(f"port = {made.port}\nunix_socket_directories = '{folder}'\n")
        made.start()
        return made

    def following(self, database: Database) -> Database:
        """The database on this standby, once it has everything that was committed until now."""
        with database.connect() as connection:
            (position,) = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone() or ("0/0",)
        followed = Database(self, database.name)
        with self.connect() as connection:
            while connection.execute("SELECT pg_last_wal_replay_lsn() >= %s", [position]).fetchone() != (True,):
                time.sleep(0.05)  # the standby applies the log in its own time
        return followed

    def connect(self, dbname: str = "postgres") -> psycopg.Connection[Any]:
        """A superuser's connection that commits every statement."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=SUPERUSER, password=PASSWORD, dbname=dbname, autocommit=True
        )

    def empty(self, name: str) -> None:
        """Make a database like new: no sessions, slots, publications, settings, schemas. Much cheaper than another one."""
        with self.connect(name) as connection:
            connection.execute(KICK)
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
            for (statement,) in connection.execute(LEFTOVERS).fetchall():
                connection.execute(statement)
            connection.execute(f"ALTER DATABASE {name} RESET ALL")
            connection.execute("CREATE SCHEMA public")


def _copy_log(stream: IO[bytes], log: IO[bytes]) -> None:
    with stream, log:
        shutil.copyfileobj(stream, log, 1)


def _unprivileged() -> str:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return "nobody"


@dataclass(frozen=True)
class Database:
    """One test's database."""

    server: PostgresServer
    name: str

    def connect(self) -> psycopg.Connection[Any]:
        """A connection that commits every statement."""
        return self.server.connect(self.name)

    def run(self, *statements: str) -> None:
        """Execute statements, each in its own transaction."""
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self.connect() as connection:
            return list(connection.execute(query).fetchall())

    @property
    def options(self) -> dict[str, Any]:
        """The connection options, as a project spells them."""
        return {
            "host": "127.0.0.1",
            "port": self.server.port,
            "database": self.name,
            "user": SUPERUSER,
            "password": PASSWORD,
        }


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server per test process."""
    if binaries() is None:
        pytest.skip("no PostgreSQL server is installed")
    server = PostgresServer.create()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def _database(postgres_server: PostgresServer) -> Database:
    return postgres_server.database()


@pytest.fixture
def database(_database: Database) -> Iterator[Database]:
    """A database that is like new."""
    yield _database
    _database.server.empty(_database.name)


def main() -> None:
    """Run a server in the foreground until it is interrupted."""
    server = PostgresServer.create(port=int(os.environ.get("PORT", "0")) or None, durable=True)
    assert server.process is not None
    print(f"host=127.0.0.1 port={server.port} user={SUPERUSER} password='{PASSWORD}' dbname=postgres", flush=True)
    print(f"data, socket and log lie in {server.folder}; stop with Ctrl-C", flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        server.stop()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
