"""A node that is skipped says for which failed node, wherever it is told of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pz
from cli_support import invoke
from pz.cli.render.board import Board
from pz.engine.result import RunResult
from pz.events import Event
from running import project, run

SINK = "INSERT INTO {{ sink('lake', '%s', strategy: 'replace') }} "
FILES = {
    "data/good.csv": "id\n1\n",
    "data/bad.csv": "id\nx\n",
    "pipelines/good.sql": SINK % "good" + "SELECT * FROM {{ source('files', 'good', columns: {id: 'int'}) }}",
    "pipelines/first.sql": "SELECT * FROM {{ source('files', 'bad', columns: {id: 'int'}) }}",
    "pipelines/second.sql": SINK % "second" + "SELECT * FROM {{ ref('first') }}",
}


def skips(result: RunResult) -> dict[str, str | None]:
    return {node.name: node.skipped_for for node in result.nodes if str(node.status) == "skipped"}


@pytest.fixture(name="opened")
def _opened(tmp_path: Path) -> pz.OpenProject:
    return project(tmp_path, FILES)


CAUSE = "src_files__bad"
BELOW = dict.fromkeys(("first", "second", "lake.second"), CAUSE)


def test_the_first_failure_above_is_the_cause_of_all_that_stands_below_it(opened: pz.OpenProject) -> None:
    seen: list[Event] = []
    result = run(opened, on_event=seen.append)
    assert skips(result) == BELOW
    wire = [json.loads(json.dumps(event.to_wire())) for event in seen]
    told = {event["name"]: event["skippedFor"] for event in wire if "skippedFor" in event}
    assert told == BELOW
    stored = json.loads((opened.root / ".pz/runs" / result.run_id / "run_results.json").read_text())
    assert {node["name"]: node["skippedFor"] for node in stored["nodes"] if "skippedFor" in node} == BELOW
    board = Board()
    for event in seen:
        board.apply(event, 0.0)
    remarks = {row.node.name: row.remark for row in board.rows.values() if row.word == "skip"}
    assert remarks == dict.fromkeys(BELOW, f"{CAUSE} failed")


def test_the_lines_and_the_list_of_a_run_tell_it(opened: pz.OpenProject) -> None:
    lines = invoke("run", "--all", project=opened).out.splitlines()
    assert {
        line.split()[1] for line in lines if line.startswith("skip") and line.endswith(f" ({CAUSE} failed)")
    } == set(BELOW)
    shown = invoke("runs", "show", project=opened).out.splitlines()
    assert {line.split()[0] for line in shown if line.endswith(f"{CAUSE} failed")} == set(BELOW)


def test_what_is_skipped_because_the_run_was_stopped_names_no_node(opened: pz.OpenProject) -> None:
    stop = pz.CancelToken()
    result = run(opened, cancel=stop, on_event=lambda event: stop.cancel() if event.name == "run_started" else None)
    assert set(skips(result).values()) == {None}
