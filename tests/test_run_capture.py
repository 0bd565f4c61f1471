"""Change capture from PostgreSQL, whole runs: what a copy is worth after inserts, updates, deletes and worse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from capture_support import captured, differences, replica, slot, token
from cli_support import invoke
from postgres_server import Database
from pz.connectors.postgres.slots import take_turn
from pz.errors import Code, ProjectError
from running import errors, project, run

BIG = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 400))"


def test_a_copy_follows_inserts_updates_deletes_and_moved_keys(tmp_path: Path, database: Database) -> None:
    captured(
        database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a', 'x'), (2, 'b', 'y')"
    )
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    assert differences(database) == []
    database.run(
        "INSERT INTO orders VALUES (3, 'c', NULL)",
        "UPDATE orders SET name = 'changed' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
        "UPDATE orders SET id = 30 WHERE id = 3",
        "INSERT INTO orders VALUES (2, 'back', '')",
    )
    result = run(opened)
    assert errors(result) == {}
    assert differences(database) == []
    block = next(node.cdc for node in result.nodes if node.cdc)
    assert (block["inserts"], block["updates"], block["deletes"]) == (2, 2, 2)
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_rolled_back_and_open_transactions_are_not_seen_and_late_ones_are_not_lost(
    tmp_path: Path, database: Database
) -> None:
    captured(database)
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    with database.connect() as late:
        late.autocommit = False
        late.execute("INSERT INTO orders VALUES (1, 'late', NULL)")
        database.run("INSERT INTO orders VALUES (2, 'early', NULL)")
        with database.connect() as gone:
            gone.autocommit = False
            gone.execute("INSERT INTO orders VALUES (3, 'never', NULL)")
            gone.rollback()
        assert errors(run(opened)) == {}
        assert database.rows("SELECT id FROM copy.orders") == [(2,)]
        late.commit()  # durable: ok - the test's own transaction
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_a_write_between_the_snapshot_and_its_delivery_is_in_the_first_poll(tmp_path: Path, database: Database) -> None:
    captured(
        database,
        "id int PRIMARY KEY, name text, big text",
        "INSERT INTO orders SELECT n, 'a' FROM generate_series(1, 1000) n",
    )
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    first = slot(database)["confirmed"]
    database.run("UPDATE orders SET name = 'b' WHERE id % 2 = 0", "DELETE FROM orders WHERE id % 5 = 0")
    assert errors(run(opened)) == {}
    assert differences(database) == []
    assert slot(database)["confirmed"] != first


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_large_values_that_did_not_change_are_never_overwritten(
    tmp_path: Path, database: Database, identity: str
) -> None:
    captured(
        database,
        "id int PRIMARY KEY, name text, big text NOT NULL",
        f"ALTER TABLE orders REPLICA IDENTITY {identity}",
        f"INSERT INTO orders SELECT n, 'a', {BIG} || n FROM generate_series(1, 20) n",
    )
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run(
        "UPDATE orders SET name = 'b' WHERE id < 5",
        f"UPDATE orders SET big = {BIG} WHERE id IN (1, 6)",
        "UPDATE orders SET name = 'c' WHERE id IN (1, 6)",
        f"INSERT INTO orders SELECT 50, 'new', {BIG}",
        "UPDATE orders SET name = 'newer' WHERE id = 50",
    )
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_unchanged_values_pass_under_another_name_and_beside_a_filter(tmp_path: Path, database: Database) -> None:
    captured(
        database,
        "id int PRIMARY KEY, name text, big text",
        f"INSERT INTO orders SELECT n, 'a', {BIG} || n FROM generate_series(1, 5) n",
    )
    select = "SELECT o.id, upper(o.name) AS name, o.big AS body FROM {{ source('src', 'orders') }} o WHERE o.id <> 3"
    opened = replica(tmp_path, database, select=select)
    assert errors(run(opened)) == {}
    database.run("UPDATE orders SET name = 'b'")
    assert errors(run(opened)) == {}
    expected = database.rows("SELECT id, upper(name), big FROM orders WHERE id <> 3 ORDER BY id")
    assert database.rows("SELECT id, name, body FROM copy.orders ORDER BY id") == expected


@pytest.mark.parametrize(
    "select",
    [
        "SELECT id, name, upper(big) AS big FROM {{ source('src', 'orders') }}",
        "SELECT id, name, big FROM {{ source('src', 'orders') }} WHERE big <> ''",
        "SELECT DISTINCT id, name, big FROM {{ source('src', 'orders') }}",
        "SELECT id, name, b FROM (SELECT id, name, big AS b FROM {{ source('src', 'orders') }}) WHERE b <> ''",
        "SELECT id, to_json(o)::VARCHAR AS name, big FROM {{ source('src', 'orders') }} o",
    ],
)
def test_unchanged_values_that_a_pipeline_looks_at_fail_closed(tmp_path: Path, database: Database, select: str) -> None:
    captured(
        database,
        "id int PRIMARY KEY, name text, big text",
        f"INSERT INTO orders SELECT n, 'a', {BIG} || n FROM generate_series(1, 3) n",
    )
    opened = replica(tmp_path, database, select=select)
    assert errors(run(opened)) == {}
    before = database.rows("SELECT * FROM copy.orders ORDER BY id")
    database.run("UPDATE orders SET name = 'b'")
    told = str(errors(run(opened)))
    assert "PZ0745" in told
    assert "REPLICA IDENTITY FULL" in told
    assert database.rows("SELECT * FROM copy.orders ORDER BY id") == before
    database.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    assert errors(run(opened, full_refresh=True)) == {}
    database.run("UPDATE orders SET name = 'c'")
    assert errors(run(opened)) == {}


def test_a_moved_key_without_its_large_values_fails_closed_and_a_full_refresh_heals(
    tmp_path: Path, database: Database
) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", f"INSERT INTO orders SELECT 1, 'a', {BIG}")
    database.run("INSERT INTO orders VALUES (7, 'other'), (8, 'other')")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("UPDATE orders SET id = 2 WHERE id = 1")
    assert "PZ0745" in str(errors(run(opened)))
    database.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    assert errors(run(opened, full_refresh=True)) == {}
    assert differences(database) == []
    database.run("UPDATE orders SET id = 3 WHERE id = 2")
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_an_unchanged_value_of_a_row_that_the_target_lacks_fails_closed(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", f"INSERT INTO orders SELECT 1, 'a', {BIG}")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("DELETE FROM copy.orders", "UPDATE orders SET name = 'b'")
    assert "PZ0745" in str(errors(run(opened)))


@pytest.mark.parametrize("on_delete", ["soft", "ignore"])
def test_soft_and_ignored_deletes(tmp_path: Path, database: Database, on_delete: str) -> None:
    captured(
        database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    opened = replica(tmp_path, database, on_delete=on_delete)
    assert errors(run(opened)) == {}
    database.run("DELETE FROM orders WHERE id < 3")
    assert errors(run(opened)) == {}
    if on_delete == "ignore":
        assert database.rows("SELECT count(*) FROM copy.orders") == [(3,)]
        return
    assert differences(database, "id, name", "_pz_deleted_at IS NULL") == []
    database.run("INSERT INTO orders VALUES (1, 'again')")
    assert errors(run(opened)) == {}
    assert differences(database, "id, name", "_pz_deleted_at IS NULL") == []
    assert database.rows("SELECT count(*) FROM copy.orders") == [(3,)]


def test_truncate_is_refused_with_the_way_out_and_that_of_another_table_is_not(
    tmp_path: Path, database: Database
) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    database.run("CREATE TABLE other (id int PRIMARY KEY)", "ALTER PUBLICATION pz_src ADD TABLE other")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("INSERT INTO other VALUES (1)", "TRUNCATE other", "INSERT INTO orders VALUES (3, 'c')")
    assert errors(run(opened)) == {}
    database.run("TRUNCATE orders", "INSERT INTO orders VALUES (4, 'd'), (5, 'e')")
    assert "PZ0746" in str(errors(run(opened)))
    database.run("TRUNCATE copy.orders")
    assert errors(run(opened, full_refresh=True)) == {}
    assert differences(database) == []


def test_after_a_truncate_the_limit_is_enough_where_deletes_are_followed(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    opened = replica(tmp_path, database, write=", snapshot_delete_limit: 1")
    assert errors(run(opened)) == {}
    database.run("TRUNCATE orders", "INSERT INTO orders VALUES (4, 'd')")
    told = str(errors(run(opened)))
    assert "PZ0746" in told
    assert "snapshot_delete_limit" in told
    assert errors(run(opened, full_refresh=True)) == {}
    assert differences(database) == []


def test_the_lines_say_what_was_inserted_updated_and_deleted(tmp_path: Path, database: Database) -> None:
    captured(
        database,
        "id int PRIMARY KEY, name text, big text",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
    )
    opened = replica(tmp_path, database)
    first = invoke("run", project=opened).out
    assert "inserted" not in first
    database.run(
        "DELETE FROM orders WHERE id < 3",
        "UPDATE orders SET name = 'x' WHERE id = 3",
        "INSERT INTO orders VALUES (9, 'i')",
    )
    lines = invoke("run", project=opened).out.splitlines()
    assert any("orders 2 rows" in line and line.endswith("(1 inserted, 1 updated, 2 deleted)") for line in lines)
    (sink,) = (line for line in lines if "dst.copy.orders" in line)
    assert sink.endswith("(2 deleted)")


# --- snapshots again


def test_a_full_refresh_leaves_no_ghosts(tmp_path: Path, database: Database) -> None:
    captured(
        database,
        "id int PRIMARY KEY, name text, big text",
        "INSERT INTO orders SELECT n, 'a' FROM generate_series(1, 10) n",
    )
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("DELETE FROM orders WHERE id <= 3", "UPDATE orders SET name = 'b'")
    assert errors(run(opened, full_refresh=True)) == {}
    assert differences(database) == []


def test_a_snapshot_that_would_remove_most_of_the_target_is_refused_unless_told(
    tmp_path: Path, database: Database
) -> None:
    captured(
        database,
        "id int PRIMARY KEY, name text, big text",
        "INSERT INTO orders SELECT n, 'a' FROM generate_series(1, 10) n",
    )
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("DELETE FROM orders WHERE id <= 6")
    assert "PZ0749" in str(errors(run(opened, full_refresh=True)))
    assert database.rows("SELECT count(*) FROM copy.orders") == [(10,)]
    opened = replica(tmp_path, database, write=", snapshot_delete_limit: 1")
    assert errors(run(opened)) == {}, "the next plain run takes the snapshot that is pending"
    assert differences(database) == []


def test_a_full_refresh_that_fails_is_a_snapshot_again_and_never_a_poll_into_a_gap(
    tmp_path: Path, database: Database
) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a')")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("ALTER TABLE copy.orders ADD CONSTRAINT c CHECK (name <> 'bad')", "UPDATE orders SET name = 'bad'")
    assert run(opened, full_refresh=True).exit_code == 1
    database.run("UPDATE orders SET name = 'good'", "INSERT INTO orders VALUES (2, 'b')")
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_a_failed_full_refresh_is_retried_with_what_it_had_read(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'bad')")
    opened = replica(tmp_path, database)
    database.run("CREATE TABLE copy.orders (id int PRIMARY KEY, name text CHECK (name <> 'bad'), big text)")
    assert run(opened).exit_code == 1
    database.run("ALTER TABLE copy.orders DROP CONSTRAINT orders_name_check", "UPDATE orders SET name = 'newer'")
    result = opened.retry()
    assert errors(result) == {}
    assert {node.name: node.provenance for node in result.nodes}["src_src__orders"] == "reused"
    assert database.rows("SELECT name FROM copy.orders") == [("bad",)]
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_an_idle_table_does_not_hold_the_log_back(tmp_path: Path, database: Database) -> None:
    captured(database)
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run(
        "CREATE TABLE noise (t text)", "INSERT INTO noise SELECT repeat('x', 100) FROM generate_series(1, 20000)"
    )
    behind = slot(database)["behind"]
    assert errors(run(opened)) == {}
    assert slot(database)["behind"] < behind / 10


def test_a_first_run_takes_over_an_orphaned_slot_and_leaves_a_foreign_one_alone(
    tmp_path: Path, database: Database
) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a')")
    database.run("SELECT pg_create_logical_replication_slot('pz_src_orders', 'test_decoding')")
    opened = replica(tmp_path, database)
    assert "test_decoding" in str(errors(run(opened)))
    database.run(
        "SELECT pg_drop_replication_slot('pz_src_orders')",
        "SELECT pg_create_logical_replication_slot('pz_src_orders', 'pgoutput')",
    )
    assert errors(run(opened)) == {}
    assert differences(database) == []


# --- what is lost


def test_a_slot_that_is_gone_or_has_moved_is_told_and_the_way_out_works(tmp_path: Path, database: Database) -> None:
    captured(
        database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("DELETE FROM orders WHERE id = 1", "SELECT pg_drop_replication_slot('pz_src_orders')")
    told = str(errors(run(opened)))
    assert "PZ0744" in told
    assert "pz cdc drop" not in told
    assert "run with --full-refresh" in opened.cdc.status()[0].details[0]
    database.run("SELECT pg_create_logical_replication_slot('pz_src_orders', 'pgoutput')")
    told = str(errors(run(opened)))
    assert "PZ0744" in told
    assert "moved past" in told
    assert not opened.cdc.status()[0].healthy
    assert "dropped" in opened.cdc.drop("src.orders")
    assert token(tmp_path) is None
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_a_full_refresh_alone_is_the_way_out_of_a_lost_slot(tmp_path: Path, database: Database) -> None:
    captured(
        database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("DELETE FROM orders WHERE id = 1", "SELECT pg_drop_replication_slot('pz_src_orders')")
    assert errors(run(opened, full_refresh=True)) == {}
    database.run("INSERT INTO orders VALUES (4, 'd')")
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_status_tells_position_retained_bytes_and_health(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a')")
    opened = replica(tmp_path, database)
    (before,) = opened.cdc.status()
    assert (before.healthy, before.health, before.stored, before.position) == (
        True,
        "not run yet",
        None,
        "pz_src_orders",
    )
    assert before.details == ("slot pz_src_orders is not there yet; the next run makes it",)
    told = invoke("cdc", "status", project=opened)
    assert (told.code, "not run yet" in told.out, "unhealthy" in told.out) == (0, True, False)
    (shown,) = json.loads(invoke("cdc", "status", "--json", project=opened).out)
    assert (shown["slot"], shown["health"], shown["stored"]) == ("pz_src_orders", "not run yet", None)
    assert errors(run(opened)) == {}
    (after,) = opened.cdc.status()
    assert (after.healthy, after.details) == (True, ())
    assert after.stored == slot(database)["confirmed"]
    assert after.retained_bytes is not None
    planned = opened.cdc.drop("src.orders", dry_run=True)
    assert planned.startswith("drop slot pz_src_orders, for which ")
    assert "would drop slot pz_src_orders" in invoke("cdc", "drop", "src.orders", "--dry-run", project=opened).out
    refused = invoke("cdc", "drop", "src.orders", project=opened)
    assert (refused.code, "PZ0516" in refused.err, "--yes" in refused.err) == (2, True, True)
    assert slot(database)["confirmed"] == after.stored, "nothing of that dropped it"
    assert (
        invoke("cdc", "drop", "src.orders", "--yes", project=opened).out
        == "src.orders: slot pz_src_orders was dropped; the next run reads the whole table\n"
    )
    assert opened.cdc.drop("src.orders") == "slot pz_src_orders did not exist; the next run reads the whole table"
    with pytest.raises(ProjectError, match="change capture"):
        opened.cdc.drop("src.nothing")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DROP PUBLICATION pz_src", "CREATE PUBLICATION"),
        ("ALTER PUBLICATION pz_src DROP TABLE orders", "ADD TABLE"),
        ("ALTER PUBLICATION pz_src SET (publish = 'insert')", "publish = "),
        ("ALTER PUBLICATION pz_src SET TABLE orders (id, name)", "big"),
        ("ALTER PUBLICATION pz_src SET TABLE orders WHERE (id > 0)", "filters"),
        ("ALTER TABLE orders REPLICA IDENTITY NOTHING", "REPLICA IDENTITY DEFAULT"),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "primary key"),
    ],
)
def test_what_is_missing_is_told_before_anything_moves_with_what_to_run(
    tmp_path: Path, database: Database, change: str, words: str
) -> None:
    captured(database)
    opened = replica(tmp_path, database)
    database.run(change)
    with pytest.raises(ProjectError) as refused:
        run(opened)
    told = str(refused.value)
    assert "PZ0743" in told
    assert words in told


def test_all_that_is_missing_is_told_at_once(tmp_path: Path, database: Database) -> None:
    captured(database)
    database.run("DROP PUBLICATION pz_src", "ALTER TABLE orders DROP CONSTRAINT orders_pkey", "CREATE ROLE weak LOGIN")
    options = {**database.options, "user": "weak", "password": "w"}
    database.run("ALTER ROLE weak PASSWORD 'w'", "ALTER TABLE orders SET UNLOGGED")
    try:
        with pytest.raises(ProjectError) as refused:
            run(replica(tmp_path, database, source=options))
        told = str(refused.value)
        for fix in ("ALTER ROLE", "SET LOGGED", "GRANT SELECT", "ADD PRIMARY KEY", "CREATE PUBLICATION"):
            assert fix in told
    finally:
        database.run("DROP ROLE weak")


@pytest.mark.parametrize(
    "changes",
    [
        (
            "ALTER PUBLICATION pz_src DROP TABLE orders",
            "DELETE FROM orders",
            "ALTER PUBLICATION pz_src ADD TABLE orders",
        ),
        ("DROP PUBLICATION pz_src", "DELETE FROM orders", "CREATE PUBLICATION pz_src FOR TABLE orders"),
        (
            "ALTER PUBLICATION pz_src SET (publish = 'insert')",
            "DELETE FROM orders",
            "ALTER PUBLICATION pz_src SET (publish = 'insert, update, delete, truncate')",
        ),
    ],
)
def test_a_publication_that_was_changed_in_between_is_noticed(
    tmp_path: Path, database: Database, changes: tuple[str, ...]
) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    opened = replica(tmp_path, database, write=", snapshot_delete_limit: 1")
    assert errors(run(opened)) == {}
    database.run(*changes)
    assert "PZ0744" in str(errors(run(opened)))
    assert errors(run(opened, full_refresh=True)) == {}
    assert differences(database) == []


# --- altered tables


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("ALTER TABLE orders ADD COLUMN extra int DEFAULT 7",), "added with a default"),
        (("ALTER TABLE orders RENAME COLUMN name TO title",), "renamed"),
        (("ALTER TABLE orders ALTER COLUMN name TYPE int USING 1",), "another type"),
        (("ALTER TABLE orders DROP COLUMN name", "ALTER TABLE orders ADD COLUMN name text"), "dropped and added again"),
        (("DROP TABLE orders", "CREATE TABLE orders (id int PRIMARY KEY, name text, big text)"), "created again"),
    ],
)
def test_an_alteration_that_cannot_be_followed_is_refused_by_name(
    tmp_path: Path, database: Database, changes: tuple[str, ...], words: str
) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a')")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run(*changes)
    if words == "created again":
        database.run("ALTER PUBLICATION pz_src ADD TABLE orders")
    told = str(errors(run(opened)))
    assert "PZ0748" in told
    assert words in told


def test_columns_added_dropped_and_widened_inside_a_window_are_followed(tmp_path: Path, database: Database) -> None:
    captured(
        database, "id int PRIMARY KEY, name varchar(5), n int, gone text", "INSERT INTO orders VALUES (1, 'a', 1, 'g')"
    )
    opened = replica(tmp_path, database, write=", schema_policy: 'evolve'")
    assert errors(run(opened)) == {}
    database.run(
        "INSERT INTO orders VALUES (2, 'b', 2, 'g')",
        "ALTER TABLE orders ADD COLUMN extra text",
        "UPDATE orders SET extra = 'new' WHERE id = 1",
        "ALTER TABLE orders ALTER COLUMN n TYPE bigint",
        "ALTER TABLE orders ALTER COLUMN name TYPE varchar(50)",
        "INSERT INTO orders VALUES (3, 'a longer name', 5000000000, 'g', 'e')",
        "ALTER TABLE orders DROP COLUMN gone",
        "INSERT INTO orders VALUES (4, 'd', 4, 'f')",
    )
    assert errors(run(opened)) == {}
    assert differences(database, "id, name, n, extra") == []


# --- slots that are shared, keys of other kinds, awkward tables


def test_a_declared_slot_serves_several_datasets_and_moves_to_the_least_of_them(
    tmp_path: Path, database: Database
) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a')")
    database.run(
        "CREATE TABLE people (id int PRIMARY KEY, name text)",
        "INSERT INTO people VALUES (1, 'p')",
        "ALTER PUBLICATION pz_src ADD TABLE people",
    )
    opened = replica(tmp_path, database, sync={"slot": "both"})
    path = tmp_path / "connections.yml"
    path.write_text(
        path.read_text().replace(
            '"entities": {', '"entities": {"people": {"read": {"sync": {"mode": "cdc", "slot": "both"}}}, ', 1
        )
    )
    sink = "{{ sink('dst', 'copy.people', strategy: 'merge', keys: ['id'], on_delete: 'delete') }}"
    (tmp_path / "pipelines/people.sql").write_text(
        f"INSERT INTO {sink} SELECT * FROM {{{{ source('src', 'people') }}}}"
    )
    assert errors(run(opened)) == {}
    assert differences(database) == []
    database.run("UPDATE people SET name = 'q'", "UPDATE orders SET name = 'b'")
    assert errors(run(opened, "orders")) == {}
    behind = json.loads(token(tmp_path, "src.people") or "")["lsn"]
    assert slot(database, "both")["confirmed"] == behind, "people has not had its changes yet"
    assert errors(run(opened)) == {}
    assert slot(database, "both")["confirmed"] != behind
    database.run("DELETE FROM people", "INSERT INTO people VALUES (2, 'r')", "INSERT INTO orders VALUES (2, 'b')")
    assert errors(run(opened, "orders", full_refresh=True)) == {}
    assert errors(run(opened)) == {}
    assert differences(database) == []
    assert database.rows("SELECT * FROM copy.people") == [(2, "r")]


def test_a_slot_that_another_poll_uses_is_waited_for(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a')")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("INSERT INTO orders VALUES (2, 'b')")
    with database.connect() as other, ThreadPoolExecutor(1) as pool:
        other.autocommit = False
        take_turn(other, "pz_src_orders")
        polling = pool.submit(run, opened)
        while not database.rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            assert not polling.done(), errors(polling.result())
            time.sleep(0.01)  # nobody tells when it waits
        other.rollback()
        assert errors(polling.result()) == {}
    assert differences(database) == []


def test_composite_and_text_keys_and_an_index_as_identity(tmp_path: Path, database: Database) -> None:
    captured(
        database,
        'id text NOT NULL, "Part No" int NOT NULL, v text, UNIQUE (id, "Part No")',
        'ALTER TABLE orders REPLICA IDENTITY USING INDEX "orders_id_Part No_key"',
        "INSERT INTO orders VALUES ('a''b', 1, 'x'), ('c', 2, 'y')",
    )
    opened = replica(tmp_path, database)
    path = tmp_path / "pipelines/orders.sql"
    path.write_text(path.read_text().replace("keys: ['id']", "keys: ['id', 'Part No']"))
    assert errors(run(opened)) == {}
    database.run(
        "DELETE FROM orders WHERE id = 'c'", "UPDATE orders SET v = 'z'", "UPDATE orders SET id = 'd' WHERE id <> 'c'"
    )
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_a_partitioned_table_is_captured_through_its_root(tmp_path: Path, database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, name text, big text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (10) TO (100)",
        "INSERT INTO orders VALUES (1, 'a'), (11, 'b')",
        "CREATE PUBLICATION pz_src FOR TABLE orders",
        "CREATE SCHEMA copy",
    )
    opened = replica(tmp_path, database)
    with pytest.raises(ProjectError, match="publish_via_partition_root"):
        run(opened)
    database.run("ALTER PUBLICATION pz_src SET (publish_via_partition_root = true)")
    assert errors(run(opened)) == {}
    database.run(
        "UPDATE orders SET id = 12 WHERE id = 1",
        "INSERT INTO orders VALUES (2, 'c')",
        "DELETE FROM orders WHERE id = 11",
    )
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_generated_columns_are_left_out(tmp_path: Path, database: Database) -> None:
    captured(
        database,
        "id int PRIMARY KEY, n int, double int GENERATED ALWAYS AS (n * 2) STORED",
        "INSERT INTO orders VALUES (1, 2)",
    )
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("UPDATE orders SET n = 3")
    assert errors(run(opened)) == {}
    assert database.rows("SELECT * FROM copy.orders") == [(1, 3)]


@pytest.mark.parametrize(
    ("datasets", "refused"),
    [
        ({"src_a": {"b": None}, "src": {"a_b": None}}, True),
        ({"src": {"x" * 70: None, "x" * 71: None}}, True),
        ({"src": {"a-b": None, "c": "pz_src_a_b"}}, True),
        ({"src": {"a": "ours", "b": "ours"}}, False),
        ({"src_a": {"b": None}, "src": {"a_b": "another"}}, False),
        ({"src": {"a": None, "b": None}}, False),
    ],
)
def test_datasets_share_a_slot_only_where_each_says_so(
    tmp_path: Path, datasets: dict[str, dict[str, str | None]], refused: bool
) -> None:
    connections = {
        name: {
            "connector": "postgres",
            "host": "127.0.0.1",
            "port": 1,
            "database": name,
            "entities": {
                entity: {"read": {"sync": {"mode": "cdc", **({"slot": slot} if slot else {})}}}
                for entity, slot in entities.items()
            },
        }
        for name, entities in datasets.items()
    }
    pairs = [(name, entity) for name, entities in datasets.items() for entity in entities]
    files = {
        f"pipelines/p{number}.sql": f"INSERT INTO {{{{ sink('{name}', 'copy{number}', strategy: 'merge', keys: ['id'], "
        f"on_delete: 'delete') }}}} SELECT * FROM {{{{ source('{name}', '{entity}') }}}}"
        for number, (name, entity) in enumerate(pairs)
    }
    opened = project(tmp_path, {"connections.yml": json.dumps(connections), **files})
    if not refused:
        assert len(opened.plan().nodes) == 6
        return
    with pytest.raises(ProjectError, match="PZ0750") as found:
        opened.plan()
    assert all(f"'{name}.{entity}'" in str(found.value) for name, entity in pairs)
    assert "slot:" in str(found.value)
    assert [problem.code for problem in opened.validate()] == [Code.PZ0750]
    opened.compile()  # which opens no connection, and so knows no slots


def test_a_query_or_ranges_are_refused_for_a_captured_table(tmp_path: Path, database: Database) -> None:
    captured(database)
    with pytest.raises(ProjectError, match="query"):
        run(replica(tmp_path, database, read={"query": "SELECT 1 AS id"}))


# --- deaths around the slot


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "point", "recovery"),
    [
        ("first", "capture_slot.after", "run"),
        ("first", "complete_load.before", "retry"),
        ("first", "sink_commit.after", "retry"),
        ("first", "advance_state.before", "run"),
        ("poll", "complete_load.after", "run"),
        ("poll", "sink_commit.before", "retry"),
        ("poll", "sink_commit.after", "run"),
        ("poll", "advance_state.after", "retry"),
        ("poll", "acknowledge.before", "run"),
        ("poll", "acknowledge.after", "run"),
        ("refresh", "pend_snapshot.after", "run"),
        ("refresh", "capture_slot.before", "run"),
        ("refresh", "capture_slot.after", "retry"),
        ("refresh", "sink_commit.after", "retry"),
    ],
)
def test_a_run_that_dies_is_followed_by_an_exact_copy(
    tmp_path: Path, database: Database, stage: str, point: str, recovery: str
) -> None:
    captured(
        database,
        "id int PRIMARY KEY, name text, big text",
        "INSERT INTO orders SELECT n, 'a' FROM generate_series(1, 9) n",
    )
    opened = replica(tmp_path, database)
    if stage != "first":
        assert errors(run(opened)) == {}
        database.run("UPDATE orders SET name = 'b' WHERE id < 4", "DELETE FROM orders WHERE id = 9")
    assert die(tmp_path, f"{point}=kill", *(["--full-refresh"] if stage == "refresh" else [])) == -signal.SIGKILL
    database.run("UPDATE orders SET name = 'c' WHERE id = 5", "DELETE FROM orders WHERE id = 1")
    if recovery == "retry":
        assert errors(opened.retry()) == {}
    assert errors(run(opened)) == {}
    assert differences(database) == []
    database.run("INSERT INTO orders VALUES (100, 'after', NULL)", "DELETE FROM orders WHERE id = 2")
    assert errors(run(opened)) == {}
    assert differences(database) == []
    assert database.rows("SELECT count(*) FROM pg_replication_slots") == [(1,)]


def die(root: Path, failpoint: str, *options: str) -> int:
    """Run everything in a process of its own, with a failpoint armed; its exit code."""
    child = subprocess.run(
        [sys.executable, "-m", "pz", "run", "--all", *options],
        cwd=root,
        env={**os.environ, "PZ_FAILPOINT": failpoint, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
    )
    return child.returncode
