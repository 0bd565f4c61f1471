"""An append that DuckDB does itself leaves its mark, so that a chain of retries adds its rows once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

import pz
from deaths import dying
from pz.errors import Code
from pz.events import Event, Notice
from running import errors, project, run, statuses

CONNECTIONS = """
files:
  connector: localfiles
  root: data
  entities:
    events: {read: {columns: {id: bigint, day: timestamp}%s}}
shop: {connector: duckdb, path: shop.duckdb}
"""
SQL = "INSERT INTO {{ sink('shop', 'e', strategy: 'append', duplicates: 'accept') }} "
SQL += "SELECT * FROM {{ source('files', 'events') }}"
SYNC = ", sync: {mode: incremental, cursor: day}"
SHAPES = pytest.mark.parametrize("sync", ["", SYNC], ids=["fused", "staged"])


def demo(root: Path, sync: str, *ids: int) -> pz.OpenProject:
    made = project(root, {"connections.yml": CONNECTIONS % sync, "pipelines/e.sql": SQL})
    source(root, *ids)
    return made


def source(root: Path, *ids: int) -> None:
    (root / "data").mkdir(exist_ok=True)
    lines = ["id,day", *(f"{n},2024-01-{n:02}" for n in ids), ""]
    (root / "data/events.csv").write_text("\n".join(lines))


def shop(root: Path, sql: str = "SELECT id FROM e ORDER BY id") -> list[Any]:
    with duckdb.connect(str(root / "shop.duckdb"), read_only=True) as opened:
        return [row[0] if len(row) == 1 else row for row in opened.execute(sql).fetchall()]


def die_behind_the_commit(root: Path, opened: pz.OpenProject) -> None:
    with dying(root, lambda point, nth, total: point == "sink_commit.after") as died:
        run(opened)
    assert died


@SHAPES
def test_a_death_behind_the_commit_adds_no_row_twice(tmp_path: Path, sync: str) -> None:
    root = tmp_path / "project"
    opened = demo(root, sync, 1, 2)
    die_behind_the_commit(root, opened)
    assert shop(root) == [1, 2]
    assert shop(root, "SELECT rows FROM _pz_slices") == [2]
    assert errors(opened.retry()) == {}
    assert shop(root) == [1, 2]


@SHAPES
@pytest.mark.parametrize("lost", [False, True])
def test_rows_that_came_meanwhile_come_with_the_next_run(tmp_path: Path, sync: str, lost: bool) -> None:
    root = tmp_path / "project"
    opened = demo(root, sync, 1, 2)
    die_behind_the_commit(root, opened)
    if lost:
        (staging,) = root.glob(".pz/runs/*/staging.duckdb")
        staging.unlink()
        shutil.rmtree(staging.with_name("staging.duckdb.wal"), ignore_errors=True)
    source(root, 1, 2, 3)
    assert errors(opened.retry()) == {}
    assert shop(root) == [1, 2]
    assert errors(run(opened)) == {}
    assert set(shop(root)) == {1, 2, 3}
    if sync and not lost:
        assert shop(root) == [1, 2, 3]


def test_a_write_that_failed_before_its_commit_leaves_nothing_in_doubt(tmp_path: Path) -> None:
    root = tmp_path / "project"
    opened = demo(root, "", 1, 2)
    with duckdb.connect(str(root / "shop.duckdb")) as made:
        made.execute("CREATE TABLE e (id BIGINT UNIQUE, day TIMESTAMP); INSERT INTO e VALUES (1, NULL)")
    failed = run(opened)
    assert Code.PZ0780 in errors(failed)["shop.e"] or "constraint" in errors(failed)["shop.e"].lower()
    with duckdb.connect(str(root / "shop.duckdb")) as made:
        made.execute("DELETE FROM e")
    retried = opened.retry()
    assert set(statuses(retried).values()) == {"success"}
    assert not [note for note in retried.problems if note.code == Code.PZ0704]
    assert shop(root) == [1, 2]


@SHAPES
@pytest.mark.parametrize("dies", [False, True])
def test_a_retry_from_the_beginning_is_not_content_with_what_had_committed(
    tmp_path: Path, sync: str, dies: bool
) -> None:
    """Also the retry of one that died: the chain goes back to it and no further."""
    root = tmp_path / "project"
    opened = demo(root, sync, 2, 3)
    die_behind_the_commit(root, opened)
    source(root, 1, 2, 3)
    with dying(root, lambda point, nth, total: dies and point == "record_attempt.before") as died:
        opened.retry(full_refresh=True)
    assert bool(died) == dies
    if dies:
        assert errors(opened.retry()) == {}
    assert set(shop(root)) == {1, 2, 3}
    assert opened.retry().nothing_to_do


@SHAPES
@pytest.mark.parametrize("universal", [False, True])
def test_a_retry_from_the_beginning_delivers_also_what_is_the_same(tmp_path: Path, sync: str, universal: bool) -> None:
    """The user empties the output first, as the warning says; the mark of the same content must not stand for its rows."""
    root = tmp_path / "project"
    opened = demo(root, sync, 1, 2)
    if universal:
        (root / "project.yml").write_text((root / "project.yml").read_text() + "engine: {force_universal: true}\n")
    die_behind_the_commit(root, opened)
    with duckdb.connect(str(root / "shop.duckdb")) as emptied:
        emptied.execute("DELETE FROM e")
    said: list[Event] = []
    assert errors(opened.retry(full_refresh=True, on_event=said.append)) == {}
    assert shop(root) == [1, 2]
    assert not [event for event in said if isinstance(event, Notice) and "changed since" in event.message]
