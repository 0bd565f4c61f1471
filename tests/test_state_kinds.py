"""A dataset that is read another way than its stored state was made: refused before anything moves, with a way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pz
from capture_support import captured, differences, slot
from postgres_server import Database
from pz.errors import Code, ProjectError, StateError
from running import errors, project, run

KINDS: dict[str, dict[str, Any]] = {
    "snapshot": {},
    "incremental": {"mode": "incremental", "cursor": "changed"},
    "cdc": {"mode": "cdc"},
}
STATEFUL = ("incremental", "cdc")
COLUMNS = "id int PRIMARY KEY, name text, changed timestamp NOT NULL DEFAULT clock_timestamp()"
CHANGE = "INSERT INTO orders SELECT max(id) + 1, 'new' FROM orders"
BREAK = "ALTER TABLE copy.orders ADD CONSTRAINT broken CHECK (id < 0) NOT VALID"
MEND = "ALTER TABLE copy.orders DROP CONSTRAINT broken"


def _as(root: Path, database: Database, kind: str, **sync: Any) -> pz.OpenProject:
    """The project with its dataset read in one way."""
    declared = {**KINDS[kind], **sync}
    entities = {"orders": {"read": {"sync": declared} if declared else {}}}
    connections = {
        "src": {"connector": "postgres", **database.options, "retry": {"max_attempts": 1}, "entities": entities},
        "dst": {"connector": "postgres", **database.options, "retry": {"max_attempts": 1}},
    }
    deletes = ", on_delete: 'delete'" if kind == "cdc" else ""
    sink = f"{{{{ sink('dst', 'copy.orders', strategy: 'merge', keys: ['id']{deletes}) }}}}"
    sql = f"INSERT INTO {sink} SELECT * FROM {{{{ source('src', 'orders') }}}}"
    return project(root, {"connections.yml": json.dumps(connections), "pipelines/orders.sql": sql})


def _state(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((root / ".pz/state").glob("*.json"))}


def _refused(opened: pz.OpenProject, verb: str) -> str:
    with pytest.raises(StateError) as found:
        run(opened) if verb == "run" else opened.retry()
    (problem,) = found.value.problems
    assert problem.code is Code.PZ0705
    return f"{problem.message} {problem.advice}"


def _kinds_stored(root: Path) -> set[str]:
    found = set()
    for name, content in _state(root).items():
        for entry in json.loads(content).get("watermarks" if name.startswith("water") else "tokens", {}).values():
            found.add("incremental" if "cursor" in entry else "pending" if "pending" in entry["token"] else "cdc")
    return found


CASES = [
    (before, now, verb)
    for before in KINDS
    for now in KINDS
    for verb in ("run", "full refresh", "retry")
    if verb == "run" or {before, now} <= {*STATEFUL}
]


@pytest.mark.parametrize(("before", "now", "verb"), CASES)
def test_state_of_another_kind_is_refused_and_a_full_refresh_replaces_it(
    tmp_path: Path, database: Database, before: str, now: str, verb: str
) -> None:
    captured(database, COLUMNS, "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    opened = _as(tmp_path, database, before)
    assert errors(run(opened)) == {}
    if verb == "retry":
        database.run(CHANGE, BREAK)
        assert errors(run(opened)) != {}
        database.run(MEND)
    opened = _as(tmp_path, database, now)
    other = before != now and before in STATEFUL and now in STATEFUL
    stored, copied, kept = _state(tmp_path), database.rows("SELECT * FROM copy.orders"), slot(database).get("confirmed")
    if other and verb != "full refresh":
        said = _refused(opened, verb)
        assert "--full-refresh" in said
        assert _state(tmp_path) == stored
        assert database.rows("SELECT * FROM copy.orders") == copied
        assert slot(database).get("confirmed") == kept
    again = other or verb == "full refresh"
    result = opened.retry(full_refresh=again) if verb == "retry" else run(opened, full_refresh=again)
    assert errors(result) == {}
    assert differences(database) == []
    database.run(CHANGE)
    result = run(opened)
    assert errors(result) == {}
    assert differences(database) == []
    if other:
        assert _kinds_stored(tmp_path) == ({"cdc"} if now == "cdc" else {"incremental", "pending"})
    if before == "cdc" and now != "cdc":
        assert any(problem.code is Code.PZ0718 for problem in result.problems)
        (shown,) = opened.cdc.status()
        assert (shown.key, shown.position, shown.healthy) == ("src.orders", "pz_src_orders", False)
        assert "dropped" in opened.cdc.drop("src.orders")
        assert slot(database) == {}
        assert opened.cdc.status() == ()
        assert all(problem.code is not Code.PZ0718 for problem in run(opened).problems)


@pytest.mark.parametrize(("before", "now"), [("incremental", "cdc"), ("cdc", "incremental")])
def test_a_full_refresh_that_fails_is_continued_as_one(
    tmp_path: Path, database: Database, before: str, now: str
) -> None:
    captured(database, COLUMNS, "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    assert errors(run(_as(tmp_path, database, before))) == {}
    opened = _as(tmp_path, database, now)
    database.run(CHANGE, BREAK)
    assert errors(run(opened, full_refresh=True)) != {}
    database.run(MEND)
    assert errors(opened.retry()) == {}
    database.run(CHANGE)
    assert errors(run(opened)) == {}
    assert differences(database) == []


def test_an_empty_table_does_not_keep_the_state_of_another_kind(tmp_path: Path, database: Database) -> None:
    captured(database, COLUMNS)
    assert errors(run(_as(tmp_path, database, "cdc"))) == {}
    opened = _as(tmp_path, database, "incremental")
    _refused(opened, "run")
    assert errors(run(opened, full_refresh=True)) == {}
    assert errors(run(opened)) == {}


def test_the_slot_of_a_first_run_that_failed_stays_in_sight(tmp_path: Path, database: Database) -> None:
    captured(database, COLUMNS, "INSERT INTO orders VALUES (1, 'a')")
    database.run("CREATE TABLE copy.orders (id int PRIMARY KEY, name text, changed timestamp)", BREAK)
    assert errors(run(_as(tmp_path, database, "cdc"))) != {}
    database.run(MEND)
    opened = _as(tmp_path, database, "incremental")
    assert errors(run(opened)) == {}
    assert [shown.key for shown in opened.cdc.status()] == ["src.orders"]
    assert "dropped" in opened.cdc.drop("src.orders")


def test_a_dataset_that_left_the_project_is_listed_and_dropped(tmp_path: Path, database: Database) -> None:
    captured(database, COLUMNS, "INSERT INTO orders VALUES (1, 'a')", "CREATE TABLE people (id int PRIMARY KEY)")
    assert errors(run(_as(tmp_path, database, "cdc", slot="own"))) == {}
    connections = {name: {"connector": "postgres", **database.options} for name in ("src", "dst")}
    sql = "INSERT INTO {{ sink('dst', 'copy.people') }} SELECT * FROM {{ source('src', 'people') }}"
    files = {"connections.yml": json.dumps(connections), "pipelines/orders.sql": sql}
    opened = project(tmp_path, files)
    (shown,) = opened.cdc.status()
    assert (shown.position, shown.healthy, "pz cdc drop src.orders" in " ".join(shown.details)) == ("own", False, True)
    assert shown.retained_bytes is not None
    assert opened.cdc.drop("src.orders") == "slot own was dropped"
    with pytest.raises(ProjectError, match="PZ0508"):
        opened.cdc.drop("src.orders")


def test_without_its_connection_a_dataset_is_listed_and_says_what_is_missing(
    tmp_path: Path, database: Database
) -> None:
    captured(database, COLUMNS, "INSERT INTO orders VALUES (1, 'a')")
    assert errors(run(_as(tmp_path, database, "cdc"))) == {}
    connections = {"dst": {"connector": "postgres", **database.options}}
    sql = "INSERT INTO {{ sink('dst', 'copy.people') }} SELECT * FROM {{ source('dst', 'orders') }}"
    opened = project(tmp_path, {"connections.yml": json.dumps(connections), "pipelines/orders.sql": sql})
    (shown,) = opened.cdc.status()
    assert (shown.key, shown.healthy) == ("src.orders", False)
    assert "connection 'src'" in " ".join(shown.details)
    with pytest.raises(ProjectError, match="connection 'src'"):
        opened.cdc.drop("src.orders")
    assert slot(database) != {}


def test_another_slot_is_refused_until_the_old_one_is_let_go(tmp_path: Path, database: Database) -> None:
    captured(database, COLUMNS, "INSERT INTO orders VALUES (1, 'a')")
    assert errors(run(_as(tmp_path, database, "cdc"))) == {}
    opened = _as(tmp_path, database, "cdc", slot="other")
    for full in (False, True):
        with pytest.raises(StateError, match=r"pz cdc drop src\.orders"):
            run(opened, full_refresh=full)
    assert opened.cdc.drop("src.orders") == "slot pz_src_orders was dropped; the next run reads the whole table"
    database.run(CHANGE)
    assert errors(run(opened)) == {}
    assert differences(database) == []
    assert slot(database, "other") != {}


def test_a_shared_slot_stays_for_the_others(tmp_path: Path, database: Database) -> None:
    captured(database, COLUMNS, "INSERT INTO orders VALUES (1, 'a')")
    database.run(
        "CREATE TABLE people (id int PRIMARY KEY)",
        "ALTER PUBLICATION pz_src ADD TABLE people",
        "INSERT INTO people VALUES (1)",
    )
    both = {"mode": "cdc", "slot": "both"}
    files = {}
    for entity in ("orders", "people"):
        sink = f"{{{{ sink('dst', 'copy.{entity}', strategy: 'merge', keys: ['id'], on_delete: 'delete') }}}}"
        files[f"pipelines/{entity}.sql"] = f"INSERT INTO {sink} SELECT * FROM {{{{ source('src', '{entity}') }}}}"
    for entities in (("orders", "people"), ("orders",)):
        reads = {name: {"read": {"sync": both}} for name in entities}
        connections = {
            "src": {"connector": "postgres", **database.options, "entities": reads},
            "dst": {"connector": "postgres", **database.options},
        }
        (tmp_path / "pipelines/people.sql").unlink(missing_ok=True)
        wanted = {path: sql for path, sql in files.items() if path.split("/")[1].removesuffix(".sql") in entities}
        opened = project(tmp_path, {"connections.yml": json.dumps(connections), **wanted})
        if len(entities) == 2:
            assert errors(run(opened)) == {}
    assert "orders" in opened.cdc.drop("src.people")
    assert slot(database, "both") != {}
    assert [shown.key for shown in opened.cdc.status()] == ["src.orders"]
