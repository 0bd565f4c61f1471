"""Tables read by DuckDB's scanner: the same values as in batches, or no fragment, or an error; never another value."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from postgres_proxy import Proxy, Verdict
from postgres_server import Database
from postgres_support import as_text, dataset, duckdb_types, read, scan, source_of
from pz.connectors.contract import Bound, CancelToken, ReadHints
from pz.connectors.postgres import scanner
from pz.errors import Code, PermanentError, TransientError
from running import errors, rows, run
from test_postgres_types import CASES, DECLARED, Case, Declared, declared_table
from test_run_postgres import demo

TO_LAKE = "INSERT INTO {{ sink('lake', 'big', strategy: 'replace') }} SELECT id, filler FROM {{ source('pg', 'big') }}"

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(scanner.scannable() is None, reason="the scanner's extension is not installed for this DuckDB"),
]


def scanned(database: Database, **fields: Any) -> pa.Table:
    """A table read by the scanner, which must offer a fragment for it."""
    source = source_of(database)
    try:
        found = scan(source, dataset(**fields))
    finally:
        source.close()
    assert found is not None
    return found


def in_batches_alone(case: Case) -> bool:
    return case.duckdb.endswith("[]") or case.duckdb == "JSON" or case.ddl == "char(3)"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.ddl)
def test_every_type_is_scanned_as_it_is_read_in_batches_or_not_at_all(database: Database, case: Case) -> None:
    database.run(*case.setup, f"CREATE TABLE t (k int PRIMARY KEY, v {case.ddl})")
    with database.connect() as connection:
        for k, value in enumerate([*case.values, None]):
            connection.execute(f"INSERT INTO t VALUES (%s, %s::text::{case.ddl})", [k, value])
    source = source_of(database)
    found = scan(source, dataset())
    if in_batches_alone(case):
        assert found is None
        return
    assert found is not None
    assert duckdb_types(found) == ["INTEGER", case.duckdb]
    assert sorted(as_text(found)) == sorted(as_text(read(source, dataset())))
    source.close()


@pytest.mark.parametrize("case", DECLARED, ids=str)
def test_every_declared_conversion_is_scanned_as_in_batches_or_not_at_all(database: Database, case: Declared) -> None:
    columns = declared_table(database, case, [*case.values, None])
    source = source_of(database)
    found = scan(source, dataset(columns=columns))
    assert found is not None or case.wanted == "json" or case.ddl.startswith("char")
    if found is not None:
        assert sorted(as_text(found)) == sorted(as_text(read(source, dataset(columns=columns))))
    source.close()
    for value in case.refused if found is not None else ():
        declared_table(database, case, [value])
        with pytest.raises(PermanentError) as refused:
            scan(source_of(database), dataset(columns=columns))
        assert not value or value not in str(refused.value)


@pytest.mark.parametrize(
    ("ddl", "value", "declared"),
    [
        ("numeric(10,2)", "NaN", None),
        ("numeric(30,2)", "NaN", None),
        ("numeric", "NaN", None),
        ("numeric", "Infinity", None),
        ("numeric", "1.0000000001", None),
        ("numeric", "123456789012345678901234567890", None),
        ("numeric", "1.239", "decimal(10,2)"),
        ("timestamp", "294247-01-10 04:00:54.775807", None),
        ("timestamptz", "294276-12-31 00:00+00", None),
    ],
)
def test_what_duckdb_cannot_hold_is_an_error_that_names_the_column(
    database: Database, ddl: str, value: str, declared: str | None
) -> None:
    database.run(f'CREATE TABLE t (k int, "a ""b" {ddl})', f"INSERT INTO t VALUES (1, NULL), (2, '{value}')")
    source = source_of(database)
    data = dataset(columns={"k": "int", 'a "b': declared} if declared else None)
    with pytest.raises(PermanentError, match="'a \"b' holds a value") as refused:
        scan(source, data)
    source.close()
    assert refused.value.code is Code.PZ0740
    assert value not in str(refused.value)


def test_the_last_moment_before_infinity_is_read(database: Database) -> None:
    database.run("CREATE TABLE t (v timestamp)", "INSERT INTO t VALUES ('294247-01-10 04:00:54.775806'), ('infinity')")
    values = scanned(database).column("v").cast(pa.int64()).to_pylist()
    assert values == [2**63 - 2, 2**63 - 1]


def test_bounds_filters_and_columns_go_to_the_server(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT n AS id, n * 2 AS twice, 'x' AS s FROM generate_series(1, 10) n")
    source = source_of(database)
    data = replace(dataset(cursor="id"), lower=Bound("3", False), upper=Bound("6", True))
    found = scan(source, data, ReadHints(columns=("twice",)))
    assert found is not None
    assert sorted(found.column("twice").to_pylist()) == [8, 10, 12]
    assert found.column_names == ["twice"]
    source.close()


def test_the_session_is_pinned_whatever_the_database_has_as_default(database: Database) -> None:
    database.run(
        f"ALTER DATABASE {database.name} SET TimeZone TO 'America/New_York'",
        f"ALTER DATABASE {database.name} SET DateStyle TO 'German, DMY'",
        "CREATE TABLE t (r daterange, z tstzrange)",
        "INSERT INTO t VALUES ('[2024-02-01,2024-02-03)', '[2024-07-01 12:00+00,)')",
    )
    assert as_text(scanned(database)) == [("[2024-02-01,2024-02-03)", '["2024-07-01 12:00:00+00",)')]


def test_a_table_made_again_with_other_types_is_read_by_the_new_ones(database: Database) -> None:
    with duckdb.connect() as connection:
        for made in ("1::int AS a", "'x'::text AS b, 2.50::numeric(5,2) AS c"):
            database.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t AS SELECT {made}")
            source = source_of(database)
            found = source.live_scan(dataset(), ReadHints())
            source.close()
            assert found is not None
            for statement in found.setup:
                connection.execute(statement)
            rows = connection.execute(f"SELECT * FROM {found.relation}").fetchall()
    assert [str(value) for value in rows[0]] == ["x", "2.50"]


def test_the_password_is_nowhere_to_be_seen_in_duckdb(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT 1 AS a")
    source = source_of(database)
    found = source.live_scan(dataset(), ReadHints())
    source.close()
    assert found is not None
    password = str(database.options["password"])
    assert password not in found.relation
    with duckdb.connect() as connection:
        for statement in found.setup:
            connection.execute(statement)
        shown = [
            connection.execute(f"SELECT * FROM {told}()").fetchall() for told in ("duckdb_databases", "duckdb_secrets")
        ]
    assert found.relation.split("'")[1] in str(shown)
    assert password not in str(shown)


def test_a_wait_for_the_server_is_ended_by_the_fragment_itself(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT 1 AS a")
    source = source_of(database, command_timeout_seconds=0)
    found = source.live_scan(dataset(), ReadHints())
    assert found is not None
    assert found.interrupt is not None
    raised: list[Exception] = []

    def wait() -> None:
        try:
            connection.execute(f"SELECT * FROM {found.relation}").fetchall()
        except duckdb.Error as failure:
            raised.append(failure)

    with duckdb.connect() as connection, database.connect() as other:
        for statement in found.setup:
            connection.execute(statement)
        other.execute("BEGIN")
        other.execute("LOCK TABLE t")
        waiting = threading.Thread(target=wait)
        waiting.start()
        while database.rows("SELECT FROM pg_locks WHERE NOT granted") == []:
            assert waiting.is_alive()
        found.interrupt()
        waiting.join(60)
        assert not waiting.is_alive()
    [failure] = raised
    assert isinstance(source.explain(failure), TransientError)
    source.close()


def test_text_of_a_database_that_does_not_check_it_is_not_scanned(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT 'x' AS a")
    source = source_of(database)
    relation = source._relation(dataset())
    assert scanner.scan_of(source._server, relation, relation.columns, []) is not None
    assert scanner.scan_of(source._server, replace(relation, unicode=False), relation.columns, []) is None


# --- whole runs

TABLE = (
    "CREATE TABLE big AS SELECT n AS id, repeat('x', 200) AS filler, n / 4.0 AS price FROM generate_series(1, 20000) n"
)
STAGED = {"pipelines/configs/p.yml": "pipeline: p\nchecks:\n  - row_count: { min: 1 }\n"}
CHAINS = pytest.mark.parametrize("files", [{}, STAGED], ids=["fused", "staged"])


@CHAINS
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_connection_that_is_cut_in_the_middle_of_a_scan_fails_the_attempt_alone(
    tmp_path: Path, database: Database, files: dict[str, str], attempts: int
) -> None:
    database.run(TABLE)
    with Proxy(database) as proxy:
        retry = {"max_attempts": attempts, "base_delay": "1ms"}
        lake = {"connector": "localfiles", "root": "out", "retry": retry}
        opened = demo(tmp_path, {**proxy.options, "retry": retry}, TO_LAKE, files=files, lake=lake)
        proxy.once(Verdict.CUT, lambda link, side, kind, body: kind == b"d" and side == "server" and link.copies())
        result = run(opened)
        assert proxy.fired
        if attempts == 1:
            assert "the connection to" in str(errors(result))
            assert not list(tmp_path.glob("out/**/*.parquet"))
            result = opened.retry()
        assert errors(result) == {}
    assert sorted(rows(tmp_path / "out/big/*.parquet")) == sorted(database.rows("SELECT id, filler FROM big"))


@CHAINS
@pytest.mark.parametrize("ending", [b"COMMIT", b"ROLLBACK"])
def test_a_connection_that_is_lost_at_the_end_of_a_scan_loses_no_row_and_doubles_none(
    tmp_path: Path, database: Database, files: dict[str, str], ending: bytes
) -> None:
    database.run(TABLE)
    with Proxy(database) as proxy:
        opened = demo(
            tmp_path, {**proxy.options, "retry": {"max_attempts": 3, "base_delay": "1ms"}}, TO_LAKE, files=files
        )
        proxy.once(Verdict.CUT, lambda link, side, kind, body: link.copies() and side == "client" and ending in body)
        assert errors(run(opened)) == {}
    assert sorted(rows(tmp_path / "out/big/*.parquet")) == sorted(database.rows("SELECT id, filler FROM big"))


@CHAINS
def test_a_table_that_cannot_be_scanned_goes_as_batches_by_the_same_plan(
    tmp_path: Path, database: Database, files: dict[str, str]
) -> None:
    database.run("CREATE TABLE big AS SELECT n AS id, ARRAY[n, NULL] AS filler FROM generate_series(1, 500) n")
    opened = demo(tmp_path, database.options, TO_LAKE, files=files)
    for _ in range(2):
        assert errors(run(opened)) == {}
    assert sorted(rows(tmp_path / "out/big/*.parquet")) == [(n, [n, None]) for n in range(1, 501)]


@CHAINS
def test_a_run_that_waits_for_a_lock_is_cancelled_at_once(
    tmp_path: Path, database: Database, files: dict[str, str]
) -> None:
    database.run(TABLE)
    query = "SELECT id, filler FROM big, pg_advisory_lock_shared(7)"
    opened = demo(tmp_path, database.options, TO_LAKE, entities={"big": {"read": {"query": query}}}, files=files)
    cancel, ended = CancelToken(), []
    with database.connect() as other:
        running = threading.Thread(target=lambda: ended.append(run(opened, cancel=cancel)))
        other.execute("SELECT pg_advisory_lock(7)")
        running.start()
        while database.rows("SELECT FROM pg_locks WHERE NOT granted") == []:
            assert running.is_alive()
        cancel.cancel()
        running.join(60)
        assert not running.is_alive()
    assert ended[0].cancelled


def test_the_plan_says_that_duckdb_reads_unless_a_read_is_to_be_resumed(tmp_path: Path, database: Database) -> None:
    database.run(TABLE)
    assert scanner.MECHANISM in str(demo(tmp_path, database.options, TO_LAKE).plan())
    ranged = {"big": {"read": {"partition_column": "id"}}}
    assert scanner.MECHANISM not in str(demo(tmp_path, database.options, TO_LAKE, entities=ranged).plan())


@CHAINS
def test_no_session_of_a_scan_outlives_its_run(tmp_path: Path, database: Database, files: dict[str, str]) -> None:
    database.run(TABLE)
    assert errors(run(demo(tmp_path, database.options, TO_LAKE, files=files))) == {}
    ours = "application_name = 'pz' AND datname = current_database()"
    assert database.rows(f"SELECT count(*) FROM pg_stat_activity WHERE {ours}") == [(0,)]


def test_texts_of_a_scan_are_staged_as_they_come(tmp_path: Path, database: Database) -> None:
    """To compress them takes as long as to decode the rows, and the server waits meanwhile."""
    database.run("CREATE TABLE big AS SELECT n AS id, repeat(n::text, 9) AS filler FROM generate_series(1, 5000) n")
    sql = "INSERT INTO {{ sink('pg', 'copied', strategy: 'replace') }} SELECT id, filler FROM {{ source('pg', 'big') }}"
    opened = demo(tmp_path, database.options, sql, files=STAGED)
    assert errors(run(opened)) == {}
    [staged] = tmp_path.glob(".pz/runs/*/staging.duckdb")
    with duckdb.connect(str(staged), read_only=True) as connection:
        found = connection.execute(
            "SELECT DISTINCT compression FROM pragma_storage_info('staging.staging.src_pg__big') WHERE segment_type = 'VARCHAR'"
        ).fetchall()
    assert found == [("Uncompressed",)]
    assert sorted(database.rows("SELECT * FROM copied")) == sorted(database.rows("SELECT * FROM big"))
