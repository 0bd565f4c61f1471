"""run.json, run_results.json and what can be told from them."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from children import run
from pz import durable
from pz.errors import Code, Problem, StateError
from pz.runs.directory import RunDirectory, runs_root
from pz.runs.history import chain, find, latest, list_runs
from pz.runs.model import NodeError, NodeResult, NodeStatus, RecordedNode, RunRecord, RunResults, RunStatus
from pz.runs.records import (
    RECORD,
    RESULTS,
    ResultsWriter,
    read_record,
    read_results,
    write_record,
    write_results,
)

RECORD_1 = RunRecord(
    run_id="20260710T120000123Z-ab12",
    number=7,
    project="demo",
    started_at="2026-07-10T12:00:00.123Z",
    verb="retry",
    nodes=(RecordedNode("0" * 16, "SourceLoad", "crm.orders", "d1"), RecordedNode("1" * 16, "Pipeline", "p")),
    origin="20260710T110000123Z-ab12",
    origin_started_at="2026-07-10T11:00:00.123Z",
    retry_of="20260710T110000123Z-ab12",
    flags={"full_refresh": True},
    vars={"day": "2026-07-10", "n": 9007199254740993, "x": 0.1, "list": [1, "é"]},
    stored={"crm.orders": {"value": "100"}},
    used={},
    probes={"crm.orders": {"upper": "200"}},
    host="box",
    pid=42,
)
RESULTS_1 = RunResults(
    run_id=RECORD_1.run_id,
    origin=RECORD_1.origin,
    status=RunStatus.COMPLETED_WITH_FAILURES,
    started_at=RECORD_1.started_at,
    finished_at="2026-07-10T12:00:09.000Z",
    nodes=(
        NodeResult(
            "0" * 16,
            "SourceLoad",
            "crm.orders",
            NodeStatus.SUCCESS,
            3,
            12,
            provenance="reused",
            partitions={"total": 2, "completed": 2, "reused": 1, "resumed": 0},
            watermark={"cursor": "id", "type": "int", "value": "9"},
        ),
        NodeResult("1" * 16, "Pipeline", "p", NodeStatus.FAILED, error=NodeError("PZ0501", "boom \udc80")),
        NodeResult("2" * 16, "SinkWrite", "s", NodeStatus.SKIPPED, fused=True),
    ),
)


def a_run(state_dir: Path, *, status: RunStatus | None = None, of: str | None = None) -> RunDirectory:
    directory = RunDirectory.create(state_dir)
    write_record(
        directory.path,
        replace(RECORD_1, run_id=directory.run_id, number=directory.number, retry_of=of, origin=of or directory.run_id),
    )
    if status is not None:
        write_results(directory.path, replace(RESULTS_1, run_id=directory.run_id, status=status))
    directory.close()
    return directory


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    write_record(tmp_path, RECORD_1)
    assert read_record(tmp_path) == RECORD_1


def test_results_come_back_and_absent_blocks_are_absent_on_disk(tmp_path: Path) -> None:
    write_results(tmp_path, RESULTS_1)
    assert read_results(tmp_path) == RESULTS_1
    document = json.loads((tmp_path / RESULTS).read_text())
    assert document["version"] == 1
    assert list(document["nodes"][0]) == [
        "id",
        "kind",
        "name",
        "status",
        "provenance",
        "rows",
        "durationMs",
        "error",
        "partitions",
        "watermark",
    ]
    assert document["nodes"][1]["error"]["code"] == "PZ0501"
    assert (tmp_path / RESULTS).read_bytes().endswith(b"}\n")


def test_a_running_snapshot_has_no_finish(tmp_path: Path) -> None:
    write_results(tmp_path, replace(RESULTS_1, status=RunStatus.RUNNING, finished_at=None))
    assert "finishedAt" not in json.loads((tmp_path / RESULTS).read_text())


@pytest.mark.parametrize("name", [RECORD, RESULTS])
def test_a_file_that_was_cut_or_changed_is_refused_or_reads_the_same(tmp_path: Path, name: str) -> None:
    write_record(tmp_path, RECORD_1)
    write_results(tmp_path, RESULTS_1)
    path = tmp_path / name
    whole = path.read_bytes()
    expected = {RECORD: RECORD_1, RESULTS: RESULTS_1}[name]
    cuts = [whole[: len(whole) * n // 64] for n in range(64)]
    flips = [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole))]
    refused = []
    for damaged in [*cuts, *flips]:
        path.write_bytes(damaged)
        try:
            assert (read_record if name == RECORD else read_results)(tmp_path) == expected
        except StateError as failure:
            refused.append(failure.code)
    assert set(refused) == {Code.PZ0707}
    assert len(refused) > len(whole) // 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not complete JSON"),
        (b"[]", "JSON object"),
        (b"{}", "no version"),
        (b'{"version": 2}', "newer version"),
        (b'{"version": 0}', "unknown"),
        (b'{"version": 1, "runId": "x"}', "checksum"),
        (b'{"version": 1, "version": 1}', "not complete JSON"),
        (b"\xff\xfe", "not complete JSON"),
        (b"[" * 100_000, "not complete JSON"),
    ],
)
def test_a_foreign_record_is_refused_saying_why(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / RECORD).write_bytes(content)
    with pytest.raises(StateError, match=said):
        read_record(tmp_path)


WRITE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_run_records import RECORD_1, RESULTS_1
from pz.runs.records import write_results
from pz.runs.model import RunStatus
from dataclasses import replace
path = Path(sys.argv[1])
write_results(path, replace(RESULTS_1, status=RunStatus.RUNNING))
write_results(path, RESULTS_1)
"""


@pytest.mark.parametrize("name", ["write_results", "finish_run"])
@pytest.mark.parametrize("how", [".before=kill", ".after=kill", "=torn"])
def test_a_death_while_results_are_written_leaves_the_old_or_the_new_ones(tmp_path: Path, name: str, how: str) -> None:
    before = replace(RESULTS_1, status=RunStatus.RUNNING, nodes=())
    write_results(tmp_path, before)
    assert run(WRITE, tmp_path, Path(__file__).parent, failpoint=name + how) == -signal.SIGKILL
    running = replace(RESULTS_1, status=RunStatus.RUNNING)
    old, new = (before, running) if name == "write_results" else (running, RESULTS_1)
    assert read_results(tmp_path) == (new if "after" in how else old)


def test_results_that_cannot_be_written_warn_once_and_are_tried_again(tmp_path: Path) -> None:
    warned: list[Problem] = []
    writer = ResultsWriter(tmp_path, warned.append)
    durable.rearm("write_results.before:1=enospc,write_results.before:2=raise")
    running = replace(RESULTS_1, status=RunStatus.RUNNING)
    try:
        assert [writer.write(running) for _ in range(3)] == [False, False, True]
    finally:
        durable.rearm()
    assert [problem.code for problem in warned] == [Code.PZ0532]
    assert str(tmp_path / RESULTS) in warned[0].message
    assert read_results(tmp_path) == running


def test_runs_are_listed_newest_first_by_number_and_not_by_id(tmp_path: Path) -> None:
    made = [a_run(tmp_path, status=RunStatus.SUCCESS) for _ in range(3)]
    early = runs_root(tmp_path) / "19990101T000000000Z-0000"
    made[2].path.rename(early)
    assert [run.path for run in list_runs(tmp_path)] == [early, made[1].path, made[0].path]
    assert [run.number for run in list_runs(tmp_path, 2)] == [3, 2]


@pytest.mark.parametrize("name", [RECORD, RESULTS])
def test_the_last_run_stays_the_last_when_its_files_are_damaged(tmp_path: Path, name: str) -> None:
    a_run(tmp_path, status=RunStatus.SUCCESS)
    last = a_run(tmp_path, status=RunStatus.SUCCESS)
    (last.path / name).write_bytes(b"{")
    for counter in (True, False):
        if not counter:
            (runs_root(tmp_path) / ".counter.json").unlink()
            (last.path / "number").unlink()
        found = latest(tmp_path)
        assert found is not None
        assert found.path == last.path
        assert [problem.code for problem in found.damage] == [Code.PZ0707]
        assert not found.dead
        assert (found.record is None) == (name == RECORD)


def test_a_run_that_died_before_it_began_is_passed_over(tmp_path: Path) -> None:
    earlier = a_run(tmp_path, status=RunStatus.COMPLETED_WITH_FAILURES)
    with RunDirectory.create(tmp_path) as unborn:
        live = latest(tmp_path)
        assert live is not None
        assert (live.path, live.live, live.began) == (unborn.path, True, False)
    found = latest(tmp_path)
    assert found is not None
    assert found.path == earlier.path


def test_a_run_is_dead_when_nothing_terminal_is_written_and_its_lock_is_free(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path)
    write_record(directory.path, RECORD_1)
    live = find(tmp_path, directory.run_id)
    assert live is not None
    assert (live.live, live.dead, live.status) == (True, False, RunStatus.RUNNING)
    directory.close()
    dead = find(tmp_path, directory.run_id)
    assert dead is not None
    assert (dead.live, dead.dead, dead.status) == (False, True, RunStatus.RUNNING)


def test_a_chain_leads_from_the_last_retry_to_the_origin_that_still_exists(tmp_path: Path) -> None:
    first = a_run(tmp_path, status=RunStatus.COMPLETED_WITH_FAILURES)
    second = a_run(tmp_path, status=RunStatus.COMPLETED_WITH_FAILURES, of=first.run_id)
    third = a_run(tmp_path, status=RunStatus.SUCCESS, of=second.run_id)
    last = latest(tmp_path)
    assert last is not None
    assert [run.run_id for run in chain(tmp_path, last)] == [third.run_id, second.run_id, first.run_id]
    first.path.rename(tmp_path / "gone")
    assert [run.run_id for run in chain(tmp_path, last)] == [third.run_id, second.run_id]


def test_no_runs_at_all(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    assert list_runs(tmp_path) == ()
    assert find(tmp_path, "../x") is None
