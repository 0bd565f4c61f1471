"""Incremental reads of files and DuckDB tables: what each run delivers, and what its state says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import pz
from deaths import dying
from pz.connectors.contract import CancelToken
from pz.errors import Code, ProjectError, StateError
from pz.events import Event, NodeCompleted, Notice
from pz.graph.model import NodeKind
from running import errors, project, rows, run

CONNECTIONS = """
files:
  connector: localfiles
  root: data
  entities:
    events:
      read:
        columns: {id: bigint, at: timestamp, what: varchar}
        sync: {mode: incremental, cursor: at%s}
lake:
  connector: localfiles
  root: out
shop:
  connector: duckdb
  path: shop.duckdb
"""
EVENTS = "SELECT * FROM {{ source('files', 'events') }}"
EVENTS = "SELECT * FROM {{ source('files', 'events') }}"
APPEND = "INSERT INTO {{ sink('lake', 'e', strategy: 'append', duplicates: 'accept') }} " + EVENTS
INTO_SHOP = "INSERT INTO {{ sink('shop', 'e', strategy: 'merge', keys: ['id']) }} "
MERGE = INTO_SHOP + EVENTS


def write_events(root: Path, *events: tuple[int, str | None, str]) -> None:
    lines = [f"{number},{at or ''},{what}" for number, at, what in events]
    (root / "data").mkdir(exist_ok=True)
    (root / "data/events.csv").write_text("\n".join(["id,at,what", *lines, ""]))


def watermark(root: Path, key: str = "files.events") -> str | None:
    path = root / ".pz/state/watermarks.json"
    if not path.exists():
        return None
    entry: dict[str, Any] = json.loads(path.read_text())["watermarks"].get(key, {})
    return entry.get("value")


def shop(root: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(root / "shop.duckdb"), read_only=True) as opened:
        return sorted(opened.execute("SELECT id, what FROM e").fetchall())


def demo(root: Path, sql: str, sync: str = "") -> Any:
    return project(root, {"connections.yml": CONNECTIONS % sync, "pipelines/e.sql": sql})


def test_an_append_adds_only_what_is_new_though_the_file_cannot_filter(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"), (2, "2024-01-02", "b"))
    opened = demo(tmp_path, APPEND)
    assert errors(run(opened)) == {}
    assert watermark(tmp_path) == "2024-01-02T00:00:00.000000"
    write_events(tmp_path, (1, "2024-01-01", "a"), (2, "2024-01-02", "b"), (3, "2024-01-03", "c"))
    assert errors(run(opened)) == {}
    for _ in range(3):  # idle runs
        assert errors(run(opened)) == {}
    assert [row[0] for row in rows(tmp_path / "out/e/*.parquet")] == [1, 2, 3]


@pytest.mark.parametrize("spelled", ["at", "AT", "At"])
def test_a_cursor_is_found_whatever_its_case(tmp_path: Path, spelled: str) -> None:
    demo(tmp_path, APPEND)
    connections = tmp_path / "connections.yml"
    connections.write_text(
        connections.read_text().replace("cursor: at", f"cursor: {spelled}, initial: 2024-01-01, max_window: 1d")
    )
    opened = pz.open_project(tmp_path, environ={})
    write_events(tmp_path, (1, "2024-01-01 10:00:00", "a"), (2, "2024-01-02 10:00:00", "b"))
    assert [errors(run(opened)) for _ in range(3)] == [{}, {}, {}]
    assert [row[0] for row in rows(tmp_path / "out/e/*.parquet")] == [1, 2]


def test_a_merge_takes_ties_of_the_boundary_that_came_later(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"))
    opened = demo(tmp_path, MERGE)
    assert errors(run(opened)) == {}
    write_events(tmp_path, (1, "2024-01-01", "a"), (2, "2024-01-01", "late tie"))
    assert errors(run(opened)) == {}
    assert shop(tmp_path) == [(1, "a"), (2, "late tie")]


@pytest.mark.parametrize(
    ("sql", "sync", "boundary"),
    [(MERGE, "", "inclusive"), (MERGE, ", boundary: exclusive", "exclusive"), (APPEND, "", "exclusive")],
)
def test_the_plan_says_whether_the_boundary_is_read_again_and_so_it_is(
    tmp_path: Path, sql: str, sync: str, boundary: str
) -> None:
    opened = demo(tmp_path, sql, sync)
    write_events(tmp_path, (1, "2024-01-01 10:00:00", "a"))
    (load,) = (node for node in opened.plan().nodes if node.kind == "SourceLoad")
    assert f"cursor=at boundary={boundary}" in load.reason
    run(opened)
    write_events(tmp_path, (1, "2024-01-01 10:00:00", "a"), (2, "2024-01-01 10:00:00", "b"))
    assert run(opened).nodes[0].rows == (2 if boundary == "inclusive" else 0)


def test_incremental_into_append_without_consent_is_refused(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"))
    opened = demo(tmp_path, APPEND.replace(", duplicates: 'accept'", ""))
    with pytest.raises(ProjectError) as refused:
        run(opened)
    assert refused.value.code is Code.PZ0214


def test_a_failed_sink_holds_the_watermark_back_and_a_retry_moves_it(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"))
    files = {
        "connections.yml": CONNECTIONS % "",
        "pipelines/s.sql": "SELECT * FROM {{ source('files', 'events') }}",
        "pipelines/e.sql": "INSERT INTO {{ sink('shop', 'e', strategy: 'merge', keys: ['id']) }} SELECT * FROM {{ ref('s') }}",
        "pipelines/bad.sql": INTO_SHOP.replace("'e'", "'bad'") + "SELECT id, what::INT AS w FROM {{ ref('s') }}",
    }
    opened = project(tmp_path, files)
    assert run(opened).exit_code == 1
    assert watermark(tmp_path) is None
    write_events(tmp_path, (9, "2025-01-01", "z"))
    (tmp_path / "pipelines/bad.sql").write_text(files["pipelines/bad.sql"].replace("what::INT AS w", "what"))
    result = opened.retry()
    assert errors(result) == {}
    assert watermark(tmp_path) == "2024-01-01T00:00:00.000000"
    assert errors(run(opened)) == {}
    assert shop(tmp_path) == [(1, "a"), (9, "z")]


def test_a_selection_that_leaves_a_sink_out_blocks_the_watermark(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"))
    files = {
        "connections.yml": CONNECTIONS % "",
        "pipelines/s.sql": "SELECT * FROM {{ source('files', 'events') }}",
        "pipelines/e.sql": "INSERT INTO {{ sink('shop', 'e', strategy: 'merge', keys: ['id']) }} SELECT * FROM {{ ref('s') }}",
        "pipelines/f.sql": "INSERT INTO {{ sink('shop', 'f', strategy: 'merge', keys: ['id']) }} SELECT * FROM {{ ref('s') }}",
    }
    opened = project(tmp_path, files)
    assert errors(run(opened, select="+shop.e")) == {}
    assert watermark(tmp_path) is None
    assert errors(run(opened)) == {}
    assert watermark(tmp_path) == "2024-01-01T00:00:00.000000"


def test_windows_tile_and_stop_where_the_rows_end(tmp_path: Path) -> None:
    write_events(tmp_path, *((n, f"2024-01-{n:02}", "x") for n in range(1, 11)))
    opened = demo(tmp_path, APPEND, ", initial: '2023-12-31', max_window: 3d, until: '2024-01-10'")
    result = opened.run(everything=True, until_caught_up=True)
    assert errors(result) == {}
    assert sorted(row[0] for row in rows(tmp_path / "out/e/*.parquet")) == list(range(1, 11))
    assert len(list((tmp_path / "out/e").iterdir())) == 4
    assert watermark(tmp_path) == "2024-01-10T00:00:00.000000"


def test_full_refresh_reads_from_the_beginning_and_moves_on(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"))
    opened = demo(tmp_path, MERGE)
    run(opened)
    write_events(tmp_path, (1, "2023-01-01", "older"))
    assert errors(run(opened)) == {}
    assert shop(tmp_path) == [(1, "a")], "a row below the watermark came in"
    assert errors(run(opened, full_refresh=True)) == {}
    assert shop(tmp_path) == [(1, "older")]


def test_rows_without_a_cursor_land_once_and_are_counted_or_refused(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"), (2, None, "none"))
    assert errors(run(demo(tmp_path, APPEND))) == {}
    assert errors(run(demo(tmp_path, APPEND))) == {}
    assert [row[0] for row in rows(tmp_path / "out/e/*.parquet")] == [1, 2]
    refusing = demo(tmp_path, APPEND, ", null_cursor: refuse")
    try:
        found = errors(run(refusing))
    except StateError as refused:
        found = {"": str(refused)}
    assert "PZ0712" in " ".join(found.values())


def test_a_lookback_takes_late_rows_again(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-10", "a"))
    opened = demo(tmp_path, MERGE, ", lookback: 2d")
    run(opened)
    write_events(tmp_path, (1, "2024-01-10", "a"), (2, "2024-01-09", "late"), (3, "2024-01-01", "too late"))
    assert errors(run(opened)) == {}
    assert shop(tmp_path) == [(1, "a"), (2, "late")]


def test_watermark_in_sql_is_the_same_read(tmp_path: Path) -> None:
    files = {
        "connections.yml": "files:\n  connector: localfiles\n  root: data\nshop:\n  connector: duckdb\n  path: shop.duckdb\n",
        "pipelines/e.sql": (
            "INSERT INTO {{ sink('shop', 'e', strategy: 'merge', keys: ['id']) }}\n"
            "SELECT * FROM {{ source('files', 'events') }}\nWHERE \"at\" > {{ watermark('files', 'events') }}"
        ),
    }
    write_events(tmp_path, (1, "2024-01-01", "a"), (2, "2024-01-02", "b"))
    opened = project(tmp_path, files)
    first = run(opened)
    assert errors(first) == {}
    assert watermark(tmp_path) is not None
    write_events(tmp_path, (1, "2024-01-01", "changed"), (3, "2024-01-03", "c"))
    second = run(opened)
    assert errors(second) == {}
    assert shop(tmp_path) == [(1, "a"), (2, "b"), (3, "c")]
    assert next(node.rows for node in second.nodes if node.kind == "SourceLoad") == 1


def test_a_duckdb_table_as_an_incremental_source_pins_its_upper_bound(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "src.duckdb")) as made:
        made.execute("CREATE TABLE t AS SELECT i AS id, i AS seq FROM range(5) r(i)")
    files = {
        "connections.yml": (
            "src:\n  connector: duckdb\n  path: src.duckdb\n  entities:\n    t:\n      read:\n"
            "        sync: {mode: incremental, cursor: seq}\nshop:\n  connector: duckdb\n  path: shop.duckdb\n"
        ),
        "pipelines/e.sql": INTO_SHOP + "SELECT id, seq::VARCHAR AS what FROM {{ source('src', 't') }}",
    }
    opened = project(tmp_path, files)
    result = run(opened)
    assert errors(result) == {}
    assert watermark(tmp_path, "src.t") == "4"
    record = json.loads((result.run_dir / "run.json").read_text())
    assert record["probes"]["src.t"]["upper"] == {"value": "4", "inclusive": True}
    with duckdb.connect(str(tmp_path / "src.duckdb")) as made:
        made.execute("INSERT INTO t VALUES (7, 7)")
    assert errors(run(opened)) == {}
    assert [key for key, _ in shop(tmp_path)] == [0, 1, 2, 3, 4, 7]


def test_state_earned_elsewhere_is_refused_before_anything_moves(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"))
    opened = demo(tmp_path, MERGE)
    run(opened)
    (tmp_path / "data").rename(tmp_path / "prod")
    text = (tmp_path / "connections.yml").read_text().replace("root: data", "root: prod")
    (tmp_path / "connections.yml").write_text(text)
    with pytest.raises(StateError) as refused:
        run(opened)
    assert refused.value.code is Code.PZ0705
    assert errors(run(opened, full_refresh=True)) == {}


@pytest.mark.parametrize("left", ["no folder", "an empty folder", "another file"])
def test_files_of_an_append_that_are_gone_are_refused_while_there_is_state(tmp_path: Path, left: str) -> None:
    """Before, the run was green and only what was new came back."""
    write_events(tmp_path, (1, "2024-01-01", "a"))
    opened = demo(tmp_path, APPEND)
    assert errors(run(opened)) == {}
    shutil.rmtree(tmp_path / "out/e")
    if left != "no folder":
        (tmp_path / "out/e").mkdir()
    if left == "another file":
        (tmp_path / "out/e/README").touch()
    write_events(tmp_path, (1, "2024-01-01", "a"), (2, "2024-01-02", "b"))
    with pytest.raises(StateError, match=r"the target of output 'lake\.e' does not exist") as refused:
        run(opened)
    assert refused.value.code is Code.PZ0705
    assert watermark(tmp_path) == "2024-01-01T00:00:00.000000"
    assert errors(run(opened, full_refresh=True)) == {}
    assert [row[0] for row in rows(tmp_path / "out/e/*.parquet")] == [1, 2]


@pytest.mark.parametrize("universal", ["true", "false"])
def test_an_idle_append_adds_no_file_and_is_not_taken_for_one_that_is_gone(tmp_path: Path, universal: str) -> None:
    """Also after a first run without rows: that leaves a file which tells the columns."""
    files = {"project.yml": f"name: demo\nversion: '1'\nengine:\n  force_universal: {universal}\n"}
    write_events(tmp_path)
    opened = project(tmp_path, {"connections.yml": CONNECTIONS % "", "pipelines/e.sql": APPEND, **files})
    seen = []
    for events in ([], [], [(1, "2024-01-01", "a")], [(1, "2024-01-01", "a")], [(1, "2024-01-01", "a")]):
        write_events(tmp_path, *events)
        assert errors(run(opened)) == {}
        seen.append(len(list((tmp_path / "out/e").iterdir())))
    assert seen == [1, 1, 2, 2, 2]
    assert [row[0] for row in rows(tmp_path / "out/e/*.parquet")] == [1]


@pytest.mark.parametrize(("sql", "named"), [(APPEND, True), (MERGE, False)])
def test_taking_a_watermark_back_says_which_appends_get_rows_again(tmp_path: Path, sql: str, named: bool) -> None:
    """By any of the three verbs, and before anything is changed."""
    write_events(tmp_path, (1, "2024-01-01", "a"))
    opened = demo(tmp_path, sql)
    first = run(opened).run_id
    write_events(tmp_path, (1, "2024-01-01", "a"), (2, "2024-01-03", "b"))
    run(opened)
    changes = [
        opened.state.set("files.events", "2024-01-02", dry_run=True),
        opened.state.rollback("files.events", first, dry_run=True),
        opened.state.clear("files.events", dry_run=True),
    ]
    told = [any("output 'lake.e' gets them again" in note for note in change.notes) for change in changes]
    assert told == [named] * 3
    later = opened.state.set("files.events", "2024-01-04", dry_run=True)
    assert len(later.notes) == 1
    assert "will never be read" in later.notes[0]


def test_a_damaged_state_file_is_refused_and_left_in_place(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"))
    opened = demo(tmp_path, MERGE)
    run(opened)
    path = tmp_path / ".pz/state/watermarks.json"
    cut = path.read_bytes()[:40]
    path.write_bytes(cut)
    with pytest.raises(StateError) as refused:
        run(opened)
    assert refused.value.code is Code.PZ0706
    assert path.read_bytes() == cut


def cancelling(token: CancelToken) -> Callable[[Event], None]:
    """Cancel as soon as an output is told to be committed."""

    def seen(event: Event) -> None:
        if isinstance(event, NodeCompleted) and event.kind == NodeKind.SINK_WRITE:
            token.cancel()

    return seen


def test_a_stop_that_comes_when_all_is_committed_does_not_hold_back_the_state(tmp_path: Path) -> None:
    write_events(tmp_path, (1, "2024-01-01", "a"))
    opened, token = demo(tmp_path, APPEND), CancelToken()
    result = opened.run(everything=True, on_event=cancelling(token), cancel=token)
    assert (result.exit_code, watermark(tmp_path)) == (0, "2024-01-01T00:00:00.000000")
    assert errors(run(opened)) == {}
    assert [row[0] for row in rows(tmp_path / "out/e/*.parquet")] == [1]


def test_a_stop_between_two_passes_ends_them(tmp_path: Path) -> None:
    write_events(tmp_path, *((n, f"2024-01-{n:02}", "x") for n in range(1, 11)))
    opened = demo(tmp_path, APPEND, ", initial: '2023-12-31', max_window: 3d, until: '2024-01-10'")
    token, said = CancelToken(), list[str]()
    stop = cancelling(token)

    def seen(event: Event) -> None:
        stop(event)
        if isinstance(event, Notice):
            said.append(event.message)

    result = opened.run(everything=True, until_caught_up=True, on_event=seen, cancel=token)
    assert result.exit_code == 3
    assert "stopped after 1 pass(es): cancelled; run again to go on" in said
    assert watermark(tmp_path) == "2024-01-03T00:00:00.000000"
    assert opened.run(everything=True, until_caught_up=True).exit_code == 0
    assert sorted(row[0] for row in rows(tmp_path / "out/e/*.parquet")) == list(range(1, 11))


@pytest.mark.parametrize("dies", [False, True])
def test_a_full_refresh_that_reads_nothing_starts_over(tmp_path: Path, dies: bool) -> None:
    root = tmp_path / "project"
    root.mkdir()
    write_events(root, (9, "2024-01-09", "old"))
    opened = demo(root, MERGE)
    run(opened)
    write_events(root)
    with dying(root, lambda point, nth, total: dies and point == "advance_state.before") as died:
        run(opened, full_refresh=True)
    assert bool(died) == dies
    write_events(root, (1, "2023-01-01", "new"))
    assert errors(run(opened)) == {}
    assert shop(root) == [(1, "new"), (9, "old")]
    assert watermark(root) == "2023-01-01T00:00:00.000000"


def test_batches_may_come_with_their_columns_in_the_order_in_which_they_were_asked_for(tmp_path: Path) -> None:
    """All columns are wanted, the cursor among them though the SQL does not name it, and the table has them otherwise."""
    files = {
        "project.yml": 'name: demo\nversion: "1"\nengine: {force_universal: true}\n',
        "connections.yml": "far: {connector: duckdb, path: far.duckdb, entities: "
        "{ev: {read: {sync: {mode: incremental, cursor: at}}}}}\nshop: {connector: duckdb, path: shop.duckdb}\n",
        "pipelines/e.sql": INTO_SHOP + "SELECT id, what FROM {{ source('far', 'ev') }}",
    }
    opened = project(tmp_path, files)
    with duckdb.connect(str(tmp_path / "far.duckdb")) as made:
        made.execute("CREATE TABLE ev AS SELECT 1 AS id, 'a' AS what, TIMESTAMP '2024-01-01' AS at")
    assert errors(run(opened)) == {}
    assert shop(tmp_path) == [(1, "a")]


def test_a_dataset_without_any_cursor_value_is_told_to_come_again(tmp_path: Path) -> None:
    write_events(tmp_path, (1, None, "none"))
    said: list[Event] = []
    run(demo(tmp_path, MERGE), on_event=said.append)
    assert any("every run reads them again" in event.message for event in said if isinstance(event, Notice))
