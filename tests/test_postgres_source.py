"""Reading from PostgreSQL: pushdown, bounds, key ranges under one snapshot, the probe."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postgres_server import Database
from postgres_support import as_text, cancelled_when_busy, dataset, read, source_of
from pz.connectors.contract import BatchOptions, Bound, CancelToken, Column, ReadHints
from pz.connectors.postgres.faults import translate
from pz.connectors.postgres.partitions import KeyRange, PostgresPartition
from pz.connectors.postgres.relation import plain_query
from pz.errors import Cancelled, Code, ConnectorError, PermanentError, TransientError


def ids(table: pa.Table, column: str = "id") -> list[Any]:
    return sorted(table.column(column).to_pylist(), key=lambda value: (value is None, value))


def test_a_table_and_a_query_with_comment_and_semicolon_are_read(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT i AS id, i * 2 AS n FROM generate_series(1, 10) i")
    source = source_of(database)
    assert ids(read(source, dataset())) == list(range(1, 11))
    query = "SELECT id, n FROM t WHERE id > 5; -- the rest\n ; "
    assert ids(read(source, dataset(options={"query": query.replace("; -- the rest", " -- the rest")}))) == [
        6,
        7,
        8,
        9,
        10,
    ]
    assert ids(read(source, dataset(options={"query": "SELECT id FROM t -- all"}))) == list(range(1, 11))
    assert read(source, dataset(options={"query": "SELECT id FROM t WHERE false"})).num_rows == 0


def test_names_are_exact_and_missing_tables_are_told(database: Database) -> None:
    database.run('CREATE SCHEMA "S p"', 'CREATE TABLE "S p"."T ""x" ("Order" int, "select" text)')
    database.run('INSERT INTO "S p"."T ""x" VALUES (1, \'a\')')
    assert as_text(read(source_of(database), dataset('S p.T "x'))) == [("1", "a")]
    for entity in ("t", "S p.t", "a.b.c"):
        with pytest.raises(PermanentError):
            source_of(database).probe(dataset(entity))


def test_columns_are_pruned_and_unknown_names_drop_the_pruning(database: Database) -> None:
    database.run('CREATE TABLE t (id int, "Name" text, big text)', "INSERT INTO t VALUES (1, 'a', 'b')")
    source = source_of(database)
    assert read(source, dataset(), ReadHints(columns=("name", "id"))).column_names == ["id", "Name"]
    assert read(source, dataset(), ReadHints(columns=("id", "gone"))).column_names == ["id", "Name", "big"]
    query = {"query": "SELECT * FROM t"}
    assert read(source, dataset(options=query), ReadHints(columns=("big",))).column_names == ["big"]


ROWS = """
CREATE TABLE t AS SELECT i AS id, (i % 5)::smallint AS s, (i * 0.25)::numeric(8,2) AS n, i % 3 = 0 AS b,
  date '2024-01-01' + i AS d, timestamp '2024-01-01 00:00' + i * interval '6 hours' AS ts,
  timestamptz '2024-01-01 00:00+00' + i * interval '6 hours' AS z,
  CASE WHEN i % 4 > 0 THEN chr(64 + i % 40) || CASE WHEN i % 2 = 0 THEN 'a' ELSE 'B' END END AS t,
  (i / 3.0)::float8 AS f, ('x' || i)::char(5) AS c, (i * 0.25)::numeric::money AS m
FROM generate_series(-20, 60) i
"""

PREDICATES = [
    "(id > 10)",
    "(id <= 10) AND (s = 3)",
    "((id = 1) OR (id = 7) OR (n > 12.50))",
    "(n >= 3.75) AND (b = true)",
    "(id IN (1, 2, 30, -5))",
    "(id BETWEEN -3 AND 12)",
    "(t IS NULL)",
    "(t IS NOT NULL) AND (t <> 'Aa')",
    "(t > 'Za')",
    "(t = 'Ha')",
    "(t < 'a')",
    "(d >= DATE '2024-01-20')",
    "(d = '2024-01-20')",
    "(ts < TIMESTAMP '2024-01-05 06:00:00')",
    "(ts >= '2024-01-05')",
    "(z > '2024-01-03 00:00:00')",
    "(10 < id)",
    "(id <> 3)",
    "(NOT (id = 3))",
    "(id % 2 = 0) AND (id > 3)",
    "(f > 3.3)",
    "(c <> 'x5')",
    "(m > 2)",
    "(m = 2.25)",
    "(length(t) = 2) AND (s < 2)",
    "(lower(t) = 'ha')",
    "(id > 1e1)",
    "(t LIKE 'H%')",
]


@pytest.fixture(scope="module")
def filtered(postgres_server: Any) -> Any:
    made = postgres_server.database()
    made.run(ROWS)
    return made


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_pushed_filter_never_loses_a_row_that_duckdb_keeps(filtered: Database, predicate: str) -> None:
    import duckdb

    source = source_of(filtered)
    everything = read(source, dataset())
    pushed = read(source, dataset(), ReadHints(predicate=predicate))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("everything", everything)
        connection.register("pushed", pushed)
        wanted = sorted(connection.execute(f"SELECT id FROM everything WHERE {predicate}").fetchall())
        assert sorted(connection.execute(f"SELECT id FROM pushed WHERE {predicate}").fetchall()) == wanted


def test_what_can_be_pushed_is_pushed(filtered: Database) -> None:
    source = source_of(filtered)
    assert read(source, dataset(), ReadHints(predicate="(id > 58)")).num_rows == 2
    assert read(source, dataset(), ReadHints(predicate="(lower(t) = 'ha') AND (id > 58)")).num_rows == 2


CURSORS = {
    "id": ("3", "7"),
    "n": ("0.75", "1.75"),
    "d": ("2024-01-04", "2024-01-08"),
    "ts": ("2024-01-01T18:00:00.000000", "2024-01-02T18:00:00.000000"),
    "z": ("2024-01-01T18:00:00.000000", "2024-01-02T18:00:00.000000"),
}


@pytest.mark.parametrize(("low", "high"), list(itertools.product([True, False], repeat=2)))
@pytest.mark.parametrize("cursor", CURSORS)
def test_both_ends_of_a_bound_are_honoured_for_every_cursor_type(
    filtered: Database, cursor: str, low: bool, high: bool
) -> None:
    lower, upper = CURSORS[cursor]
    data = dataset(cursor=cursor, lower=Bound(lower, low), upper=Bound(upper, high))
    for options in ({}, {"query": "SELECT * FROM t"}, {"partition_column": "id", "partitions": 3}):
        expected = list(range(3 if low else 4, 8 if high else 7))
        source = source_of(filtered)
        found = read(source, dataset(options=options, cursor=cursor, lower=data.lower, upper=data.upper))
        source.close()
        assert ids(found) == expected


def test_bounds_mean_utc_whatever_the_time_zone_of_the_database(database: Database) -> None:
    database.run(f"ALTER DATABASE {database.name} SET TimeZone TO 'America/New_York'")
    database.run(
        "CREATE TABLE t (id int, z timestamptz)",
        "INSERT INTO t VALUES (1, '2024-01-01 00:00+00'), (2, '2024-01-01 05:00+00')",
    )
    source = source_of(database)
    data = dataset(cursor="z", lower=Bound("2024-01-01T00:00:00.000000", False))
    assert ids(read(source, data)) == [2]
    assert source.probe(dataset(cursor="z")).upper == "2024-01-01T05:00:00.000000"


def test_rows_without_a_cursor_pass_the_bounds_and_are_counted(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int, at timestamp)", "INSERT INTO t VALUES (1, NULL), (2, '2024-01-01'), (3, '2023-01-01')"
    )
    source = source_of(database)
    data = dataset(cursor="at", lower=Bound("2023-06-01T00:00:00.000000", False))
    assert ids(read(source, data)) == [1, 2]
    assert source.probe(data).null_cursors == 1


def test_the_probe_tells_columns_size_highest_cursor_and_partitions(filtered: Database) -> None:
    filtered.run("ANALYZE t")
    found = source_of(filtered).probe(dataset(cursor="ts", options={"partition_column": "id"}))
    assert (found.rows, found.null_cursors, found.partitions) == (81, 0, 1)
    assert found.upper == "2024-01-16T00:00:00.000000"
    assert found.bytes is not None
    assert found.bytes > 0
    assert found.columns is not None
    assert found.columns[:3] == (Column("id", "INTEGER"), Column("s", "SMALLINT"), Column("n", "DECIMAL(8,2)"))
    for cursor, upper in {"id": "60", "n": "15.00", "d": "2024-03-01", "s": "4"}.items():
        assert source_of(filtered).probe(dataset(cursor=cursor)).upper == upper


@pytest.mark.parametrize("value", ["infinity", "0044-01-01 BC"])
def test_a_highest_cursor_that_no_state_can_hold_is_refused(database: Database, value: str) -> None:
    database.run("CREATE TABLE t (at timestamp)", f"INSERT INTO t VALUES ('{value}')")
    with pytest.raises(PermanentError, match="cannot be stored") as refused:
        source_of(database).probe(dataset(cursor="at"))
    assert refused.value.code is Code.PZ0505


def test_names_that_are_not_there_are_told_with_those_that_were_meant(database: Database) -> None:
    database.run("CREATE SCHEMA sales", "CREATE TABLE sales.orders (id int, updated_at timestamp)")
    source = source_of(database)
    for entity, cursor, hint in (
        ("sales.oders", None, "did you mean 'sales.orders'?"),
        ("sale.orders", None, "did you mean 'sales.orders'?"),
        ("sales.orders", "update_at", "did you mean 'updated_at'?"),
        ("sales.orders", "when", "its columns: id, updated_at"),
    ):
        with pytest.raises(PermanentError) as refused:
            source.probe(dataset(entity, cursor=cursor))
        assert refused.value.hint == hint


def test_a_year_of_five_digits_is_a_cursor_like_any_other(database: Database) -> None:
    database.run("CREATE TABLE t (at timestamp)", "INSERT INTO t VALUES ('20231-01-01')")
    source = source_of(database)
    upper = source.probe(dataset(cursor="at")).upper
    assert upper == "20231-01-01T00:00:00.000000"
    assert read(source, dataset(cursor="at", upper=Bound(upper, True))).num_rows == 1


# --- partitions

RANGED = {
    "integer": ["1", "2", "3", "7", "100", "-5", "2147483647", "-2147483648"],
    "bigint": ["9223372036854775807", "-9223372036854775808", "9007199254740993", "9007199254740992", "0"],
    "numeric(20,3)": ["0.001", "-17.5", "12345678901234567.125", "9", "10", "NaN"],
    "numeric": ["0.1", "0.3", "1e-9", "22222222222222222222.5"],
    "float8": ["0.1", "0.3", "NaN", "Infinity", "-Infinity", "1e300", "-2.5"],
    "date": ["2024-01-01", "infinity", "-infinity", "0044-01-01 BC", "15000-01-01", "1999-12-31"],
    "timestamp": ["2024-01-01 00:00:00.000001", "2024-01-01 00:00:00.000002", "infinity", "20231-01-01", "0001-01-01"],
    "timestamptz": ["2024-01-01 00:00+05", "2024-06-01 00:00-12", "-infinity"],
}


def tiles(database: Database, data: Any) -> tuple[int, int]:
    """How many ranges are planned, and how many rows do not lie in exactly one of them."""
    source = source_of(database)
    try:
        parts = [part for part in source.plan_read(data, ReadHints()) if isinstance(part, PostgresPartition)]
    finally:
        source.close()
    assert len({part.partition_id for part in parts}) == len(parts)
    query = data.options.get("query", "SELECT * FROM t")
    hits = " + ".join(f"coalesce({part.range.condition}, false)::int" for part in parts)
    [(stray,)] = database.rows(f"SELECT count(*) FROM ({query}) q WHERE ({hits}) IS DISTINCT FROM 1")
    return len(parts), stray


@pytest.mark.parametrize("kind", RANGED)
def test_ranges_tile_every_orderable_type_with_nulls_in_exactly_one(database: Database, kind: str) -> None:
    values = ", ".join(f"({n}, '{value}'::{kind})" for n, value in enumerate([*RANGED[kind], *RANGED[kind]]))
    database.run(f"CREATE TABLE t (id int, v {kind})", f"INSERT INTO t VALUES {values}, (-1, NULL), (-2, NULL)")
    for count in (1, 2, 3, 5, 16):
        planned, stray = tiles(
            database, dataset(columns={"v": "varchar"}, options={"partition_column": "v", "partitions": count})
        )
        assert 1 <= planned <= count
        assert stray == 0
    source = source_of(database)
    data = dataset(columns={"id": "int"}, options={"partition_column": "v", "partitions": 3})
    assert ids(read(source, data)) == sorted([-2, -1, *range(2 * len(RANGED[kind]))])
    source.close()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), st.integers(-50, 50)), max_size=12), st.integers(1, 16))
def test_any_column_of_integers_is_tiled(filtered: Database, values: list[int | None], count: int) -> None:
    listed = ", ".join("(NULL::int)" if value is None else f"({value})" for value in values) or "(NULL)"
    query = f"SELECT v::int AS id FROM (VALUES {listed}) x(v)"
    _, stray = tiles(filtered, dataset(options={"query": query, "partition_column": "id", "partitions": count}))
    assert stray == 0


def test_rows_that_come_below_and_above_after_planning_lie_in_the_open_ends() -> None:
    ranges = [KeyRange("v", None, "5"), KeyRange("v", "5", "9"), KeyRange("v", "9", None)]
    assert ranges[0].condition == '("v" < 5 OR "v" IS NULL)'
    assert ranges[2].condition == '("v" >= 9)'
    assert [KeyRange.from_json(found.to_json()) for found in ranges] == ranges


def test_all_partitions_see_one_snapshot(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 100) i")
    source = source_of(database)
    data = dataset(options={"partition_column": "id", "partitions": 4})
    parts = list(source.plan_read(data, ReadHints()))
    first = read(source, data, partitions=parts[:1])
    database.run("DELETE FROM t WHERE id > 50", "INSERT INTO t VALUES (0), (1000)")
    rest = read(source, data, partitions=parts[1:])
    source.close()
    assert ids(pa.concat_tables([first, rest])) == list(range(1, 101))


def test_a_partition_column_that_has_no_order_is_refused(database: Database) -> None:
    database.run("CREATE TABLE t (id uuid, s text)")
    source = source_of(database)
    for column in ("id", "s", "gone"):
        with pytest.raises(PermanentError):
            list(source.plan_read(dataset(options={"partition_column": column}), ReadHints()))
    source.close()
    with pytest.raises(PermanentError, match="partition_column"):
        source_of(database).probe(dataset(options={"partitions": 2}))


def test_ranges_of_a_primary_key_are_restored_as_they_were_pinned(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT i, i FROM generate_series(1, 90) i"
    )
    data = dataset(options={"partition_column": "id", "partitions": 3})
    first = source_of(database)
    planned = [part for part in first.plan_read(data, ReadHints()) if isinstance(part, PostgresPartition)]
    first.close()
    database.run("INSERT INTO t SELECT i, i FROM generate_series(91, 500) i")
    later = source_of(database)
    restored = [later.restore_partition(data, ReadHints(), part.spec) for part in planned]
    assert [part.partition_id for part in restored if isinstance(part, PostgresPartition)] == [
        part.partition_id for part in planned
    ]
    assert ids(read(later, data, partitions=restored)) == list(range(1, 501))
    later.close()


def test_ranges_that_may_not_outlive_their_snapshot_are_not_restored(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT i, i FROM generate_series(1, 90) i"
    )
    for options in (
        {"partition_column": "n", "partitions": 2},
        {"partition_column": "id", "partitions": 2, "consistent": True},
        {"query": "SELECT * FROM t", "partition_column": "id", "partitions": 2},
    ):
        data, seen = dataset(options=options), set()
        for _ in range(2):
            source = source_of(database)
            parts = [part for part in source.plan_read(data, ReadHints()) if isinstance(part, PostgresPartition)]
            seen |= {part.partition_id for part in parts}
            with pytest.raises(PermanentError, match="read again"):
                source_of(database).restore_partition(data, ReadHints(), parts[0].spec)
            source.close()
        assert len(seen) == 4


def test_a_large_table_is_read_by_pages_under_one_snapshot(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pz.connectors.postgres.partitions.PAGES_PER_READER", 4)
    database.run(
        "CREATE TABLE t AS SELECT i AS id, repeat('x', 200) AS pad FROM generate_series(1, 3000) i", "VACUUM ANALYZE t"
    )
    source = source_of(database)
    [part] = source.plan_read(dataset(), ReadHints())
    batches = part.read(BatchOptions(), CancelToken())
    first = next(iter(batches))
    database.run("UPDATE t SET id = id + 100000")
    rest = list(batches)
    source.close()
    assert ids(pa.Table.from_batches([first, *rest])) == list(range(1, 3001))


def test_batches_keep_to_the_asked_number_of_rows(filtered: Database) -> None:
    source = source_of(filtered)
    [part] = source.plan_read(dataset(), ReadHints())
    sizes = [batch.num_rows for batch in part.read(BatchOptions(max_rows=10), CancelToken())]
    assert sizes == [10] * 8 + [1]


def test_a_cancelled_read_stops(database: Database) -> None:
    source, cancel = source_of(database), CancelToken()
    database.run("CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i")
    endless = {"query": "SELECT a.id, repeat('x', 1000) AS pad FROM t a, t b, t c"}
    [part] = source.plan_read(dataset(options=endless), ReadHints())
    batches = iter(part.read(BatchOptions(target_bytes=100_000), cancel))
    next(batches)
    cancel.cancel()
    with pytest.raises(Cancelled):
        list(batches)
    blocked, later = {"query": "SELECT pg_sleep(600)::text AS s"}, CancelToken()
    [part] = source.plan_read(dataset(options=blocked), ReadHints())
    import threading

    timer = threading.Timer(0.3, later.cancel)
    timer.start()
    with pytest.raises(Cancelled):
        list(part.read(BatchOptions(), later))
    timer.join()


def test_a_cancellation_just_before_a_statement_is_not_forgotten(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server forgets a request that comes while nothing runs; the read then went on to its end."""
    from adbc_driver_manager.dbapi import Cursor

    source, cancel = source_of(database), CancelToken()
    [part] = source.plan_read(dataset(options={"query": "SELECT pg_sleep(600)::text AS s"}), ReadHints())
    execute = Cursor.execute

    def late(cursor: Cursor, *arguments: Any, **options: Any) -> Any:
        cancel.cancel()
        time.sleep(0.2)  # the first request comes to nothing
        return execute(cursor, *arguments, **options)

    monkeypatch.setattr(Cursor, "execute", late)
    with pytest.raises(Cancelled):
        list(part.read(BatchOptions(), cancel))


@pytest.mark.parametrize("how", ["probe", "plan"])
def test_a_cancelled_run_ends_the_statement_of_a_probe_and_of_a_plan(database: Database, how: str) -> None:
    query = "SELECT k FROM generate_series(1, 9) k, pg_sleep(600) s"
    source, cancel = source_of(database), CancelToken()
    source.use_cancel(cancel)
    cut = dataset(options={"query": query, "partition_column": "k", "partitions": 2})
    act: Callable[[], object] = {
        "probe": lambda: source.probe(dataset(options={"query": query}, cursor="k")),
        "plan": lambda: source.plan_read(cut, ReadHints()),
    }[how]
    with cancelled_when_busy(database, cancel), pytest.raises(Cancelled):
        act()
    source.close()
    with pytest.raises(Cancelled):
        source.probe(dataset(options={"query": query}, cursor="k"))


def test_the_errors_of_a_read_are_told_apart_and_show_no_value(database: Database) -> None:
    database.run("CREATE TABLE t (v text)", "INSERT INTO t VALUES ('topsecret')")
    source = source_of(database)
    with pytest.raises(PermanentError) as refused:
        read(source, dataset(options={"query": "SELECT v::int AS v FROM t"}))
    assert "topsecret" not in str(refused.value)
    dying = {"query": "SELECT pg_terminate_backend(pg_backend_pid())::text AS v FROM generate_series(1, 3)"}
    with pytest.raises(TransientError):
        read(source, dataset(options=dying))
    with pytest.raises(PermanentError, match="syntax"):
        source.probe(dataset(options={"query": "SELEC 1"}))
    with pytest.raises(ConnectorError, match="a name"):
        source.probe(dataset(options={"query": "SELECT 1, 2"}))
    with pytest.raises(PermanentError, match="cursor"):
        source.probe(dataset(cursor="gone"))
    with pytest.raises(TransientError):
        source_of(database, port=1).probe(dataset())


def test_views_materialized_views_and_partitioned_tables_are_read(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE t2 PARTITION OF t DEFAULT",
        "INSERT INTO t SELECT generate_series(1, 20)",
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM t",
        "CREATE TABLE parent (id int)",
        "CREATE TABLE child () INHERITS (parent)",
        "INSERT INTO parent SELECT generate_series(1, 10)",
        "INSERT INTO child SELECT generate_series(11, 20)",
    )
    source = source_of(database)
    for entity in ("t", "v", "m", "parent"):
        assert ids(read(source, dataset(entity))) == list(range(1, 21))
        assert source.probe(dataset(entity)).columns == (Column("id", "INTEGER"),)


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ("SELECT 1 AS a; -- done", "SELECT 1 AS a"),
        ("\n SELECT 1 AS a /* ; */ ;;\n-- a\n;", "SELECT 1 AS a"),
        ("SELECT '-- ;' AS a", "SELECT '-- ;' AS a"),
        ("SELECT 'it''s; --' AS a;", "SELECT 'it''s; --' AS a"),
        (r"SELECT E'\'; --' AS a ;", r"SELECT E'\'; --' AS a"),
        (r"SELECT date'2024-01-01' AS a, '\' AS b;", r"SELECT date'2024-01-01' AS a, '\' AS b"),
        ('SELECT 1 AS "; --"; --x', 'SELECT 1 AS "; --"'),
        ("SELECT $$; --$$ AS a; --", "SELECT $$; --$$ AS a"),
        ("SELECT $x$; $$ --$x$ AS a; --", "SELECT $x$; $$ --$x$ AS a"),
        ("-- all\nSELECT 1 AS a", "-- all\nSELECT 1 AS a"),
        ("  ; -- nothing", ""),
    ],
)
def test_the_end_of_a_query_is_found_behind_all_that_looks_like_it(query: str, plain: str) -> None:
    assert plain_query(query) == plain


@pytest.mark.parametrize("query", ["SELECT * FROM nowhere", "SELECT 1 AS a; SELECT 2", "DELETE FROM t", ";"])
def test_a_query_that_the_server_refuses_is_told_with_what_to_correct(database: Database, query: str) -> None:
    with pytest.raises(PermanentError) as refused:
        source_of(database).probe(dataset(options={"query": query}))
    assert refused.value.code is Code.PZ0747
    assert "query" in str(refused.value.hint)


def test_a_server_that_is_busy_is_told_with_what_to_do(database: Database) -> None:
    database.run("CREATE TABLE t (a int)")
    with database.connect() as blocking:
        blocking.autocommit = False
        blocking.execute("LOCK TABLE t")
        with pytest.raises(TransientError) as refused:
            source_of(database, command_timeout_seconds=1).probe(dataset())
        assert "command_timeout_seconds" in str(refused.value.hint)
    with pytest.raises(PermanentError) as unsecured:
        source_of(database, ssl_mode="require").probe(dataset())
    assert "ssl_mode" in str(unsecured.value.hint)
    in_use = psycopg.errors.ObjectInUse("slot is active for PID 7")
    assert "pg_terminate_backend" in str(translate(in_use, "s").hint)
    full = RuntimeError('FATAL:  too many connections for role "r"')
    assert "max_concurrency" in str(translate(full, "s").hint)


def test_a_refused_read_is_told_in_the_words_of_the_server(database: Database) -> None:
    failure = RuntimeError(
        "UNAUTHORIZED: [libpq] Failed to execute query: could not begin COPY: ERROR:  permission denied"
    )
    assert translate(failure, "table t").message == "table t: permission denied"
