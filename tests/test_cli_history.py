"""`pz runs`, `pz state`, `pz schema accept` and `pz clean` over what runs left on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli_support import Answer, invoke
from projects import write
from pz.api import open_project
from pz.codes import Code
from pz.cursors import CursorType
from pz.runs.directory import RunDirectory
from pz.runs.model import NodeError, NodeResult, NodeStatus, RecordedNode, RunRecord, RunResults, RunStatus
from pz.runs.records import write_record, write_results
from pz.state.entries import Entry, Watermark
from pz.state.watermarks import watermark_store

KEY = "crm.orders"
RESULTS = (
    NodeResult(
        "1" * 16, "SourceLoad", "src_crm__orders", NodeStatus.SUCCESS, 41, 12,
        watermark={"dataset": KEY, "cursor": "id", "type": "bigint", "value": "41"},
        observed_schema={"dataset": KEY, "columns": [{"name": "id", "type": "BIGINT"}], "hintsHash": "h"},
    ),
    NodeResult(
        "2" * 16, "SinkWrite", "lake.orders", NodeStatus.FAILED, 0, 3,
        error=NodeError(Code.PZ0501.value, "the server\nhung up"),
    ),
)  # fmt: skip


def finished_run(root: Path, minute: int, status: RunStatus = RunStatus.COMPLETED_WITH_FAILURES) -> str:
    with open_run(root, minute) as run_id:
        results = RunResults(run_id, run_id, status, "2026-07-10T12:00:00.000Z", "2026-07-10T12:00:01.000Z", RESULTS)
        write_results(root / ".pz" / "runs" / run_id, results)
    return run_id


@contextmanager
def open_run(root: Path, minute: int) -> Iterator[str]:
    with RunDirectory.create(root / ".pz", datetime(2026, 7, 10, 12, minute, tzinfo=UTC)) as run:
        nodes = tuple(RecordedNode(node.id, node.kind, node.name) for node in RESULTS)
        record = RunRecord(run.run_id, run.number, "shop", "2026-07-10T12:00:00.000Z", "run", nodes, origin=run.run_id)
        write_record(run.path, record)
        yield run.run_id


def pz(root: Path, *arguments: str) -> Answer:
    return invoke(*arguments, project=open_project(write(root, {}), environ={}))


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    first, second = finished_run(tmp_path, 1), finished_run(tmp_path, 2, RunStatus.SUCCESS)
    lines = pz(tmp_path, "runs").out.splitlines()
    assert lines[0].split() == ["run", "status", "verb", "started", "succeeded", "failed", "skipped", "continues"]
    assert [line.split()[:2] for line in lines[1:]] == [[second, "success"], [first, "completed_with_failures"]]


def test_runs_as_json_hold_the_same_facts(tmp_path: Path) -> None:
    run_id = finished_run(tmp_path, 1)
    (facts,) = json.loads(pz(tmp_path, "runs", "--json", "--limit", "1").out)
    assert facts["runId"] == run_id
    assert (facts["succeeded"], facts["failed"], facts["skipped"], facts["live"]) == (1, 1, 0, False)


def test_a_retry_is_called_one(tmp_path: Path) -> None:
    first = finished_run(tmp_path, 1)
    with RunDirectory.create(tmp_path / ".pz") as again:
        record = RunRecord(again.run_id, again.number, "shop", "", "run", (), origin=first, retry_of=first)
        write_record(again.path, record)
    facts = json.loads(pz(tmp_path, "runs", "--json").out)
    assert [(run["verb"], run["retryOf"]) for run in facts] == [("retry", first), ("run", None)]


def test_a_run_whose_process_is_gone_is_dead_and_one_that_is_held_is_running(tmp_path: Path) -> None:
    with open_run(tmp_path, 1):
        pass
    with open_run(tmp_path, 2):
        lines = pz(tmp_path, "runs").out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["running", "dead"]


def test_no_runs_is_an_answer_too(tmp_path: Path) -> None:
    assert pz(tmp_path, "runs") == Answer(0, "no runs yet\n", "")


def test_a_limit_below_one_has_its_code(tmp_path: Path) -> None:
    got = pz(tmp_path, "runs", "--limit", "0")
    assert (got.code, got.err.split(":")[0]) == (2, "error PZ0534")


def test_one_run_is_shown_with_its_errors(tmp_path: Path) -> None:
    run_id = finished_run(tmp_path, 1)
    expected = [
        "node             kind        status   rows  ms  note",
        "src_crm__orders  SourceLoad  success    41  12",
        "lake.orders      SinkWrite   failed      0   3",
        "FAIL lake.orders",
        "  error PZ0501: the server",
        "  hung up",
        f"run {run_id}: completed_with_failures: 1 succeeded, 1 failed, 0 skipped",
    ]
    assert pz(tmp_path, "runs", "show", run_id).out.splitlines() == expected
    assert pz(tmp_path, "runs", "show").out.splitlines() == expected


def test_an_unknown_run_is_refused(tmp_path: Path) -> None:
    for arguments in (("runs", "show"), ("runs", "show", "nope")):
        got = pz(tmp_path, *arguments)
        assert got.code == 2
        assert got.err.startswith("error PZ0700: there is no run")


@pytest.fixture
def stateful(tmp_path: Path) -> Path:
    entry = Entry(Watermark("id", CursorType.BIGINT, "100"), "20260710T120000000Z-ab12")
    watermark_store(tmp_path / ".pz").save(KEY, entry, seen=None)
    return tmp_path


def stored(root: Path) -> str | None:
    entry = watermark_store(root / ".pz").read().get(KEY)
    return entry.value.value if entry is not None and isinstance(entry.value, Watermark) else None


def test_state_is_shown_by_dataset(stateful: Path) -> None:
    assert pz(stateful, "state", "show").out.splitlines() == [
        "dataset     kind       cursor  type    value  run",
        "crm.orders  watermark  id      bigint  100    20260710T120000000Z-ab12",
    ]
    assert json.loads(pz(stateful, "state", "show", KEY, "--json").out)[0]["value"] == "100"


def test_no_state_is_an_answer_and_an_unknown_key_a_refusal(tmp_path: Path) -> None:
    assert pz(tmp_path, "state", "show") == Answer(0, "no state is stored\n", "")
    assert pz(tmp_path, "state", "show", "x.y").err.startswith("error PZ0513: ")


def test_a_watermark_is_set_with_consent(stateful: Path) -> None:
    got = pz(stateful, "state", "set", KEY, "--value", "50", "--yes", "--reason", "replay")
    assert got == Answer(0, "set crm.orders: 100 -> 50\n", "")
    assert stored(stateful) == "50"


def test_a_dry_run_changes_nothing_and_needs_no_consent(stateful: Path) -> None:
    got = pz(stateful, "state", "set", KEY, "--value", "50", "--dry-run")
    assert got == Answer(0, "would set crm.orders: 100 -> 50\n", "")
    assert stored(stateful) == "100"


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", KEY, "--value", "50"),
        ("set", KEY, "--yes"),
        ("set", "--value", "50", "--yes"),
        ("rollback", KEY, "--yes"),
        ("clear", "--yes"),
        ("clear", KEY),
    ],
)
def test_what_is_missing_is_refused_before_anything_changes(arguments: tuple[str, ...], stateful: Path) -> None:
    got = pz(stateful, "state", *arguments)
    assert got.code == 2
    assert got.err.startswith("error PZ0516: ")
    assert stored(stateful) == "100"


@pytest.mark.parametrize(("answer", "after"), [("y\n", "50"), ("n\n", "100"), ("", "100")])
def test_on_a_terminal_the_user_is_asked(
    answer: str, after: str, stateful: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal(answer))
    got = pz(stateful, "state", "set", KEY, "--value", "50")
    assert got.err.startswith("set crm.orders: 100 -> 50? [y/N] ")
    assert stored(stateful) == after


class _Terminal:
    def __init__(self, answer: str) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._answer


def test_a_watermark_goes_back_to_what_a_run_recorded(stateful: Path) -> None:
    run_id = finished_run(stateful, 1)
    got = pz(stateful, "state", "rollback", KEY, "--to-run", run_id, "--yes")
    assert got == Answer(
        0, "rollback crm.orders: 100 -> 41\n", f"note: run {run_id} ended as completed_with_failures\n"
    )
    assert stored(stateful) == "41"


def test_a_watermark_is_forgotten(stateful: Path) -> None:
    assert pz(stateful, "state", "clear", KEY, "--yes").out == "clear crm.orders: 100 -> nothing\n"
    assert stored(stateful) is None


def test_a_run_in_flight_blocks_edits(stateful: Path) -> None:
    with open_run(stateful, 1):
        got = pz(stateful, "state", "clear", KEY, "--yes")
    assert (got.code, got.err.split(":")[0]) == (2, "error PZ0517")
    assert stored(stateful) == "100"


def test_observed_columns_are_accepted_once(tmp_path: Path) -> None:
    assert pz(tmp_path, "schema", "accept").err.startswith("error PZ0127: ")
    finished_run(tmp_path, 1)
    assert pz(tmp_path, "schema", "accept", KEY) == Answer(0, "accepted: crm.orders\n", "")
    assert pz(tmp_path, "schema", "accept") == Answer(0, "nothing to accept\n", "")
    assert pz(tmp_path, "schema", "accept", "x.y").err.startswith("error PZ0127: ")


def staging(root: Path, run_id: str) -> Path:
    path = root / ".pz" / "runs" / run_id / "staging.duckdb"
    path.write_bytes(b"x" * 2048)
    return path


def test_clean_keeps_the_newest_and_says_what_went(tmp_path: Path) -> None:
    old, new = finished_run(tmp_path, 1, RunStatus.SUCCESS), finished_run(tmp_path, 2, RunStatus.SUCCESS)
    files = staging(tmp_path, old), staging(tmp_path, new)
    assert pz(tmp_path, "clean", "--dry-run").out.splitlines() == [
        f"would remove staging {old} 2.0 KiB",
        "would remove 1 run, 2.0 KiB",
    ]
    assert all(file.exists() for file in files)
    assert pz(tmp_path, "clean").out.splitlines() == [f"removed staging {old} 2.0 KiB", "removed 1 run, 2.0 KiB"]
    assert [file.exists() for file in files] == [False, True]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--keep-last", "1", "--older-than", "3d"), Code.PZ0511),
        (("--keep-last", "x"), Code.PZ0512),
        (("--keep-last", "-1"), Code.PZ0512),
        (("--older-than", "soon"), Code.PZ0512),
    ],
)
def test_clean_refuses_selectors_it_cannot_mean(arguments: tuple[str, ...], code: Code, tmp_path: Path) -> None:
    got = pz(tmp_path, "clean", *arguments)
    assert (got.code, got.err.split(":")[0]) == (2, f"error {code}")
