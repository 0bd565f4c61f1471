"""Cleaning up: old staging goes, what is live, unfinished or not ours stays."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from children import run
from pz.errors import Code, ProjectError
from pz.runs.directory import RunDirectory, hold, runs_root
from pz.runs.history import latest, list_runs
from pz.runs.model import RecordedNode, RunRecord, RunResults, RunStatus
from pz.runs.records import RECORD, RESULTS, write_record, write_results
from pz.runs.retention import clean, clean_selection, sweep
from pz.runs.unsettled import settle

OK, BAD = RunStatus.SUCCESS, RunStatus.COMPLETED_WITH_FAILURES
BASE = RunRecord("", 0, "demo", "2026-07-10T12:00:00.000Z", "run", (RecordedNode("0", "Pipeline", "p"),), "")


def a_run(state_dir: Path, status: RunStatus = OK, *, of: str | None = None, origin: str | None = None) -> Path:
    with RunDirectory.create(state_dir) as directory:
        begun = origin or of or directory.run_id
        record = replace(BASE, run_id=directory.run_id, number=directory.number, retry_of=of, origin=begun)
        write_record(directory.path, record)
        (directory.path / "staging.duckdb").write_bytes(b"x" * 1000)
        (directory.path / "staging.duckdb.wal").write_bytes(b"x" * 10)
        write_results(directory.path, RunResults(directory.run_id, begun, status, record.started_at))
        return directory.path


def with_data(state_dir: Path) -> set[Path]:
    return {path.parent for path in runs_root(state_dir).glob("*/staging.duckdb")}


def directories(state_dir: Path) -> set[Path]:
    return {path for path in runs_root(state_dir).iterdir() if path.is_dir() and not path.name.startswith(".")}


def test_a_sweep_spares_the_staging_of_a_run_of_which_state_may_still_come(tmp_path: Path) -> None:
    open_, settled = a_run(tmp_path, RunStatus.RUNNING), a_run(tmp_path, RunStatus.RUNNING)
    settle(tmp_path, settled.name)
    kept = [a_run(tmp_path) for _ in range(2)]
    sweep(tmp_path, 2)
    assert with_data(tmp_path) == {open_, *kept}
    clean(tmp_path, keep_last=2)
    assert with_data(tmp_path) == set(kept), "a person may still say so"


def test_old_staging_and_its_wal_go_and_records_stay(tmp_path: Path) -> None:
    runs = [a_run(tmp_path) for _ in range(4)]
    report = sweep(tmp_path, 2)
    assert with_data(tmp_path) == set(runs[2:])
    assert {cleaned.run_id for cleaned in report.cleaned} == {run.name for run in runs[:2]}
    assert report.bytes == 2020
    for path in runs[:2]:
        assert {item.name for item in path.iterdir()} == {RECORD, RESULTS, "number", "run.lock", "run.lock.owner"}
    assert sweep(tmp_path, 2).cleaned == ()
    assert sweep(tmp_path, None).cleaned == ()


def test_the_newest_is_kept_by_default_and_none_when_asked_for(tmp_path: Path) -> None:
    runs = [a_run(tmp_path) for _ in range(2)]
    clean(tmp_path)
    assert with_data(tmp_path) == {runs[1]}
    clean(tmp_path, keep_last=0)
    assert with_data(tmp_path) == set()


def test_a_dry_run_decides_the_same_and_removes_nothing(tmp_path: Path) -> None:
    for _ in range(3):
        a_run(tmp_path)
    before = with_data(tmp_path)
    dry = clean(tmp_path, dry_run=True)
    assert with_data(tmp_path) == before
    assert dry.dry_run
    assert replace(dry, dry_run=False) == clean(tmp_path)


def test_an_unfinished_chain_counts_as_one_run_and_is_kept_whole(tmp_path: Path) -> None:
    old = a_run(tmp_path)
    first = a_run(tmp_path, BAD)
    second = a_run(tmp_path, BAD, of=first.name)
    third = a_run(tmp_path, BAD, of=second.name, origin=first.name)
    clean(tmp_path)
    assert with_data(tmp_path) == {first, second, third}
    newest = a_run(tmp_path)
    clean(tmp_path)
    assert with_data(tmp_path) == {newest}
    assert old.exists()


def test_a_chain_that_succeeded_is_no_longer_kept_together(tmp_path: Path) -> None:
    first = a_run(tmp_path, BAD)
    last = a_run(tmp_path, OK, of=first.name)
    clean(tmp_path)
    assert with_data(tmp_path) == {last}


def test_a_live_run_is_skipped_and_a_dead_one_is_not(tmp_path: Path) -> None:
    held, dead = a_run(tmp_path, RunStatus.RUNNING), a_run(tmp_path, RunStatus.RUNNING)
    a_run(tmp_path)
    lock = hold(held, "a-retry")
    assert lock is not None
    report = clean(tmp_path)
    assert report.live == (held.name,)
    assert [cleaned.run_id for cleaned in report.cleaned] == [dead.name]
    lock.release()
    assert [cleaned.run_id for cleaned in clean(tmp_path).cleaned] == [held.name]


def test_one_live_member_protects_its_whole_chain(tmp_path: Path) -> None:
    first = a_run(tmp_path, BAD)
    second = a_run(tmp_path, BAD, of=first.name)
    a_run(tmp_path)
    lock = hold(second, "a-retry")
    assert lock is not None
    assert clean(tmp_path, purge=True).cleaned == ()
    lock.release()


def test_older_than_goes_by_age_and_keeps_the_newest(tmp_path: Path) -> None:
    moments = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 5, 9)]
    paths = []
    for moment in moments:
        path = a_run(tmp_path)
        final = path.with_name(f"{moment:%Y%m%dT%H%M%S}000Z-{path.name[-4:]}")
        path.rename(final)
        paths.append(final)
    moment = datetime(2026, 1, 10, tzinfo=UTC)
    clean(tmp_path, older_than=timedelta(days=7), moment=moment)
    assert with_data(tmp_path) == set(paths[1:])
    clean(tmp_path, older_than=timedelta(0), moment=moment)
    assert with_data(tmp_path) == {paths[2]}


def test_purge_removes_whole_directories_and_foreign_ones_before_any_run(tmp_path: Path) -> None:
    runs = [a_run(tmp_path) for _ in range(2)]
    (runs_root(tmp_path) / "foreign").mkdir()
    (runs_root(tmp_path) / "foreign" / "staging.duckdb").write_bytes(b"x")
    clean(tmp_path)
    assert (runs_root(tmp_path) / "foreign" / "staging.duckdb").exists()
    clean(tmp_path, older_than=timedelta(0), purge=True, moment=datetime(2999, 1, 1, tzinfo=UTC))
    assert (runs_root(tmp_path) / "foreign").exists()
    clean(tmp_path, keep_last=1, purge=True)
    assert directories(tmp_path) == {runs[1]}
    last = latest(tmp_path)
    assert last is not None
    assert last.path == runs[1]


def test_a_run_that_died_before_it_began_never_takes_the_place_of_a_real_one(tmp_path: Path) -> None:
    real = a_run(tmp_path)
    RunDirectory.create(tmp_path).close()
    clean(tmp_path, purge=True)
    assert directories(tmp_path) == {real}


def test_state_and_target_are_never_touched(tmp_path: Path) -> None:
    a_run(tmp_path)
    for name in ("state", "target", "locks", "packages"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "staging.duckdb").write_bytes(b"x")
    clean(tmp_path, keep_last=0, purge=True)
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "state", "target", "locks", "packages"}
    assert all((tmp_path / name / "staging.duckdb").exists() for name in ("state", "target", "locks", "packages"))


PURGE = """
import sys
from pathlib import Path
from pz.runs.retention import clean
clean(Path(sys.argv[1]), keep_last=0, purge=sys.argv[2] == "purge")
"""


@pytest.mark.parametrize("how", ["purge", "data"])
@pytest.mark.parametrize("point", ["before:1", "after:1", "before:2", "after:2"])
def test_a_death_while_cleaning_leaves_whole_runs_or_none(tmp_path: Path, how: str, point: str) -> None:
    paths = [a_run(tmp_path) for _ in range(2)]
    assert run(PURGE, tmp_path, how, failpoint=f"sweep_retention.{point}=kill") == -signal.SIGKILL
    for entry in list_runs(tmp_path):
        assert not entry.damage
        assert entry.record is not None
    clean(tmp_path, keep_last=0, purge=how == "purge")
    assert with_data(tmp_path) == set()
    if how == "purge":
        assert not any(path.exists() for path in paths)


def test_leftovers_of_interrupted_creations_and_removals_go(tmp_path: Path) -> None:
    a_run(tmp_path)
    for name in (".gone-20260101T000000000Z-abcd", ".new-20260101T000000000Z-abcd"):
        (runs_root(tmp_path) / name).mkdir()
        (runs_root(tmp_path) / name / "number").write_text("1\n")
    clean(tmp_path)
    assert not list(runs_root(tmp_path).glob(".new-*")) + list(runs_root(tmp_path).glob(".gone-*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove anything")
def test_what_cannot_be_removed_is_reported(tmp_path: Path) -> None:
    first = a_run(tmp_path)
    a_run(tmp_path)
    first.chmod(0o500)
    report = clean(tmp_path)
    first.chmod(0o700)
    assert [problem.code for problem in report.problems] == [Code.PZ0531]


@pytest.mark.parametrize(
    ("keep_last", "older_than", "code"),
    [("1", "7d", Code.PZ0511), ("-1", None, Code.PZ0512), ("x", None, Code.PZ0512), (None, "soon", Code.PZ0512)],
)
def test_unusable_selectors_are_refused(keep_last: str | None, older_than: str | None, code: Code) -> None:
    with pytest.raises(ProjectError) as raised:
        clean_selection(keep_last, older_than)
    assert raised.value.code is code
    assert clean_selection("3", None) == (3, None)
    assert clean_selection(None, "7d") == (None, timedelta(days=7))
    assert json.dumps(clean_selection(None, None)) == "[null, null]"
