"""A path that no file matches: what was meant, from the names that are there."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import pz
from pz.connectors.files.nearby import nearby
from pz.connectors.files.paths import FileRoot
from pz.errors import PzError
from running import project


def tree(root: Path, *names: str) -> FileRoot:
    for name in names:
        path = root / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return FileRoot.of(root, "data")


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("oders.csv", "did you mean 'orders.csv'?"),
        ("orders.CSV", "did you mean 'orders.csv'?"),
        ("2023/parts-01.parquet", "did you mean '2024/parts-01.parquet'?"),
        ("2024/part-01.parquet", "did you mean '2024/parts-01.parquet'?"),
        ("2024/*.csv", "in '2024' there are: parts-01.parquet, parts-02.parquet"),
        ("quite_other.json", "in '.' there are: 2024, empty, orders.csv, users.csv"),
        ("empty/*.csv", "'empty' is empty"),
    ],
)
def test_the_nearest_names_are_told(tmp_path: Path, path: str, advice: str) -> None:
    root = tree(tmp_path, "orders.csv", "users.csv", "2024/parts-01.parquet", "2024/parts-02.parquet", "empty/.keep")
    assert nearby(root, path) == advice


def test_a_root_that_is_not_there_is_told_like_any_other_directory(tmp_path: Path) -> None:
    tree(tmp_path, "orders.csv")
    assert nearby(FileRoot.of(tmp_path, "dat"), "orders.csv") == f"did you mean '{tmp_path}/data/orders.csv'?"


def test_many_names_are_not_all_told(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"{number}.csv" for number in range(1, 9)))
    assert nearby(root, "*.json") == "in '.' there are: 1.csv, 2.csv, 3.csv, 4.csv, 5.csv and 3 more"


LAKE = "lake: {connector: localfiles, root: out}\n"
SQL = "INSERT INTO {{ sink('lake', 'o', strategy: 'replace') }} SELECT * FROM {{ source('here', '%s') }}"


def refusal(opened: pz.OpenProject) -> tuple[str, str | None]:
    with pytest.raises(PzError) as refused:
        opened.run()
    [problem] = refused.value.problems
    assert not opened.runs()
    return problem.message.partition(": ")[2], problem.hint


def test_a_run_is_refused_with_the_file_that_was_meant(tmp_path: Path) -> None:
    files = {
        "connections.yml": LAKE + "here: {connector: localfiles, root: data}\n",
        "pipelines/p.sql": SQL % "oders",
        "data/orders.csv": "a\n1\n",
    }
    assert refusal(project(tmp_path, files)) == ("no file matches 'oders.csv'", "did you mean 'orders.csv'?")


def test_a_run_is_refused_with_the_table_or_the_database_that_was_meant(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as shop:
        shop.execute("CREATE SCHEMA sales; CREATE TABLE sales.orders (a INTEGER); CREATE VIEW users AS SELECT 1 AS a")
    connections = LAKE + "here: {connector: duckdb, path: %s}\n"
    files = {"connections.yml": connections % "shop.duckdb", "pipelines/p.sql": SQL % "sales.oders"}
    message = "DuckDB file 'shop.duckdb' has no table 'sales.oders'"
    assert refusal(project(tmp_path, files)) == (message, "did you mean 'sales.orders'?")
    files["pipelines/p.sql"] = SQL % "user"
    assert refusal(project(tmp_path, files))[1] == "did you mean 'users'?"
    files["connections.yml"] = connections % "shp.duckdb"
    message = "DuckDB file 'shp.duckdb' does not exist"
    assert refusal(project(tmp_path, files)) == (message, "did you mean 'shop.duckdb'?")
