"""The run directory: numbers, locks, life and death."""

from __future__ import annotations

import os
import re
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from children import run, start, wait_for_line
from pz import durable
from pz.errors import Code, ProjectError
from pz.oslock import OsLock, Owner
from pz.runs.directory import RunDirectory, hold, is_live, number_of, owner_of, run_paths, runs_root
from pz.runs.ids import is_run_id, new_run_id, started_at

HOLD = """
import sys
from pathlib import Path
from pz.runs.directory import RunDirectory
directory = RunDirectory.create(Path(sys.argv[1]))
print(directory.run_id, flush=True)
sys.stdin.readline()
"""
CREATE_MANY = """
import sys
from pathlib import Path
from pz.runs.directory import RunDirectory
for _ in range(20):
    with RunDirectory.create(Path(sys.argv[1])):
        pass
"""


def test_a_run_id_carries_the_moment_in_utc_and_four_hex_digits() -> None:
    moment = datetime(2026, 7, 10, 12, 0, 0, 123_999, UTC)
    run_id = new_run_id(moment)
    assert re.fullmatch(r"20260710T120000123Z-[0-9a-f]{4}", run_id)
    assert started_at(run_id) == moment.replace(microsecond=123_000)
    assert not is_run_id("20261310T120000123Z-abcd")
    assert not is_run_id("../20260710T120000123Z-abcd")


def test_numbers_rise_by_one_even_when_the_newest_run_was_removed(tmp_path: Path) -> None:
    numbers = []
    for _ in range(3):
        with RunDirectory.create(tmp_path) as directory:
            numbers.append(directory.number)
            assert number_of(directory.path) == directory.number
        for leftover in directory.path.iterdir():
            leftover.unlink()
        directory.path.rmdir()
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 1, "number": 1, "runId": "x"}', None])
def test_a_lost_or_damaged_counter_is_rebuilt_from_the_runs(tmp_path: Path, damage: bytes | None) -> None:
    for _ in range(3):
        RunDirectory.create(tmp_path).close()
    counter = runs_root(tmp_path) / ".counter.json"
    counter.unlink()
    if damage is not None:
        counter.write_bytes(damage)
    assert RunDirectory.create(tmp_path).number == 4


def test_processes_that_start_runs_together_never_share_a_number(tmp_path: Path) -> None:
    children = [start(CREATE_MANY, tmp_path) for _ in range(3)]
    for child in children:
        child.communicate(timeout=60)
    numbers = sorted(number_of(path) or 0 for path in run_paths(tmp_path))
    assert numbers == list(range(1, 61))


def test_the_lock_lives_as_long_as_the_run(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path) as directory:
        assert is_live(directory.path)
        assert owner_of(directory.path) == Owner.this_process(directory.run_id)
        assert hold_now(directory.path) is None
    assert not is_live(directory.path)


def hold_now(path: Path) -> OsLock | None:
    lock = OsLock(path / "run.lock")
    return lock if lock.acquire() else None


def test_a_stopped_process_keeps_its_lock_and_a_killed_one_frees_it(tmp_path: Path) -> None:
    child = start(HOLD, tmp_path)
    assert child.stdout is not None
    path = runs_root(tmp_path) / child.stdout.readline().strip()
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert is_live(path)
    owner = owner_of(path)
    assert owner is not None
    assert owner.pid == child.pid
    child.kill()
    child.communicate()
    assert not is_live(path)


def test_a_retry_holds_the_run_that_it_continues(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path) as directory:
        pass
    held = hold(directory.path, "the-retry")
    assert held is not None
    assert is_live(directory.path)
    assert str(owner_of(directory.path)).startswith("run the-retry on host ")
    held.release()
    assert not is_live(directory.path)


@pytest.mark.parametrize("point", [f"create_run_dir.{side}:{nth}" for side in ("before", "after") for nth in (1, 2)])
def test_a_death_while_the_directory_is_made_leaves_no_half_born_run(tmp_path: Path, point: str) -> None:
    assert run(HOLD, tmp_path, failpoint=f"{point}=kill") == -signal.SIGKILL
    for path in run_paths(tmp_path):
        assert number_of(path) == 1
        assert not is_live(path)
    assert RunDirectory.create(tmp_path).number in {1, 2}


def test_a_failed_creation_is_reported_with_its_path_and_leaves_nothing(tmp_path: Path) -> None:
    durable.rearm("create_run_dir.after:2=enospc")
    try:
        with pytest.raises(ProjectError) as raised:
            RunDirectory.create(tmp_path)
    finally:
        durable.rearm()
    assert raised.value.code is Code.PZ0532
    assert str(runs_root(tmp_path)) in raised.value.problems[0].message


def test_a_file_in_the_place_of_the_runs_directory_is_reported(tmp_path: Path) -> None:
    runs_root(tmp_path).write_text("not a directory")
    with pytest.raises(ProjectError) as raised:
        RunDirectory.create(tmp_path)
    assert raised.value.code is Code.PZ0702


def test_the_child_helper_waits_for_a_line(tmp_path: Path) -> None:
    child = start("print('ready', flush=True)")
    wait_for_line(child, "ready")
    child.communicate()
