"""Change capture and what the log does not tell: rows that come, go or change with their files, or that nobody shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture_support import captured, differences, replica
from postgres_server import Database
from pz.connectors.postgres.position import Shape, Token
from pz.errors import ProjectError
from running import errors, run

ATTACH = "ALTER TABLE orders ATTACH PARTITION later FOR VALUES FROM (100) TO (1000)"
LATER = "CREATE TABLE later (LIKE orders INCLUDING ALL)"


def partitioned(database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, name text, big text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (10) TO (100)",
        "INSERT INTO orders VALUES (1, 'a'), (11, 'b'), (12, 'c')",
        "CREATE PUBLICATION pz_src FOR TABLE orders WITH (publish_via_partition_root = true)",
        "CREATE SCHEMA copy",
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("TRUNCATE low",), "truncated or rewritten"),
        (("DROP TABLE low",), "detached or dropped"),
        (("ALTER TABLE orders DETACH PARTITION low",), "detached or dropped"),
        ((LATER, "INSERT INTO later VALUES (100, 'x')", ATTACH), "attached with rows"),
        (
            (f"{LATER}; INSERT INTO later VALUES (100, 'x'); {ATTACH}; INSERT INTO orders VALUES (101, 'y')",),
            "attached",
        ),
        (
            (
                "CREATE TABLE later (LIKE orders INCLUDING ALL) PARTITION BY LIST (id)",
                "CREATE TABLE latest PARTITION OF later DEFAULT",
                "INSERT INTO later VALUES (100, 'x')",
                ATTACH,
            ),
            "attached with rows",
        ),
    ],
)
def test_a_partition_that_takes_or_brings_rows_along_is_refused_by_name(
    tmp_path: Path, database: Database, changes: tuple[str, ...], words: str
) -> None:
    partitioned(database)
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run(*changes)
    told = str(errors(run(opened)))
    assert "PZ0748" in told
    assert words in told
    assert errors(run(opened, full_refresh=True)) == {}
    assert differences(database) == []


@pytest.mark.parametrize(
    "changes",
    [
        ("CREATE TABLE later PARTITION OF orders FOR VALUES FROM (100) TO (1000)",),
        (LATER, ATTACH),
        (f"{LATER}; {ATTACH}",),
        (
            "CREATE TABLE later PARTITION OF orders FOR VALUES FROM (100) TO (1000) PARTITION BY LIST (id)",
            "CREATE TABLE latest PARTITION OF later DEFAULT",
        ),
    ],
)
def test_new_partitions_are_followed(tmp_path: Path, database: Database, changes: tuple[str, ...]) -> None:
    partitioned(database)
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run(*changes, "INSERT INTO orders VALUES (100, 'x')", "UPDATE orders SET id = 101 WHERE id = 1")
    assert errors(run(opened)) == {}
    assert differences(database) == []


@pytest.mark.parametrize(
    "changes",
    [
        ("ALTER TABLE orders ALTER COLUMN n TYPE int USING n * 100",),
        ("ALTER TABLE orders ADD COLUMN extra float8 DEFAULT random()", "ALTER TABLE orders ALTER extra DROP DEFAULT"),
        ("ALTER TABLE orders ADD COLUMN extra int DEFAULT 7", "ALTER TABLE orders ALTER extra DROP DEFAULT"),
    ],
)
def test_values_that_rows_at_rest_got_unseen_are_refused(
    tmp_path: Path, database: Database, changes: tuple[str, ...]
) -> None:
    captured(database, "id int PRIMARY KEY, n int", "INSERT INTO orders VALUES (1, 1), (2, 2)")
    opened = replica(tmp_path, database, write=", schema_policy: 'evolve'")
    assert errors(run(opened)) == {}
    database.run(*changes)
    assert "PZ0748" in str(errors(run(opened)))
    assert errors(run(opened, full_refresh=True)) == {}
    assert differences(database) == []


def test_a_table_that_is_rewritten_as_it_is_is_followed(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, n int", "INSERT INTO orders VALUES (1, 1)")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("VACUUM FULL orders", "INSERT INTO orders VALUES (2, 2)")
    assert errors(run(opened)) == {}
    database.run("ALTER TABLE orders ALTER n SET NOT NULL", "INSERT INTO orders VALUES (3, 3)")
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_what_is_done_to_columns_that_are_not_read_is_all_the_same(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, name text, n int", "INSERT INTO orders VALUES (1, 'a', 1)")
    opened = replica(tmp_path, database, read={"columns": {"id": "int", "name": "varchar"}})
    assert errors(run(opened)) == {}
    database.run(
        "UPDATE orders SET name = 'b'",
        "ALTER TABLE orders RENAME n TO m",
        "ALTER TABLE orders ALTER m TYPE text USING 'x' || m",
        "ALTER TABLE orders ADD COLUMN extra int DEFAULT 7",
        "INSERT INTO orders VALUES (2, 'c', 'y')",
    )
    assert errors(run(opened)) == {}
    assert differences(database, "id, name") == []
    database.run("ALTER TABLE orders RENAME name TO gone", "ALTER TABLE orders RENAME m TO name")
    assert "renamed" in str(errors(run(opened)))


def test_a_replica_identity_whose_index_was_dropped_is_told_beside_a_primary_key(
    tmp_path: Path, database: Database
) -> None:
    captured(database, "id int PRIMARY KEY, name text NOT NULL")
    database.run(
        "CREATE UNIQUE INDEX by_name ON orders (name)",
        "ALTER TABLE orders REPLICA IDENTITY USING INDEX by_name",
        "DROP INDEX by_name",
    )
    with pytest.raises(ProjectError, match="an index that was dropped") as refused:
        run(replica(tmp_path, database))
    assert "REPLICA IDENTITY DEFAULT" in str(refused.value)


def test_a_position_without_a_storage_can_be_read() -> None:
    token = Token(5, Shape(1, 2, "p", ("id",), {"id": (1, 23, -1)}))
    text = token.to_json().replace(', "storage": {"files": {}, "touched": {}}', "")
    assert "storage" not in text
    assert Token.from_json(text) == token


def test_tables_that_others_inherit_from_are_refused(tmp_path: Path, database: Database) -> None:
    captured(database)
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("CREATE TABLE child () INHERITS (orders)")
    with pytest.raises(ProjectError, match="tables inherit from it"):
        run(opened)


def test_a_partition_that_is_not_logged_is_refused(tmp_path: Path, database: Database) -> None:
    partitioned(database)
    database.run("CREATE UNLOGGED TABLE later PARTITION OF orders FOR VALUES FROM (100) TO (1000)")
    with pytest.raises(ProjectError, match='partition "later" is not logged'):
        run(replica(tmp_path, database))


def test_a_part_that_is_published_as_its_whole_is_refused_with_a_way_out(tmp_path: Path, database: Database) -> None:
    captured(database)
    database.run(
        "CREATE TABLE whole (id int PRIMARY KEY, name text, big text) PARTITION BY RANGE (id)",
        "ALTER TABLE whole ATTACH PARTITION orders FOR VALUES FROM (0) TO (100)",
        "ALTER PUBLICATION pz_src SET TABLE whole",
        "ALTER PUBLICATION pz_src SET (publish_via_partition_root = true)",
    )
    with pytest.raises(ProjectError, match="as a part of whole"):
        run(replica(tmp_path, database))


def test_rows_that_the_role_may_not_see_are_told_before_the_snapshot(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    options = {**database.options, "user": "narrow", "password": "n"}
    database.run(
        "CREATE ROLE narrow LOGIN REPLICATION PASSWORD 'n'",
        "GRANT SELECT ON orders TO narrow",
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY late ON orders USING (id > 1)",
    )
    try:
        with pytest.raises(ProjectError, match="row security"):
            run(replica(tmp_path, database, source=options))
    finally:
        database.run("DROP OWNED BY narrow", "DROP ROLE narrow")


def test_a_schema_that_had_left_the_publication_is_noticed(tmp_path: Path, database: Database) -> None:
    captured(database)
    database.run("DROP PUBLICATION pz_src", "CREATE PUBLICATION pz_src FOR TABLES IN SCHEMA public")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run(
        "ALTER PUBLICATION pz_src DROP TABLES IN SCHEMA public",
        "INSERT INTO orders VALUES (1, 'a')",
        "ALTER PUBLICATION pz_src ADD TABLES IN SCHEMA public",
    )
    assert "PZ0744" in str(errors(run(opened)))


def test_limits_of_the_role_do_not_end_a_snapshot(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a')")
    database.run(
        *(
            f"ALTER DATABASE {database.name} SET {name} TO '300ms'"
            for name in (
                "idle_in_transaction_session_timeout",
                "idle_session_timeout",
                "statement_timeout",
                "lock_timeout",
            )
        )
    )
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    assert errors(run(opened)) == {}


def test_a_key_that_only_changes_its_case_keeps_its_row_at_a_target_that_takes_both_for_the_same(
    tmp_path: Path, database: Database
) -> None:
    captured(database, "id text PRIMARY KEY, name text", "INSERT INTO orders VALUES ('a', 'x'), ('b', 'y')")
    database.run("CREATE EXTENSION citext", "CREATE TABLE copy.orders (id citext PRIMARY KEY, name text)")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("UPDATE orders SET id = 'A', name = 'z' WHERE id = 'a'")
    assert errors(run(opened)) == {}
    assert database.rows("SELECT lower(id::text), name FROM copy.orders ORDER BY 1") == [("a", "z"), ("b", "y")]
