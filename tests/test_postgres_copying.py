"""Rows go out on a thread of their own: in their order, none behind a failure or after an abort, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from postgres_server import Database
from postgres_support import REPLACE, Relation, output, rows_of, sink_of
from pz.connectors.postgres.copying import DEPTH, Piece, _Sender
from pz.connectors.postgres.session import PostgresSession
from pz.errors import PermanentError, TransientError

MANY = Relation("SELECT range::BIGINT AS id, repeat('x', 200) AS v FROM range(40000)")
OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    assert [thread for thread in threading.enumerate() if thread.name == "pz-postgres-copy"] == []


def session_of(database: Database, *statements: str) -> PostgresSession:
    database.run("CREATE TABLE t (id bigint, v text)", *statements)
    out = output("t", REPLACE, columns=MANY.columns)
    session = sink_of(database).begin_write(out, MANY.table.schema)
    assert isinstance(session, PostgresSession)
    return session


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_rows_arrive_in_their_order_and_all_of_them(database: Database, binary: bool) -> None:
    session = session_of(database)
    if not binary:
        session._binary = None
    for batch in MANY.batches():
        for start in range(0, batch.num_rows, 700):
            session.write_batch(batch.slice(start, 700))
    assert session.commit().rows == 40_000
    session.close()
    turned = (
        "SELECT count(*) FROM (SELECT id, lag(id) OVER (ORDER BY ctid) AS before FROM t) AS x WHERE id <> before + 1"
    )
    assert database.rows(turned) == [(0,)]
    assert database.rows("SELECT count(*), sum(id), min(length(v)) FROM t") == [(40_000, 40_000 * 39_999 // 2, 200)]


def test_a_connection_lost_in_the_middle_ends_the_write_and_leaves_the_old_rows(database: Database) -> None:
    session = session_of(database, "INSERT INTO t VALUES (-1, 'old')")
    [batch, *_] = MANY.batches()
    session.write_batch(batch)
    database.run(OTHERS)

    def write_on() -> None:
        for _ in range(50):  # far more than can wait
            session.write_batch(batch)

    with pytest.raises(TransientError):
        write_on()
    session.abort()
    session.close()
    assert rows_of(database, "t") == [(-1, "old")]


def test_a_row_that_the_server_refuses_is_told_before_the_commit(database: Database) -> None:
    session = session_of(
        database, "INSERT INTO t VALUES (-1, 'old')", "ALTER TABLE t ADD CHECK (id < 39999)", "TRUNCATE t"
    )
    for batch in MANY.batches():
        session.write_batch(batch)
    with pytest.raises(PermanentError):
        session.commit()
    session.close()
    assert rows_of(database, "t") == []


def test_an_abort_while_rows_wait_leaves_nothing(database: Database) -> None:
    session = session_of(database, "INSERT INTO t VALUES (-1, 'old')")
    for _ in range(5):
        for batch in MANY.batches():
            session.write_batch(batch)
    session.abort()
    session.close()
    assert rows_of(database, "t") == [(-1, "old")]


def test_what_waits_is_dropped_when_it_is_not_wanted_any_more() -> None:
    gate, begun, written = threading.Event(), threading.Event(), list[Piece]()

    def write(piece: Piece) -> None:
        begun.set()
        assert gate.wait(30)
        written.append(piece)

    sender = _Sender(write)
    sender.put(b"first")
    assert begun.wait(30)
    for _ in range(DEPTH - 1):
        sender.put(b"waiting")
    ending = threading.Thread(target=sender.end, kwargs={"discard": True})
    sender._discarding = True  # what `end` does first; the gate must not open before
    ending.start()
    gate.set()
    ending.join(30)
    assert not ending.is_alive()
    assert written == [b"first"]
    sender.raise_failure()


def test_behind_a_failure_nothing_is_written_and_it_is_raised_where_rows_come_from() -> None:
    tried = list[Piece]()

    def write(piece: Piece) -> None:
        tried.append(piece)
        raise OSError("gone")

    sender = _Sender(write)

    def put_many() -> None:
        for _ in range(10 * DEPTH):  # nobody takes them, and yet no put waits for ever
            sender.put(b"x")
        sender.end()
        sender.raise_failure()

    with pytest.raises(OSError, match="gone"):
        put_many()
    sender.end(discard=True)
    assert tried == [b"x"]
