"""Fingerprints tell relations apart, and the drain order depends on content alone."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from pz.staging.fingerprint import Fingerprint, describe, drain_sql, fingerprint

# Pairs of values that DuckDB's hash() or order takes for equal, and pairs that are merely close.
DIFFERENT = [
    ("NULL::INTEGER", "0"),
    ("''", "NULL::VARCHAR"),
    ("[]::INTEGER[]", "NULL::INTEGER[]"),
    ("[NULL]::INTEGER[]", "[]::INTEGER[]"),
    ("[[1], [2]]", "[[1, 2]]"),
    ("['a, b']", "['a', 'b']"),
    ("['NULL']", "[NULL::VARCHAR]"),
    ("[-0.0::DOUBLE]", "[0.0::DOUBLE]"),
    ("{'a': NULL::INTEGER}", "NULL::STRUCT(a INTEGER)"),
    ("{'a': NULL, 'b': 1}", "{'a': 1, 'b': NULL}"),
    ("MAP {'a': 1, 'b': 2}", "MAP {'b': 2, 'a': 1}"),
    ("-0.0::DOUBLE", "0.0::DOUBLE"),
    ("-0.0::FLOAT", "0.0::FLOAT"),
    ("'nan'::DOUBLE", "NULL::DOUBLE"),
    ("'inf'::DOUBLE", "'-inf'::DOUBLE"),
    ("INTERVAL 1 MONTH", "INTERVAL 30 DAYS"),
    ("INTERVAL 1 DAY", "INTERVAL 24 HOURS"),
    ("TIMETZ '12:00:00+02'", "TIMETZ '10:00:00+00'"),
    ("1.0::DECIMAL(4,1)", "1.0::DECIMAL(5,2)"),
    ("1::INTEGER", "1::BIGINT"),
    ("'a'::BLOB", "'b'::BLOB"),
    ("'a' COLLATE NOCASE", "'A' COLLATE NOCASE"),
    ("'a'::ENUM('a', 'b')", "'b'::ENUM('a', 'b')"),
]


@pytest.fixture
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    yield connection
    connection.close()


def of(cursor: duckdb.DuckDBPyConnection, sql: str) -> Fingerprint:
    return fingerprint(cursor, f"({sql})")


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_one_changed_value_changes_the_fingerprint(cursor: duckdb.DuckDBPyConnection, one: str, other: str) -> None:
    first, second = (of(cursor, f"SELECT {value} AS x") for value in (one, other))
    assert first.rows == second.rows == 1
    assert first.hash != second.hash


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_no_value_hashes_to_nothing(cursor: duckdb.DuckDBPyConnection, one: str, other: str) -> None:
    assert of(cursor, f"SELECT {one} AS x").hash != "0"
    assert of(cursor, f"SELECT {other} AS x").hash != "0"


def test_the_same_rows_in_another_order_are_equal(cursor: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT range AS a, range % 7 AS b, range::VARCHAR AS c, [range::DOUBLE] AS d FROM range(100000)"
    assert of(cursor, sql) == of(cursor, f"{sql} ORDER BY c DESC")


def test_values_that_move_between_rows_or_columns_are_noticed(cursor: duckdb.DuckDBPyConnection) -> None:
    seen = {
        of(cursor, f"SELECT * FROM (VALUES {rows}) t(a, b)").hash
        for rows in ("(1, 2), (3, 4)", "(1, 4), (3, 2)", "(2, 1), (4, 3)", "(1, 1), (3, 4)", "(2, 2), (3, 4)")
    }
    assert len(seen) == 5


def test_a_repeated_row_counts(cursor: duckdb.DuckDBPyConnection) -> None:
    assert of(cursor, "SELECT 1 AS a UNION ALL SELECT 1") != of(cursor, "SELECT 1 AS a")


def test_a_renamed_column_is_noticed(cursor: duckdb.DuckDBPyConnection) -> None:
    assert of(cursor, "SELECT 1 AS a") != of(cursor, "SELECT 1 AS b")


def test_an_empty_relation_hashes_to_zero(cursor: duckdb.DuckDBPyConnection) -> None:
    assert of(cursor, "SELECT 1 AS a WHERE false") == Fingerprint(0, "0")
    assert Fingerprint(0, "0").text == "0-0"


TIED = """
    SELECT * FROM (VALUES (INTERVAL 1 MONTH), (INTERVAL 30 DAYS), (INTERVAL 720 HOURS)) a(i),
        (SELECT '-0.0'::DOUBLE UNION ALL SELECT '0.0'::DOUBLE) b(d),
        (VALUES ('x' COLLATE NOCASE), ('X' COLLATE NOCASE)) c(t),
        (SELECT ['-0.0'::DOUBLE] UNION ALL SELECT ['0.0'::DOUBLE]) d(l)
"""


def test_equal_content_is_drained_alike_whatever_order_it_lies_in(cursor: duckdb.DuckDBPyConnection) -> None:
    drained = []
    for seed in range(5):
        cursor.execute("SELECT setseed(?)", [seed / 10])
        cursor.execute(f"CREATE OR REPLACE TABLE tied AS SELECT * FROM ({TIED}) ORDER BY random()")
        relation = cursor.sql(drain_sql("tied", describe(cursor, "tied")))
        drained.append([str(row) for row in relation.to_arrow_table().to_pylist()])
    assert len(set(drained[0])) == 24  # sorted by a column, DuckDB would give 0.0 back for -0.0
    assert all(rows == drained[0] for rows in drained)


def test_a_drain_continues_behind_an_offset(cursor: duckdb.DuckDBPyConnection) -> None:
    columns = describe(cursor, "range(10)")
    whole = cursor.execute(drain_sql("range(10)", columns)).fetchall()
    assert cursor.execute(drain_sql("range(10)", columns, offset=4)).fetchall() == whole[4:]


def test_the_drain_order_is_that_of_order_by_all(cursor: duckdb.DuckDBPyConnection) -> None:
    cursor.execute(
        "CREATE TABLE plain AS SELECT (n * 7919) % 101 AS a, (n % 3)::VARCHAR AS b, "
        "CASE WHEN n % 5 > 0 THEN DATE '2020-01-01' + n::INTEGER END AS c FROM range(500) t(n)"
    )
    expected = cursor.execute("SELECT * FROM plain ORDER BY ALL").fetchall()
    assert cursor.execute(drain_sql("plain", describe(cursor, "plain"))).fetchall() == expected
