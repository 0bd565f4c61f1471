"""What a second connection sees, and whether it waits, while a write is under way: the table in docs/postgres.md, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from postgres_server import Database
from postgres_support import APPEND, MERGE, REPLACE, Relation, output, sink_of
from pz.connectors.contract import OutputSpec, WriteSession

if TYPE_CHECKING:
    from pz.connectors.postgres.session import PostgresSession

OLD, NEW = [(1, "old"), (2, "old")], [(1, "new"), (3, "new")]
BLOCKED = "waits"


@pytest.fixture
def target(database: Database) -> Database:
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'old'), (2, 'old')")
    return database


@contextmanager
def writing(database: Database, out: OutputSpec, rows: str) -> Iterator[PostgresSession]:
    """A session that has got all of its rows."""
    relation = Relation(rows)
    session: WriteSession = sink_of(database).begin_write(
        replace(out, columns=relation.columns, node="a" * 16), relation.table.schema
    )
    try:
        for batch in relation.batches():
            session.write_batch(batch)
        yield session  # type: ignore[misc]
    finally:
        session.close()


def seen(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]] | str:
    """What a reader finds; `BLOCKED` when it would have to wait."""
    connection.execute("SET lock_timeout = '100ms'")
    try:
        return connection.execute("SELECT id, v FROM t ORDER BY id").fetchall()
    except psycopg.errors.LockNotAvailable:
        return BLOCKED


def replacing(method: str) -> OutputSpec:
    return output("t", REPLACE, options={"replace_method": method})


FILL = "INSERT INTO t VALUES (1, 'old')"
NEW_ROWS = "SELECT * FROM (VALUES (1, 'new'), (3, 'new')) t(id, v)"
MERGED = [(1, "new"), (2, "old"), (3, "new")]
APPENDED = [(1, "old"), (2, "old"), (3, "new")]


@pytest.mark.parametrize(
    ("out", "rows", "before_commit", "after", "older_snapshot"),
    [
        pytest.param(output("t", APPEND), "SELECT 3 AS id, 'new' AS v", OLD, APPENDED, OLD, id="append"),
        pytest.param(replacing("truncate"), NEW_ROWS, BLOCKED, NEW, [], id="truncate"),
        pytest.param(replacing("delete"), NEW_ROWS, OLD, NEW, OLD, id="delete"),
        pytest.param(replacing("swap"), NEW_ROWS, BLOCKED, NEW, [], id="swap"),
        pytest.param(output("t", MERGE, keys=("id",)), NEW_ROWS, OLD, MERGED, OLD, id="merge"),
    ],
)
def test_what_readers_see(
    target: Database, out: OutputSpec, rows: str, before_commit: Any, after: Any, older_snapshot: Any
) -> None:
    with target.connect() as reader, target.connect() as older:
        older.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        older.execute("SELECT 1 FROM pg_class LIMIT 1")
        with writing(target, out, rows) as session:
            assert seen(reader) == OLD, "while rows arrive nobody waits"
            session.prepare()
            assert seen(reader) == before_commit
            session.commit()
        assert seen(reader) == after
        assert seen(older) == older_snapshot


def test_nobody_who_reads_an_empty_table_waits_for_its_replace_and_who_writes_it_does(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with database.connect() as reader, database.connect() as writer:
        with writing(database, replacing("truncate"), NEW_ROWS) as session:
            session.prepare()
            assert seen(reader) == []
            writer.execute("SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                writer.execute("INSERT INTO t VALUES (7, 'other')")
            session.commit()
        assert seen(reader) == NEW


def test_an_empty_table_to_which_somebody_writes_is_replaced_like_a_full_one(database: Database) -> None:
    database.run("CREATE TABLE t (id int, v text)")
    with database.connect() as writer, database.connect() as reader:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO t VALUES (7, 'other')")
        with writing(database, replacing("truncate"), NEW_ROWS) as session:
            writer.execute("COMMIT")
            session.commit()
        assert seen(reader) == NEW


@pytest.mark.parametrize(
    "ddl",
    [
        ("CREATE TABLE t (id int, v text) PARTITION BY RANGE (id)", "CREATE TABLE t1 PARTITION OF t DEFAULT", FILL),
        ("CREATE TABLE t (id int, v text)", "CREATE TABLE t1 () INHERITS (t)", FILL.replace("INTO t", "INTO t1")),
        ("CREATE TABLE t (id int, v text)", FILL, "DELETE FROM t"),
        ("CREATE TABLE t (id int, v text)", "CREATE RULE r AS ON INSERT TO t WHERE new.id = 9 DO INSTEAD NOTHING"),
    ],
    ids=["partitions", "children", "dead rows", "rules"],
)
def test_what_only_looks_empty_or_has_more_to_it_is_replaced_by_way_of_a_temporary_table(
    database: Database, ddl: tuple[str, ...]
) -> None:
    database.run(*ddl)
    with writing(database, replacing("truncate"), NEW_ROWS + " UNION ALL SELECT 9, 'ruled'") as session:
        assert session._staged
        session.commit()
    ruled = "RULE" in ddl[-1]
    assert sorted(database.rows("SELECT * FROM t")) == (NEW if ruled else [*NEW, (9, "ruled")])


@pytest.mark.parametrize(
    ("out", "rows", "waits"),
    [
        pytest.param(output("t", APPEND), "SELECT 3 AS id, 'new' AS v", False, id="append"),
        pytest.param(replacing("truncate"), NEW_ROWS, True, id="truncate"),
        pytest.param(replacing("delete"), NEW_ROWS, False, id="delete"),
        pytest.param(replacing("swap"), NEW_ROWS, True, id="swap"),
        pytest.param(output("t", MERGE, keys=("id",)), NEW_ROWS, False, id="merge"),
    ],
)
def test_whether_writers_of_other_rows_wait(target: Database, out: OutputSpec, rows: str, waits: bool) -> None:
    with target.connect() as writer, writing(target, out, rows) as session:
        writer.execute("SET lock_timeout = '100ms'")
        writer.execute("INSERT INTO t VALUES (50, 'theirs')")
        session.prepare()
        if waits:
            with pytest.raises(psycopg.errors.LockNotAvailable):
                writer.execute("INSERT INTO t VALUES (51, 'theirs')")
        else:
            writer.execute("INSERT INTO t VALUES (51, 'theirs')")
        session.commit()
    kept = {row[0] for row in target.rows("SELECT id FROM t WHERE v = 'theirs'")}
    # A replace keeps what was committed while it ran where it deletes by what it can see; what it empties is gone.
    expected = {"delete": {51}, "truncate": set(), "swap": set()}.get(str(out.options.get("replace_method")), {50, 51})
    assert kept == expected


def test_two_writes_of_ours_on_one_target_take_turns(target: Database) -> None:
    with writing(target, output("t", MERGE, keys=("id",)), NEW_ROWS) as first:
        with pytest.raises(Exception, match="lock"), writing_impatiently(target):
            pass
        first.commit()
    with writing_impatiently(target):
        pass


@contextmanager
def writing_impatiently(database: Database) -> Iterator[None]:
    relation = Relation(NEW_ROWS)
    sink = sink_of(database, command_timeout_seconds=1)
    out = replace(output("t", MERGE, keys=("id",)), columns=relation.columns)
    session = sink.begin_write(out, relation.table.schema)
    try:
        yield
    finally:
        session.close()
