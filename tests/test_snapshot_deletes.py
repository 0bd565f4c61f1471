"""What a snapshot of a captured table does not hold leaves a DuckDB file: all of it, once, and within a limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest

import pz
from deaths import dying
from pz.engine.result import RunResult
from pz.errors import Code, ProjectError
from pz.events import Event, Notice
from pz.testing.reference import distribution_path
from pz.testing.script import Fault
from pz.testing.server import Server
from running import errors, project, run, statuses

Rows = list[tuple[Any, ...]]
COLUMNS = {"id": "INTEGER", "name": "VARCHAR"}
FILE = {"connector": "duckdb", "path": "w.duckdb"}


@dataclass
class Mirror:
    """A captured table ``orders`` and a project that merges it into ``copy`` of a DuckDB file."""

    root: Path
    columns: Mapping[str, str] = field(default_factory=lambda: COLUMNS)
    keys: Sequence[str] = ("id",)

    def __post_init__(self) -> None:
        self.source = Server(self.root / "far")
        self.source.create("orders", self.columns, keys=self.keys)

    def opened(
        self, on_delete: str = "delete", where: str = "", connector: Mapping[str, Any] = FILE, **write: Any
    ) -> pz.OpenProject:
        """The project, as it is declared from now on."""
        write = {"strategy": "merge", "keys": list(self.keys), "on_delete": on_delete, **write}
        retry = {"retry": {"max_attempts": 1}}
        orders = {"orders": {"read": {"batch_rows": 2, "sync": {"mode": "cdc"}}}}
        connections = {
            "src": {"connector": "reference", "path": "far", **retry, "entities": orders},
            "dst": {**connector, **retry, "entities": {"copy": {"write": write}}},
        }
        sql = f"INSERT INTO {{{{ sink('dst', 'copy') }}}} SELECT * FROM {{{{ source('src', 'orders') }}}} {where}"
        return project(self.root, {"connections.yml": json.dumps(connections), "pipelines/p.sql": sql})

    def numbered(self, *numbers: int) -> None:
        """Insert rows with these ids."""
        self.source.insert("orders", [{"id": n, "name": f"n{n}"} for n in numbers])

    def forget(self, *numbers: int) -> None:
        """Delete rows at the source. A full refresh learns of it only by what is not there."""
        self.source.delete("orders", [{"id": n} for n in numbers])

    def execute(self, sql: str) -> Rows:
        """Ask, or change, the DuckDB file."""
        with duckdb.connect(str(self.root / "w.duckdb")) as file:
            return file.execute(sql).fetchall()

    def ids(self) -> list[Any]:
        """The ids in the copy."""
        return [row[0] for row in self.execute("SELECT id FROM copy ORDER BY id")]

    def alive(self) -> list[Any]:
        """The ids in the copy that are not marked."""
        return [row[0] for row in self.execute("SELECT id FROM copy WHERE _pz_deleted_at IS NULL ORDER BY id")]

    def stamps(self) -> dict[int, int | None]:
        """When each row was marked, in microseconds since 1970."""
        return {int(key): stamp for key, stamp in self.execute("SELECT id, epoch_us(_pz_deleted_at) FROM copy")}


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.syspath_prepend(str(distribution_path()))
    return Mirror(tmp_path)


def notices(opened: pz.OpenProject, **options: Any) -> list[str]:
    """What a run that must succeed tells the operator."""
    seen: list[Event] = []
    assert errors(run(opened, on_event=seen.append, **options)) == {}
    return [event.message for event in seen if isinstance(event, Notice)]


# --- what goes


def test_a_full_refresh_takes_away_what_the_source_lost_and_says_nothing_about_ghosts(mirror: Mirror) -> None:
    mirror.numbered(1, 2, 3, 4, 5)
    opened = mirror.opened()
    assert notices(opened) == []
    mirror.forget(2, 4)
    mirror.numbered(6)
    assert notices(opened, full_refresh=True) == []
    assert mirror.ids() == [1, 3, 5, 6]


def test_a_soft_mark_is_set_once_and_taken_back_with_the_row(mirror: Mirror) -> None:
    mirror.numbered(1, 2, 3, 4, 5)
    opened = mirror.opened("soft")
    run(opened)
    mirror.forget(2, 4)
    assert errors(run(opened, full_refresh=True)) == {}
    first = mirror.stamps()
    assert (mirror.ids(), mirror.alive()) == ([1, 2, 3, 4, 5], [1, 3, 5])
    mirror.numbered(2)
    assert errors(run(opened, full_refresh=True)) == {}
    assert mirror.alive() == [1, 2, 3, 5]
    assert mirror.stamps()[4] == first[4]


def test_nothing_is_told_or_removed_where_the_target_is_new_or_empty(mirror: Mirror) -> None:
    opened = mirror.opened()
    assert notices(opened) == [], "an empty source into no table"
    assert notices(opened, full_refresh=True) == [], "an empty source into an empty table"
    mirror.numbered(1)
    assert notices(opened, full_refresh=True) == [], "rows into an empty table"
    assert mirror.ids() == [1]


def test_rows_behind_the_filter_of_a_pipeline_count_as_held(mirror: Mirror) -> None:
    mirror.numbered(1, 2, 3, 4, 5)
    run(mirror.opened())
    mirror.forget(5)
    assert errors(run(mirror.opened(where="WHERE id > 2"), full_refresh=True)) == {}
    assert mirror.ids() == [1, 2, 3, 4]


def test_all_of_a_composite_key_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(distribution_path()))
    mirror = Mirror(tmp_path, {"a": "INTEGER", "b": "VARCHAR", "n": "INTEGER"}, ("a", "b"))
    mirror.source.insert("orders", [{"a": a, "b": b, "n": 1} for a in (1, 2) for b in ("x", "X")])
    opened = mirror.opened()
    run(opened)
    mirror.source.delete("orders", [{"a": 1, "b": "x"}])
    assert errors(run(opened, full_refresh=True)) == {}
    assert mirror.execute("SELECT a, b FROM copy ORDER BY ALL") == [(1, "X"), (2, "X"), (2, "x")]


@pytest.mark.parametrize(
    ("columns", "table"),
    [
        (COLUMNS, '"ID" BIGINT, "Name" VARCHAR'),
        (COLUMNS, "id INTEGER PRIMARY KEY, name VARCHAR"),
        ({"id": "UTINYINT", "name": "VARCHAR"}, "id HUGEINT, name VARCHAR"),
    ],
    ids=["letter case and width", "index", "sign"],
)
def test_keys_are_the_same_in_every_column_that_takes_them(
    columns: Mapping[str, str], table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(distribution_path()))
    mirror = Mirror(tmp_path, columns)
    mirror.execute(f"CREATE TABLE copy ({table}); INSERT INTO copy VALUES (1, 'old'), (2, 'old'), (9, 'ghost')")
    mirror.numbered(1, 2, 3)
    assert errors(run(mirror.opened())) == {}
    assert mirror.execute("SELECT id, name FROM copy ORDER BY id") == [(1, "n1"), (2, "n2"), (3, "n3")]


def test_keys_of_another_type_are_refused_and_nothing_goes(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE copy (id VARCHAR, name VARCHAR); INSERT INTO copy VALUES ('01', 'a'), ('2', 'b')")
    mirror.numbered(1, 2, 3)
    assert "PZ0780" in errors(run(mirror.opened()))["dst.copy"]
    assert mirror.ids() == ["01", "2"]


def test_a_row_without_a_key_is_in_no_snapshot(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE copy (id INTEGER, name VARCHAR); INSERT INTO copy VALUES (NULL, 'a'), (1, 'b')")
    mirror.numbered(1, 2)
    assert errors(run(mirror.opened())) == {}
    assert mirror.ids() == [1, 2]


# --- the mark


def test_a_mark_column_that_is_there_is_used(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE copy (id INTEGER, name VARCHAR, _PZ_deleted_at TIMESTAMPTZ)")
    mirror.execute(
        "INSERT INTO copy VALUES (1, 'a', now()), (8, 'b', make_timestamptz(1577836800000000)), (9, 'c', NULL), (2, 'd', NULL)"
    )
    mirror.numbered(1, 2, 3)
    assert errors(run(mirror.opened("soft"))) == {}
    assert mirror.alive() == [1, 2, 3]
    stamps = mirror.stamps()
    assert (stamps[8], stamps[9] is not None) == (1_577_836_800_000_000, True)


def test_a_mark_column_of_another_type_is_refused(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE copy (id INTEGER, name VARCHAR, _pz_deleted_at VARCHAR)")
    mirror.numbered(1)
    assert "_pz_deleted_at" in errors(run(mirror.opened("soft")))["dst.copy"]


@pytest.mark.parametrize("kind", ["TIMESTAMP WITH TIME ZONE", "VARCHAR"])
def test_a_mark_that_comes_with_the_rows_is_kept_or_refused_by_its_type(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(distribution_path()))
    mirror = Mirror(tmp_path, {**COLUMNS, "_pz_deleted_at": kind})
    mirror.numbered(1, 2, 3)
    opened = mirror.opened("soft")
    found = errors(run(opened))
    if kind == "VARCHAR":
        assert "PZ0780" in found["dst.copy"]
        assert "_pz_deleted_at" in found["dst.copy"]
        return
    assert found == {}
    mirror.forget(3)
    assert errors(run(opened, full_refresh=True)) == {}
    assert mirror.alive() == [1, 2]


# --- the limit


@pytest.mark.parametrize("on_delete", ["delete", "soft"])
def test_more_than_half_is_refused_and_left_as_it_was_until_told(mirror: Mirror, on_delete: str) -> None:
    mirror.numbered(1, 2, 3, 4)
    opened = mirror.opened(on_delete)
    run(opened)
    before = mirror.execute("SELECT * FROM copy ORDER BY id")
    mirror.forget(1, 2, 3)
    mirror.numbered(5)
    verbs: list[Callable[[], RunResult]] = [lambda: run(opened, full_refresh=True), opened.retry, lambda: run(opened)]
    for verb in verbs:
        assert "PZ0749 target 'copy': 3 of 4 row(s)" in errors(verb())["dst.copy"]
        assert mirror.execute("SELECT * FROM copy ORDER BY id") == before
    told = mirror.opened(on_delete, snapshot_delete_limit=1)
    assert errors(run(told, full_refresh=True)) == {}
    assert (mirror.ids() if on_delete == "delete" else mirror.alive()) == [4, 5]


def test_a_source_that_is_empty_empties_nothing(mirror: Mirror) -> None:
    mirror.numbered(1)
    opened = mirror.opened()
    run(opened)
    mirror.forget(1)
    assert "PZ0749" in errors(run(opened, full_refresh=True))["dst.copy"]
    assert mirror.ids() == [1]
    assert errors(run(mirror.opened(snapshot_delete_limit=1), full_refresh=True)) == {}
    assert mirror.ids() == []


def test_rows_that_are_marked_do_not_count_for_the_limit(mirror: Mirror) -> None:
    mirror.numbered(*range(1, 9))
    opened = mirror.opened("soft")
    run(opened)
    for gone in ((1, 2, 3, 4), (5, 6)):
        mirror.forget(*gone)
        assert errors(run(opened, full_refresh=True)) == {}
    mirror.forget(7, 8)
    assert "2 of 2 row(s)" in errors(run(opened, full_refresh=True))["dst.copy"]
    assert mirror.alive() == [7, 8]


def test_half_may_go_and_a_limit_of_none_lets_nothing_go(mirror: Mirror) -> None:
    mirror.numbered(1, 2, 3, 4)
    run(mirror.opened())
    mirror.forget(1)
    strict = mirror.opened(snapshot_delete_limit=0)
    assert "more than the limit of 0%" in errors(run(strict, full_refresh=True))["dst.copy"]
    mirror.forget(2)
    assert errors(run(mirror.opened(), full_refresh=True)) == {}
    assert mirror.ids() == [3, 4]


# --- what is no snapshot of the whole table


def test_a_poll_leaves_alone_what_it_does_not_mention(mirror: Mirror) -> None:
    mirror.numbered(1, 2)
    opened = mirror.opened()
    run(opened)
    mirror.execute("INSERT INTO copy VALUES (99, 'not ours')")
    mirror.numbered(3)
    mirror.forget(1)
    assert errors(run(opened)) == {}
    assert mirror.ids() == [2, 3, 99]


def test_a_snapshot_that_breaks_off_removes_nothing(mirror: Mirror) -> None:
    mirror.numbered(1, 2, 3, 4)
    opened = mirror.opened()
    run(opened)
    mirror.forget(1)
    mirror.source.script.add(Fault("batch", "permanent", entity="orders", nth=2))
    assert statuses(run(opened, full_refresh=True))["dst.copy"] == "skipped"
    assert mirror.ids() == [1, 2, 3, 4]


@pytest.mark.parametrize("sync", ['{"mode": "auto"}', '{"mode": "incremental", "cursor": "id"}'])
def test_a_read_that_is_no_capture_is_refused_before_anything_moves(mirror: Mirror, sync: str) -> None:
    mirror.opened()
    declared = mirror.root / "connections.yml"
    declared.write_text(declared.read_text().replace('{"mode": "cdc"}', sync))
    with pytest.raises(ProjectError, match="PZ0337"):
        run(pz.open_project(mirror.root, environ={}))
    assert not (mirror.root / "w.duckdb").exists()


# --- sinks that cannot


API = {"connector": "http", "base_url": "http://127.0.0.1:1"}
KEYED = {"path": "/copy/{key}", "delete_path": "/copy/{key}"}


def promised(opened: pz.OpenProject) -> str:
    """The guarantee that the plan gives for the one output."""
    (found,) = [node.guarantees for node in opened.plan().nodes if node.guarantees]
    return str(found["src.orders"])


def test_a_plan_promises_it_only_where_the_sink_can(mirror: Mirror) -> None:
    opened = mirror.opened()
    assert promised(opened) == "effectively-once"
    elsewhere = mirror.opened(connector=API, **KEYED)
    assert promised(elsewhere) == "effectively-once (rows that a snapshot does not hold stay)"


@pytest.mark.parametrize("connector", [API, {"connector": "localfiles", "root": "out"}])
def test_a_limit_on_a_sink_that_cannot_is_refused_and_names_those_that_can(
    mirror: Mirror, connector: dict[str, Any]
) -> None:
    opened = mirror.opened(connector=connector, snapshot_delete_limit=1, **(KEYED if connector is API else {}))
    with pytest.raises(ProjectError) as refused:
        run(opened)
    (problem,) = [problem for problem in refused.value.problems if "snapshot_delete_limit" in problem.message]
    assert problem.code is Code.PZ0339
    assert "duckdb, postgres" in problem.advice
    assert not (mirror.root / "out").exists()


def test_files_that_are_to_apply_deletes_are_refused_and_name_those_that_can(mirror: Mirror) -> None:
    with pytest.raises(ProjectError, match="PZ0339") as refused:
        run(mirror.opened(connector={"connector": "localfiles", "root": "out"}))
    (problem,) = [problem for problem in refused.value.problems if problem.code is Code.PZ0339]
    assert "duckdb, http, postgres" in problem.advice


def test_a_sink_that_cannot_keeps_the_rows_and_the_run_warns(mirror: Mirror) -> None:
    opened = mirror.opened(connector={"connector": "reference_api", "path": "far"})
    mirror.numbered(1, 2)
    run(opened)
    mirror.forget(1)
    (told,) = [message for message in notices(opened, full_refresh=True) if "stay" in message]
    assert "the connector cannot remove them after a snapshot" in told
    assert sorted(row["id"] for row in mirror.source.target("copy").to_pylist()) == [1, 2]


# --- deaths


DEATHS = [
    f"{point}.{side}"
    for point in ("complete_load", "record_attempt", "sink_prepare", "sink_write", "sink_commit", "finish_run")
    for side in ("before", "after")
]


@pytest.mark.parametrize("on_delete", ["delete", "soft"])
@pytest.mark.parametrize("point", DEATHS)
def test_a_death_anywhere_and_a_retry_remove_once(mirror: Mirror, point: str, on_delete: str) -> None:
    mirror.numbered(1, 2, 3, 4)
    opened = mirror.opened(on_delete)
    run(opened)
    mirror.forget(1, 2)
    with dying(mirror.root, lambda name, nth, total: name == point) as left:
        run(opened, full_refresh=True)
    assert left, f"{point} is passed"
    if on_delete == "delete":
        assert mirror.ids() in ([1, 2, 3, 4], [3, 4]), "all or nothing"
    marked = {} if on_delete == "delete" else {key: stamp for key, stamp in mirror.stamps().items() if stamp}
    assert set(marked) in (set(), {1, 2})
    result = pz.open_project(mirror.root, environ={}).retry()
    assert errors(result) == {}
    if on_delete == "delete":
        assert mirror.ids() == [3, 4], "half of four is within the limit; a second half would not be seen as such"
    else:
        assert mirror.alive() == [3, 4]
        assert not marked or {key: mirror.stamps()[key] for key in marked} == marked
