"""Two outputs that are one file or table under two names are refused before one undoes the other."""

from __future__ import annotations

from pathlib import Path

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
