"""Two outputs that are one file or table under two names are refused before one undoes the other."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import pz
from running import project, rows, run

CONNECTIONS = """\
lake: { connector: localfiles, root: out }
other: { connector: localfiles, root: ./data/../out/ }
free: { connector: localfiles }
linked: { connector: localfiles, root: link }
db: { connector: duckdb, path: shop.duckdb }
db2: { connector: duckdb, path: ./shop.duckdb }
"""


def two(tmp_path: Path, first: str, second: str) -> pz.OpenProject:
    """A project of two pipelines that write one output each; the arguments of the two calls of ``sink``."""
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    files = {
        name: f"INSERT INTO {{{{ sink({sink}) }}}}\nSELECT 1 AS id" for name, sink in (("a", first), ("b", second))
    }
    pipelines = {f"pipelines/{name}.sql": text for name, text in files.items()}
    return project(tmp_path, {"connections.yml": CONNECTIONS, **pipelines})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("'lake', 'o', strategy: 'replace'", "'other', 'o', strategy: 'replace'"),
        ("'lake', 'o', strategy: 'replace'", "'free', 'o', path: 'out/o', strategy: 'replace'"),
        ("'lake', 'o', strategy: 'replace'", "'linked', 'o', strategy: 'replace'"),
        ("'db', 'o', strategy: 'replace'", "'db', 'O', strategy: 'replace'"),
        ("'db', 'o', strategy: 'replace'", "'db', 'main.o'"),
        ("'db', 's.o'", "'db2', 's.o'"),
    ],
)
def test_one_place_under_two_names_is_refused(tmp_path: Path, first: str, second: str) -> None:
    demo = two(tmp_path, first, second)
    for verb in (demo.plan, lambda: run(demo)):
        with pytest.raises(pz.ProjectError) as refused:
            verb()
        (problem,) = refused.value.problems
        assert problem.code == "PZ0206"
        assert problem.where in {"pipelines/a.sql:1", "pipelines/b.sql:1"}
        assert "is the same place as" in problem.message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("'lake', 'o', format: 'csv', strategy: 'replace'", "'other', 'o', format: 'parquet', strategy: 'replace'"),
        ("'lake', 'o', strategy: 'replace'", "'lake', 'p', path: 'o', strategy: 'replace'"),
        ("'lake', 'o'", "'other', 'o'"),
        ("'db', 'o'", "'db', 's_o'"),
    ],
)
def test_two_places_are_left_alone(tmp_path: Path, first: str, second: str) -> None:
    assert run(two(tmp_path, first, second)).exit_code == 0


def test_appends_to_one_folder_add_up(tmp_path: Path) -> None:
    assert run(two(tmp_path, "'lake', 'o'", "'other', 'o'")).exit_code == 0
    assert rows(tmp_path / "out/o/*.parquet") == [(1,), (1,)]


def reader(tmp_path: Path, source: str, sink: str) -> pz.OpenProject:
    """A project with a pipeline that writes and one that reads; the arguments of the calls of ``sink`` and ``source``."""
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    files = {
        "pipelines/a.sql": f"INSERT INTO {{{{ sink({sink}) }}}}\nSELECT 1 AS id",
        "pipelines/b.sql": f"INSERT INTO {{{{ sink('pg', 'copied') }}}}\nSELECT * FROM {{{{ source({source}) }}}}",
    }
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as made:
        made.execute("CREATE SCHEMA s; CREATE TABLE s.o (id int); CREATE TABLE t (id int)")
    pg = "pg: { connector: postgres, host: h, database: d }\npg2: { connector: postgres, host: h, port: 5432, database: d }\n"
    return project(tmp_path, {"connections.yml": CONNECTIONS + pg, **files})


def told(opened: pz.OpenProject) -> list[str]:
    return [problem.message for problem in opened.validate() if problem.code == "PZ0719"]


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("'lake', 'o', path: 'o/o.parquet', format: 'parquet'", "'lake', 'o', strategy: 'replace'"),
        ("'lake', 'o', path: 'o/*.parquet', format: 'parquet'", "'other', 'o'"),
        ("'lake', 'o', path: '**/*.parquet', format: 'parquet'", "'lake', 'o', path: 'deep/er'"),
        ("'linked', 'o', path: '*/[a-z]*.csv'", "'free', 'o', path: 'out/x', format: 'csv'"),
        ("'db', 's.o'", "'db2', 'S.O'"),
        ("'pg', 'o'", "'pg2', 'public.o'"),
    ],
)
def test_reading_what_the_same_run_writes_is_told_to_have_no_order(tmp_path: Path, source: str, sink: str) -> None:
    opened = reader(tmp_path, source, sink)
    (message,) = told(opened)
    assert "not guaranteed" in message
    (problem,) = (p for p in opened.plan().warnings if p.code == "PZ0719")
    assert (str(problem.severity), "ref('a')" in problem.advice) == ("warning", True)
    assert [p.code for p in opened.plan("b").warnings if p.code == "PZ0719"] == [], "the writer is not in this run"


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("'lake', 'o', path: 'o/*.csv'", "'lake', 'o'"),
        ("'lake', 'o', path: '*.parquet', format: 'parquet'", "'lake', 'o'"),
        ("'lake', 'p', path: 'p/*.parquet', format: 'parquet'", "'lake', 'o'"),
        ("'db', 't'", "'db2', 'o'"),
        ("'pg', 't'", "'pg2', 'o'"),
        ("'pg', 'other.o'", "'pg2', 'o'"),
    ],
)
def test_reading_elsewhere_is_not_told(tmp_path: Path, source: str, sink: str) -> None:
    assert told(reader(tmp_path, source, sink)) == []


def test_a_flow_that_reads_its_own_output_has_an_order(tmp_path: Path) -> None:
    sql = "INSERT INTO {{ sink('db', 'o', strategy: 'replace') }} SELECT * FROM {{ source('db', 'o') }}"
    assert told(project(tmp_path, {"connections.yml": CONNECTIONS, "pipelines/a.sql": sql})) == []
