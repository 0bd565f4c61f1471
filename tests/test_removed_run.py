"""Somebody removes `.pz` while a run is going on: what is done is told, and nothing is lost in silence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import pz
from cli_support import invoke
from pz.events import Event
from running import errors, project, rows, run, statuses

FILES = {
    "connections.yml": "files: {connector: localfiles, root: data}\nlake: {connector: localfiles, root: out}\n",
    "data/a.csv": "id\n1\n2\n",
    "pipelines/first.sql": "SELECT * FROM {{ source('files', 'a') }}",
    "pipelines/second.sql": "INSERT INTO {{ sink('lake', 'o', strategy: 'replace') }} SELECT * FROM {{ ref('first') }}",
}


def removing(opened: pz.OpenProject, what: str, after: str) -> Callable[[Event], None]:
    """A handler that takes the folder away as soon as a node has ended."""

    def handle(event: Event) -> None:
        if event.name == "node_completed" and event.to_wire()["name"] == after:
            shutil.rmtree(opened.root / what)

    return handle


@pytest.mark.parametrize("what", [".pz", ".pz/runs"])
@pytest.mark.parametrize("after", ["first", "lake.o"])
def test_a_removed_run_ends_with_what_became_of_it(tmp_path: Path, what: str, after: str) -> None:
    opened, seen = project(tmp_path, FILES), []
    remove = removing(opened, what, after)

    def watch(event: Event) -> None:
        seen.append(event.name)
        remove(event)

    result = run(opened, on_event=watch)
    assert (result.exit_code, result.status) == (1, "completed_with_failures")
    told = [problem for problem in result.problems if str(problem.code) == "PZ0708"]
    assert len(told) == 1
    assert "was removed while the run was going on" in told[0].message
    assert "run again" in told[0].advice
    assert "run_completed" in seen
    if after == "lake.o":
        assert statuses(result)["lake.o"] == "success"
        assert rows(tmp_path / "out/o/o.parquet") == [(1,), (2,)]
    for message in errors(result).values():
        assert message.startswith("PZ0708 "), "the same cause wherever it is met"
    assert errors(run(opened)) == {}
    assert rows(tmp_path / "out/o/o.parquet") == [(1,), (2,)]


def test_the_command_line_says_so_and_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = project(tmp_path, FILES)
    remove = removing(opened, ".pz", "first")
    real = pz.OpenProject.run

    def run_and_remove(
        self: pz.OpenProject, *flows: str, on_event: Callable[[Event], None], **options: object
    ) -> object:
        def both(event: Event) -> None:
            on_event(event)
            remove(event)

        return real(self, *flows, on_event=both, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pz.OpenProject, "run", run_and_remove)
    got = invoke("run", "--all", project=opened)
    assert got.code == 1
    assert "error PZ0708: " in got.out
    assert got.out.splitlines()[-1].startswith("run ")


def test_the_state_of_the_next_run_is_none_and_no_row_is_lost(tmp_path: Path) -> None:
    read = "{{ source('files', 'a', columns: {id: 'int'}, sync: {mode: 'incremental', cursor: 'id'}) }}"
    merge = "INSERT INTO {{ sink('db', 'o', strategy: 'merge', keys: ['id']) }} SELECT * FROM " + read
    connections = FILES["connections.yml"] + "db: {connector: duckdb, path: db.duckdb}\n"
    opened = project(tmp_path, {"connections.yml": connections, "data/a.csv": "id\n1\n", "pipelines/p.sql": merge})
    assert errors(run(opened)) == {}
    (tmp_path / "data/a.csv").write_text("id\n1\n2\n")
    result = run(opened, on_event=removing(opened, ".pz", "p"))
    assert result.exit_code == 1
    (tmp_path / "data/a.csv").write_text("id\n1\n2\n3\n")
    assert errors(run(opened)) == {}
    with duckdb.connect(str(tmp_path / "db.duckdb"), read_only=True) as found:
        assert sorted(found.execute("SELECT id FROM o").fetchall()) == [(1,), (2,), (3,)]
