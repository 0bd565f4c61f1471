"""Servers as they are found: with TLS, as a standby, with few connections left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trustme

from postgres_server import Database, PostgresServer, binaries
from postgres_support import (
    APPEND,
    MERGE,
    Relation,
    dataset,
    marked,
    output,
    read,
    rows_of,
    scan,
    sink_of,
    source_of,
    write,
)
from pz.connectors.contract import ConnectionSpec, ReadHints, Settlement
from pz.connectors.postgres.connect import Server
from pz.connectors.postgres.connector import Postgres
from pz.connectors.postgres.scanner import scannable
from pz.errors import Code, ConnectorError, PermanentError, TransientError

pytestmark = pytest.mark.skipif(binaries() is None, reason="no PostgreSQL server is installed")


@dataclass(frozen=True)
class Secured:
    """A database behind TLS; ``files`` holds the authority, another one, and a client's certificate with its key."""

    database: Database
    files: Path

    def option(self, name: str, file: str) -> dict[str, str]:
        return {name: str(self.files / file)}

    @property
    def client(self) -> dict[str, str]:
        return {**self.option("client_cert", "client.crt"), **self.option("client_key", "client.key")}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    files = tmp_path_factory.mktemp("tls")
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(files / "ca.pem")
    other.cert_pem.write_to_path(files / "other.pem")
    client = authority.issue_cert("reader@example.com")
    client.cert_chain_pems[0].write_to_path(files / "client.crt")
    client.private_key_pem.write_to_path(files / "client.key")
    (files / "client.key").chmod(0o600)
    server = PostgresServer.create()
    try:
        _turn_tls_on(server, authority.issue_cert("localhost"), files / "ca.pem")
        database = server.database()
        database.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        yield Secured(database, files)
    finally:
        server.stop()


def _turn_tls_on(server: PostgresServer, certificate: trustme.LeafCert, authority: Path) -> None:
    """The role ``certified`` also needs a client's certificate."""
    certificate.cert_chain_pems[0].write_to_path(server.data / "server.crt")
    certificate.private_key_pem.write_to_path(server.data / "server.key")
    shutil.copy(authority, server.data / "ca.crt")
    for name in ("server.crt", "server.key", "ca.crt"):
        (server.data / name).chmod(0o600)
        if server.user is not None:
            shutil.chown(server.data / name, server.user)
    access = server.data / "pg_hba.conf"
    rules = "hostssl all certified all scram-sha-256 clientcert=verify-ca\nhostnossl all all all reject\n"
    access.write_text(rules + access.read_text())
    with (server.data / "postgresql.conf").open("a") as out:
        out.write("ssl = on\nssl_ca_file = 'ca.crt'\n")
    server.restart()


def _spec(secured: Secured, **options: Any) -> ConnectionSpec:
    return ConnectionSpec("pg", {**secured.database.options, **options}, Path("/nonexistent"))


def test_every_driver_checks_the_server_against_the_authority(secured: Secured) -> None:
    """psycopg, ADBC, DuckDB's scanner and COPY; ``ca_file`` alone asks for everything to be checked."""
    trusting = {"host": "localhost", **secured.option("ca_file", "ca.pem")}
    source = source_of(secured.database, **trusting)
    assert read(source, dataset()).num_rows == 2
    if scannable() is not None:
        scanned = scan(source, dataset())
        assert scanned is not None
        assert scanned.num_rows == 2
    source.close()
    write(sink_of(secured.database, **trusting), output("copied", APPEND), Relation("SELECT 7::BIGINT AS id"))
    assert rows_of(secured.database, "copied") == [(7,)]
    with pytest.raises(PermanentError, match="certificate verify failed"):
        Server.of(_spec(secured, host="localhost", **secured.option("ca_file", "other.pem"))).stream()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"host": "localhost", "ca_file": "other.pem"}, "certificate verify failed"),
        ({"host": "127.0.0.1", "ca_file": "ca.pem"}, "does not match host name"),
        ({"host": "localhost", "ssl_mode": "disable"}, "no encryption"),
    ],
)
def test_a_server_that_is_not_what_was_asked_for_is_refused(secured: Secured, given: dict[str, str], said: str) -> None:
    options = {**given, **(secured.option("ca_file", given["ca_file"]) if "ca_file" in given else {})}
    report = Postgres().check_connection(_spec(secured, **options))
    assert (report.ok, said in str(report.message)) == (False, True), report.message
    with pytest.raises(PermanentError, match=said) as refused:
        source_of(secured.database, **options).probe(dataset())
    assert refused.value.hint


def test_an_authority_may_be_trusted_whatever_the_name_of_the_server(secured: Secured) -> None:
    lenient = {"host": "127.0.0.1", "ssl_mode": "verify-ca", **secured.option("ca_file", "ca.pem")}
    assert Postgres().check_connection(_spec(secured, **lenient)).ok


def test_a_client_certificate_is_shown_where_the_server_wants_one(secured: Secured) -> None:
    secured.database.run("CREATE ROLE certified LOGIN PASSWORD 'c'", "GRANT SELECT ON t TO certified")
    role = {"user": "certified", "password": "c", "ssl_mode": "require"}
    assert read(source_of(secured.database, **role, **secured.client), dataset()).num_rows == 2
    with pytest.raises(PermanentError, match="client certificate"):
        source_of(secured.database, **role).probe(dataset())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ca_file": "nowhere.pem"}, "ca_file '/tls/nowhere.pem' is not a file"),
        ({"client_cert": "client.crt"}, "client_cert and client_key go together"),
        ({"ca_file": "ca.pem", "ssl_mode": "prefer"}, "ca_file is of no use with ssl_mode: prefer"),
    ],
)
def test_files_that_would_not_be_used_are_refused_offline(secured: Secured, given: dict[str, str], said: str) -> None:
    """libpq takes a missing file for none at all, and would go on without a check."""
    options = {name: str(secured.files / value) if name != "ssl_mode" else value for name, value in given.items()}
    faults = Postgres().validate(_spec(secured, **options))
    assert [fault.replace(str(secured.files), "/tls") for fault in faults] == [said]


@pytest.fixture(scope="module")
def standby(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    made = postgres_server.standby()
    yield made
    made.stop()


def test_a_standby_is_read_by_partitions_under_one_snapshot(database: Database, standby: PostgresServer) -> None:
    database.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text)", "INSERT INTO t SELECT n, n FROM generate_series(1, 1000) n"
    )
    copy = standby.following(database)
    for options in ({}, {"partition_column": "id", "partitions": 4}):
        source = source_of(copy)
        assert read(source, dataset(options=options), ReadHints()).num_rows == 1000
        source.close()


def test_a_standby_is_refused_as_a_target_before_anything_moves(database: Database, standby: PostgresServer) -> None:
    database.run("CREATE TABLE t (id bigint PRIMARY KEY)")
    copy = standby.following(database)
    for out in (output("t", MERGE, keys=("id",)), output("new")):
        with pytest.raises(PermanentError, match="standby") as refused:
            sink_of(copy).probe_output(out)
        assert (refused.value.code, refused.value.hint) == (Code.PZ0741, "connect to the primary")


def test_a_standby_that_lags_behind_does_not_say_that_nothing_was_written(
    database: Database, standby: PostgresServer
) -> None:
    database.run("CREATE TABLE t (id bigint)")
    out, off = marked(output("t")), output("t", options={"ledger": False})
    write(sink_of(database), marked(output("t"), run="r0", content="f0"), Relation("SELECT 0::BIGINT AS id"))
    copy = standby.following(database)
    with standby.connect() as connection:
        connection.execute("SELECT pg_wal_replay_pause()")
    try:
        write(sink_of(database), out, Relation("SELECT 1::BIGINT AS id"))
        session = sink_of(database).begin_write(off, Relation("SELECT 2::BIGINT AS id").table.schema)
        mark = session.prepare()  # type: ignore[attr-defined]
        session.commit()
        session.close()
        assert sink_of(database).settle(out, "r1", 1) is Settlement.COMMITTED
        assert sink_of(copy).settle(out, "r1", 1) is Settlement.UNKNOWN
        assert sink_of(copy).settle(marked(output("t"), run="r0", content="f0"), "r0", 1) is Settlement.COMMITTED
        assert sink_of(database).recall(off, mark) is Settlement.COMMITTED
        assert sink_of(copy).recall(off, mark) is Settlement.UNKNOWN
    finally:
        with standby.connect() as connection:
            connection.execute("SELECT pg_wal_replay_resume()")


def test_a_table_that_the_role_may_not_create_is_refused_before_anything_moves(database: Database) -> None:
    database.run(
        "CREATE ROLE guest LOGIN PASSWORD 'g'", "CREATE SCHEMA closed", "GRANT USAGE ON SCHEMA closed TO guest"
    )
    try:
        with pytest.raises(PermanentError, match="may not create it") as refused:
            sink_of(database, user="guest", password="g").probe_output(output("closed.new"))
        assert "GRANT CREATE" in str(refused.value.hint)
        database.run("GRANT CREATE ON SCHEMA closed TO guest")
        assert not sink_of(database, user="guest", password="g").probe_output(output("closed.new")).exists
    finally:
        database.run("DROP OWNED BY guest", "DROP ROLE guest")


def test_a_server_by_hand_says_where_it_is_before_it_ends() -> None:
    program = Path(__file__).with_name("postgres_server.py")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environ) as running:
        assert running.stdout is not None
        where = running.stdout.readline()
        folder = Path(running.stdout.readline().split(" lie in ")[1].partition(";")[0])
        with psycopg.connect(where) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        running.send_signal(signal.SIGINT)
        assert running.wait() == 0
    assert not folder.exists()


def test_a_role_without_a_free_connection_is_told_so_and_may_be_tried_again(database: Database) -> None:
    database.run("CREATE TABLE t (id bigint PRIMARY KEY)", "CREATE ROLE few LOGIN PASSWORD 'f' CONNECTION LIMIT 1")
    database.run("GRANT SELECT ON t TO few")
    few = {"user": "few", "password": "f"}
    try:
        with source_of(database, **few)._server.control():
            report = Postgres().check_connection(
                ConnectionSpec("pg", {**database.options, **few}, Path("/nonexistent"))
            )
            assert "too many connections" in str(report.message)
            with pytest.raises(ConnectorError) as refused:
                source_of(database, **few).probe(dataset())
        assert isinstance(refused.value, TransientError)
        assert "max_concurrency" in str(refused.value.hint)
    finally:
        database.run("DROP OWNED BY few", "DROP ROLE few")
