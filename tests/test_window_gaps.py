"""A window without a row: the mark moves on where the source tells what lies above, and else the run says that it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

import pz
from http_server import Api, paged
from pz.events import Event, Notice
from running import errors, project, run

GAP = [1, 2, 3, 40, 41]
SYNC = "sync: {mode: incremental, cursor: id, initial: 0, max_window: 10%s}"
CONNECTIONS = """
files:
  connector: localfiles
  root: data
  entities: { items: { read: { format: csv, columns: { id: bigint }, SYNC } } }
tables:
  connector: duckdb
  path: in.duckdb
  entities: { items: { read: { columns: { id: bigint }, SYNC } } }
api:
  connector: http
  base_url: URL
  entities:
    items:
      read:
        path: /items
        query: { after: "{{ watermark }}", upto: "{{ window_upper }}" }
        pagination: { strategy: page, param: page }
        columns: { id: bigint }
        SYNC
warehouse: { connector: duckdb, path: w.duckdb }
"""


def _opened(folder: Path, connection: str, url: str, until: str = "") -> pz.OpenProject:
    (folder / "data").mkdir()
    (folder / "data/items.csv").write_text("\n".join(["id", *map(str, GAP), ""]))
    with duckdb.connect(str(folder / "in.duckdb")) as made:
        made.execute("CREATE TABLE items AS SELECT unnest($1)::BIGINT AS id", [GAP])
    sink = "INSERT INTO {{ sink('warehouse', 'o', strategy: 'merge', keys: ['id']) }}\n"
    sql = f"{sink}SELECT id FROM {{{{ source('{connection}', 'items') }}}}"
    text = CONNECTIONS.replace("SYNC", SYNC % until).replace("URL", url)
    return project(folder, {"connections.yml": text, "pipelines/o.sql": sql})


def _passes(opened: Any, count: int) -> list[list[str]]:
    """What each run tells of the windows' emptiness."""
    told = []
    for _ in range(count):
        seen: list[Event] = []
        assert errors(run(opened, on_event=seen.append)) == {}
        told.append([event.message for event in seen if isinstance(event, Notice) and "no row above" in event.message])
    return told


def _state(folder: Path, key: str) -> str | None:
    entry: dict[str, Any] = json.loads((folder / ".pz/state/watermarks.json").read_text())["watermarks"].get(key, {})
    return entry.get("value")


def _landed(folder: Path) -> list[int]:
    with duckdb.connect(str(folder / "w.duckdb"), read_only=True) as made:
        return [number for (number,) in made.execute("SELECT id FROM o ORDER BY id").fetchall()]


@pytest.mark.parametrize("connection", ["files", "tables"])
def test_a_source_that_tells_its_highest_number_is_read_over_a_gap(tmp_path: Path, connection: str) -> None:
    opened = _opened(tmp_path, connection, "http://127.0.0.1:9")
    assert _passes(opened, 6) == [[]] * 6
    assert _landed(tmp_path) == GAP
    assert _state(tmp_path, f"{connection}.items") == "41"


def test_one_that_does_not_stands_still_and_says_so(tmp_path: Path) -> None:
    with Api() as api:
        api.route("GET", "/items", paged([{"id": number} for number in GAP], 10))
        opened = _opened(tmp_path, "api", api.url)
        first, *idle = _passes(opened, 3)
        assert first == []
        assert all(len(told) == 1 for told in idle)
        assert "dataset 'api.items'" in idle[0][0]
        assert _landed(tmp_path) == GAP[:3]
        assert _state(tmp_path, "api.items") == "3"


def test_an_end_lets_it_move_on(tmp_path: Path) -> None:
    with Api() as api:
        api.route("GET", "/items", paged([{"id": number} for number in GAP], 10))
        opened = _opened(tmp_path, "api", api.url, ", until: 50")
        assert _passes(opened, 6) == [[]] * 6
        assert _landed(tmp_path) == GAP
