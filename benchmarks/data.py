"""The table that is moved: 16 columns of common types, the same on every machine."""

from __future__ import annotations

from pathlib import Path

import duckdb

COLUMNS = {
    "id": "bigint",
    "customer": "int",
    "quantity": "int",
    "day_of_year": "int",
    "serial": "bigint",
    "ratio": "double",
    "longitude": "double",
    "price": "decimal(12,2)",
    "tax": "decimal(12,4)",
    "name": "varchar",
    "city": "varchar",
    "code": "varchar",
    "remark": "varchar",
    "paid": "boolean",
    "ordered": "date",
    "changed": "timestamp",
}

# Only integer arithmetic decides the values: hash() and random() differ between versions of DuckDB.
TABLE = """
    SELECT
        i AS id,
        (i * 7919 % 100000)::INTEGER AS customer,
        (i % 50)::INTEGER AS quantity,
        (i % 366)::INTEGER AS day_of_year,
        i * 1000003 % 9999999967 AS serial,
        (i * 31 % 1000) / 8.0::DOUBLE AS ratio,
        ((i * 17 % 36000) - 18000) / 64.0::DOUBLE AS longitude,
        ((i * 37 % 1000000) / 100)::DECIMAL(12, 2) AS price,
        ((i * 41 % 1000000) / 10000)::DECIMAL(12, 4) AS tax,
        'customer ' || (i * 7919 % 100000) AS name,
        CASE i % 5 WHEN 0 THEN 'Kraków' WHEN 1 THEN 'New York' WHEN 2 THEN 'Paris' WHEN 3 THEN 'Lima' ELSE 'Osaka' END AS city,
        printf('%08x', i * 2654435761 % 4294967296) AS code,
        CASE WHEN i % 10 = 0 THEN NULL ELSE 'remark no. ' || (i % 1000) || ', as written' END AS remark,
        i % 3 = 0 AS paid,
        DATE '2020-01-01' + (i % 2000)::INTEGER AS ordered,
        TIMESTAMP '2020-01-01' + to_seconds(i * 61 % 100000000) AS changed
    FROM range({rows}) AS numbers(i)
"""


def write_csv(path: Path, rows: int) -> None:
    """Write the table as csv, unless it is there already."""
    if path.exists():
        return
    aside = path.with_suffix(".part")
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({TABLE.format(rows=rows)}) TO '{aside}' (FORMAT csv, HEADER)")
    aside.rename(path)
