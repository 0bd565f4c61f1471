"""`pz plan --connect` says what the next run would be refused for, or warn of, and neither moves nor writes anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import pz
from pz.errors import PzError
from running import project, run

CONNECTIONS = """
db: { connector: duckdb, path: far.duckdb }
target: { connector: duckdb, path: target.duckdb }
lake: { connector: localfiles, root: out }
"""
READ = "SELECT id FROM {{ source('db', 't', sync: { mode: 'incremental', cursor: 'id' }) }}"
MERGE = "INSERT INTO {{ sink('target', 'o', strategy: 'merge', keys: ['id']) }} " + READ
FILES = "INSERT INTO {{ sink('lake', 'o', path: 'a', strategy: 'append', duplicates: 'accept') }} " + READ


def flow(root: Path, sql: str, **more: str) -> pz.OpenProject:
    return project(root, {"connections.yml": CONNECTIONS, "pipelines/a.sql": sql, **more})


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "far.duckdb")) as far:
        far.execute("CREATE TABLE t AS SELECT i AS id FROM range(5) r(i)")
    return tmp_path


def target_gone(root: Path) -> pz.OpenProject:
    opened = flow(root, MERGE)
    run(opened)
    (root / "target.duckdb").unlink()
    return opened


def output_added(root: Path) -> pz.OpenProject:
    staged = {"pipelines/stg.sql": READ}
    sql = "INSERT INTO {{ sink('target', 'o', strategy: 'merge', keys: ['id']) }} SELECT * FROM {{ ref('stg') }}"
    run(flow(root, sql, **staged))
    return flow(root, sql, **staged, **{"pipelines/b.sql": sql.replace("'o'", "'new'")})


def files_moved(root: Path) -> pz.OpenProject:
    run(flow(root, FILES))
    return flow(root, FILES.replace("path: 'a'", "path: 'b'"))


def snapshot(root: Path) -> dict[str, bytes]:
    """All files of the project but the plan."""
    return {
        str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and ".pz/target" not in str(path)
    }


@pytest.mark.parametrize("change", [target_gone, output_added, files_moved])
def test_what_state_refuses_to_a_run_is_refused_to_the_plan(
    root: Path, change: Callable[[Path], pz.OpenProject]
) -> None:
    opened = change(root)
    before = snapshot(root)
    with pytest.raises(PzError) as planned:
        opened.plan(connect=True)
    assert snapshot(root) == before
    assert opened.plan(), "offline, nothing is asked"
    with pytest.raises(PzError) as refused:
        run(opened)
    assert planned.value.problems == refused.value.problems


def test_the_plan_warns_as_the_run_does(root: Path) -> None:
    run(flow(root, MERGE))
    opened = flow(root, MERGE.replace("SELECT id", "SELECT id + 0 AS id"))
    told = {problem for problem in opened.plan(connect=True).warnings if problem.code == "PZ0713"}
    assert any("was defined otherwise" in problem.message for problem in told)
    assert told == {problem for problem in run(opened).problems if problem.code == "PZ0713"}
