"""A cursor of which no contract tells is verified where the source is asked, and only there."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import pz
from pz.errors import Problem, PzError
from running import project

CONNECTIONS = """
files: {{connector: localfiles, root: data}}
shop: {{connector: duckdb, path: shop.duckdb}}
"""
READ = "{{{{ source('{connection}', 'events', sync: {{mode: 'incremental', cursor: '{cursor}'}}) }}}}"
SQL = "INSERT INTO {{{{ sink('out', 'e', strategy: 'append', duplicates: 'accept') }}}} SELECT * FROM " + READ


def demo(root: Path, connection: str, cursor: str) -> pz.OpenProject:
    (root / "data").mkdir()
    (root / "data/events.csv").write_text("id,updated_at\n1,2024-01-01\n")
    with duckdb.connect(str(root / "shop.duckdb")) as shop:
        shop.execute("CREATE TABLE events AS SELECT 1 AS id, DATE '2024-01-01' AS updated_at")
    connections = CONNECTIONS.format() + "out: {connector: localfiles, root: out}\n"
    files = {"connections.yml": connections, "pipelines/e.sql": SQL.format(connection=connection, cursor=cursor)}
    return project(root, files)


def unverified(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.message for problem in problems if "is not verified" in problem.message]


both = pytest.mark.parametrize("connection", ["files", "shop"])


@both
def test_asking_the_source_takes_the_note_back(tmp_path: Path, connection: str) -> None:
    opened = demo(tmp_path, connection, "updated_at")
    told = f"dataset '{connection}.events': cursor 'updated_at' is not verified until the source is read"
    assert unverified(opened.plan().warnings) == unverified(opened.validate()) == [told]
    assert unverified(opened.plan(connect=True).warnings) == unverified(opened.validate(connect=True)) == []
    assert unverified(opened.run().problems) == []


@both
def test_a_misspelt_cursor_is_refused_with_what_was_meant_before_anything_moves(
    tmp_path: Path, connection: str
) -> None:
    opened = demo(tmp_path, connection, "update_at")
    for ask in (lambda: opened.plan(connect=True), opened.run):
        with pytest.raises(PzError) as refused:
            ask()
        [problem] = refused.value.problems
        assert str(problem.code) == "PZ0505"
        assert 'no column "update_at", the cursor' in problem.message
        assert problem.hint == "did you mean 'updated_at'?"
    assert not opened.runs()
    found = opened.validate(connect=True)
    assert [str(problem.code) for problem in found if str(problem.severity) == "error"] == ["PZ0505"]
    assert unverified(found) == []
