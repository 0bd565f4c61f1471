"""What a contract does with the columns of its source: found by name, in the contract's order, and no others."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import pz
from pz.errors import PzError
from running import errors, project, run

KINDS = ["csv", "json", "parquet", "duckdb"]
CONNECTIONS = """
here: {connector: localfiles, root: data}
shop: {connector: duckdb, path: shop.duckdb}
lake: {connector: localfiles, root: out}
"""
SQL = """
INSERT INTO {{ sink('lake', 'o', strategy: 'replace', format: 'parquet') }}
SELECT * FROM {{ source('%s', 'o', columns: {id: 'int', name: 'varchar', amount: 'decimal(10,2)'}%s) }}
"""


def demo(root: Path, kind: str, rows: str) -> pz.OpenProject:
    (root / "data").mkdir()
    with duckdb.connect(str(root / "shop.duckdb")) as shop:
        shop.execute(f"CREATE TABLE o AS {rows}")
        if kind != "duckdb":
            shop.execute(f"COPY o TO '{root}/data/o.{kind}' (FORMAT {kind})")
    sql = SQL % (("shop", "") if kind == "duckdb" else ("here", f", format: '{kind}'"))
    return project(root, {"connections.yml": CONNECTIONS, "pipelines/p.sql": sql})


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_found_by_name_and_others_are_left_out(tmp_path: Path, kind: str) -> None:
    identity = "id" if kind == "json" else "ID"  # which tells keys apart by case
    opened = demo(
        tmp_path, kind, f"SELECT 2.5::DECIMAL(10,2) AS amount, 'more' AS extra, 7 AS {identity}, 'ada' AS name"
    )
    assert errors(run(opened)) == {}
    with duckdb.connect() as oracle:
        found = oracle.execute(f"FROM '{tmp_path}/out/o/o.parquet'")
        assert [column[0] for column in found.description] == ["id", "name", "amount"]
        assert [(row[0], row[1], float(row[2])) for row in found.fetchall()] == [(7, "ada", 2.5)]


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb"])
def test_a_column_that_is_not_there_is_refused_before_anything_moves(tmp_path: Path, kind: str) -> None:
    opened = demo(tmp_path, kind, "SELECT 7::INT AS id, 2.5::DECIMAL(10,2) AS amount")
    with pytest.raises(PzError, match="name"):
        run(opened)
    assert not opened.runs()


def test_what_a_json_record_lacks_is_null(tmp_path: Path) -> None:
    assert errors(run(demo(tmp_path, "json", "SELECT 7::INT AS id, 2.5::DECIMAL(10,2) AS amount"))) == {}
    with duckdb.connect() as oracle:
        assert oracle.execute(f"SELECT id, name FROM '{tmp_path}/out/o/o.parquet'").fetchall() == [(7, None)]


@pytest.mark.parametrize(
    ("line", "told", "advice"),
    [
        (
            "7,ada,31.01.2024",
            "line 3, column 'at': a value does not fit the type DATE",
            "strptime(at, '%d.%m.%Y')::DATE",
        ),
        ("x,ada,2024-01-31", "line 3, column 'id': a value does not fit the type INTEGER", "CAST(trim(id) AS INTEGER)"),
    ],
)
def test_a_value_of_another_type_is_told_with_the_type_and_how_to_convert_it(
    tmp_path: Path, line: str, told: str, advice: str
) -> None:
    sql = (SQL % ("here", "")).replace("amount: 'decimal(10,2)'", "at: 'date'")
    files = {
        "connections.yml": CONNECTIONS,
        "pipelines/p.sql": sql,
        "data/o.csv": f"id,name,at\n1,bob,2024-01-01\n{line}\n",
    }
    (message,) = set(errors(run(project(tmp_path, files))).values())
    assert told in message
    assert "hint: declare it as varchar in `columns` and convert it in the SQL, such as " + advice in message
