"""The sample project, over its own data and over the full tables, compared with queries that were written apart from it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from pz.project.scaffold import create
from sample_data import full_tables

# Everything is read as text and looked up by scalar subqueries: nothing in common with how the pipelines do it.
ORDERS = """
    WITH flights AS (
        SELECT
            *,
            strptime(concat_ws(' ', year, month, day, hour, minute), '%Y %-m %-d %-H %-M') AS scheduled_at,
            try_cast(dep_delay AS INTEGER) AS late_out,
            try_cast(arr_delay AS INTEGER) AS late_in
        FROM read_csv('{data}/flights.csv', all_varchar=true)
    )
    SELECT
        carrier,
        (SELECT any_value(name) FROM airlines a WHERE a.carrier = flights.carrier) AS airline,
        flight::INTEGER AS flight,
        origin,
        dest,
        (SELECT any_value(name) FROM airports a WHERE a.faa = flights.dest) AS destination,
        time_hour::TIMESTAMPTZ AS time_hour,
        scheduled_at,
        scheduled_at + INTERVAL 1 MINUTE * late_out AS departed_at,
        dep_time = 'NA' AS cancelled,
        late_out AS dep_delay,
        late_in AS arr_delay,
        late_in IS NOT NULL AND late_in > 15 AS late,
        try_cast(air_time AS INTEGER) AS air_time,
        try_cast(distance AS INTEGER) AS distance,
        nullif(tailnum, 'NA') AS tailnum,
        (SELECT any_value(manufacturer) FROM planes p WHERE p.tailnum = flights.tailnum) AS manufacturer,
        (SELECT any_value(model) FROM planes p WHERE p.tailnum = flights.tailnum) AS model,
        (SELECT any_value(try_cast(seats AS INTEGER)) FROM planes p WHERE p.tailnum = flights.tailnum) AS seats,
        {weather}
    FROM flights
"""
WEATHER = """(
    SELECT any_value(try_cast({0} AS DOUBLE)) FROM weather w
    WHERE w.origin = flights.origin AND w.time_hour = flights.time_hour
) AS {0}"""
MEASURES = ("temp", "wind_speed", "precip", "visib")

DELAYS = """
    SELECT
        carrier,
        min(airline) AS airline,
        strftime(scheduled_at, '%Y-%m-01')::DATE AS month,
        sum(1)::BIGINT AS flights,
        sum(cancelled::INTEGER)::BIGINT AS cancelled,
        sum(late::INTEGER)::BIGINT AS late,
        sum(arr_delay)::BIGINT AS minutes_late,
        max(arr_delay) AS worst_delay
    FROM orders
    GROUP BY carrier, strftime(scheduled_at, '%Y-%m-01')::DATE
"""

OUTPUTS = {
    "orders": (
        "FROM read_parquet('{project}/output/orders_enriched/orders_enriched.parquet')",
        "FROM warehouse.orders_enriched",
    ),
    "delays": ("FROM read_csv('{project}/output/delays_by_carrier/delays_by_carrier.csv')",),
}


def expectation(data: Path) -> duckdb.DuckDBPyConnection:
    """A database with what the outputs must hold, in the tables ``orders`` and ``delays``."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("airlines", "airports", "planes", "weather"):
        connection.execute(f"CREATE TABLE {name} AS FROM read_csv('{data}/{name}.csv', all_varchar=true)")
    weather = ", ".join(WEATHER.format(measure) for measure in MEASURES)
    connection.execute(f"CREATE TABLE orders AS {ORDERS.format(data=data, weather=weather)}")
    connection.execute(f"CREATE TABLE delays AS {DELAYS}")
    return connection


def digest(connection: duckdb.DuckDBPyConnection, relation: str, like: str) -> tuple[object, ...]:
    """Rows and an order-free hash of whole rows, every column by name and in the expected type."""
    columns = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {like})").fetchall()
    listed = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in columns)
    query = f"SELECT count(*), sum(hash(t)::HUGEINT) FROM (SELECT {listed} {relation}) AS t"
    found = connection.execute(query).fetchone()
    assert found is not None
    return found


def run_and_compare(project: Path) -> int:
    """Run the project, compare each output; return the number of orders."""
    import pz

    result = pz.open_project(project).run(everything=True)
    assert result.exit_code == 0, result.problems or [node.error for node in result.nodes]
    with expectation(project / "data") as connection:
        connection.execute(f"ATTACH '{project}/warehouse.duckdb' AS warehouse (READ_ONLY)")
        for expected, outputs in OUTPUTS.items():
            wanted = digest(connection, f"FROM {expected}", expected)
            for output in outputs:
                relation = output.format(project=project)
                have = {
                    name for (name,) in connection.execute(f"SELECT column_name FROM (DESCRIBE {relation})").fetchall()
                }
                want = {
                    name for (name,) in connection.execute(f"SELECT column_name FROM (DESCRIBE {expected})").fetchall()
                }
                assert have == want, output
                assert digest(connection, relation, expected) == wanted, output
        (orders,) = connection.execute("SELECT count(*) FROM orders").fetchone() or (0,)
    return int(orders)


def test_the_sample_writes_what_independent_queries_say(tmp_path: Path) -> None:
    create(tmp_path / "demo", "sample")
    assert run_and_compare(tmp_path / "demo") == 2824


@pytest.mark.slow
def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    create(tmp_path / "demo", "sample")
    run_and_compare(tmp_path / "demo")
    assert run_and_compare(tmp_path / "demo") == 2824


@pytest.mark.slow
def test_the_full_year_of_flights_arrives_as_independent_queries_say(tmp_path: Path) -> None:
    create(tmp_path / "demo", "sample")
    for name, text in full_tables().items():
        (tmp_path / "demo" / "data" / f"{name}.csv").write_bytes(text.encode())
    assert run_and_compare(tmp_path / "demo") == 336_776
