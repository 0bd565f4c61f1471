"""The fault levers: a child dies, stops or fails exactly where it was told to, and only the child."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pz.testing import faults
from pz.testing.faults import Child, WarmInterpreter, child_environment, cuts, flips, list_steps

TWO = "fault_targets:two_steps"


@pytest.fixture(scope="module")
def warm() -> object:
    with WarmInterpreter() as interpreter:
        yield interpreter


def fresh(cwd: Path, **options: object) -> Child:
    return Child(["--target", TWO], cwd, child_environment(**options))  # type: ignore[arg-type]


def test_a_trace_lists_every_point_in_order(warm: WarmInterpreter, tmp_path: Path) -> None:
    assert warm.run([], tmp_path, target=TWO, trace=tmp_path / "trace").code == 0
    assert list_steps(tmp_path / "trace") == {
        "advance_state.before": 1,
        "advance_state.inside": 1,
        "advance_state.after": 1,
        "append_audit.before": 1,
        "append_audit.after": 1,
    }


def test_a_forked_child_dies_where_it_was_told_to_and_the_next_one_lives(warm: WarmInterpreter, tmp_path: Path) -> None:
    killed = warm.run([], tmp_path, target=TWO, failpoint="append_audit.before=kill")
    assert killed.killed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.json"]
    assert warm.run(["7"], tmp_path, target=TWO).code == 7
    assert sorted(p.name for p in tmp_path.iterdir()) == ["audit.log", "state.json"]


def test_a_torn_write_leaves_half_of_the_bytes_under_no_final_name(warm: WarmInterpreter, tmp_path: Path) -> None:
    assert warm.run([], tmp_path, target=TWO, failpoint="advance_state=torn").killed
    (left,) = tmp_path.iterdir()
    assert (left.suffix, left.read_bytes()) == (".tmp", b"01234")


def test_a_disk_full_failpoint_is_an_error_with_a_trace(warm: WarmInterpreter, tmp_path: Path) -> None:
    outcome = warm.run([], tmp_path, target=TWO, failpoint="advance_state.after=enospc")
    assert (outcome.code, "No space left" in outcome.stderr) == (3, True)


def test_each_fork_is_a_process_of_its_own(warm: WarmInterpreter, tmp_path: Path) -> None:
    pids = {warm.run([], tmp_path, target="fault_targets:tell_pid").stdout for _ in range(3)}
    assert len(pids | {f"{os.getpid()}\n"}) == 4


def test_a_child_that_never_ends_is_a_timeout(warm: WarmInterpreter, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        warm.run([], tmp_path, target="fault_targets:hang", timeout=1)


def test_a_fresh_child_dies_where_it_was_told_to(tmp_path: Path) -> None:
    assert fresh(tmp_path, failpoint="advance_state.after=kill").wait().killed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.json"]


def test_a_stopped_child_holds_still_and_goes_on(tmp_path: Path) -> None:
    child = fresh(tmp_path, failpoint="append_audit.before=stop")
    assert child.wait_stopped()
    assert not (tmp_path / "audit.log").exists()
    child.go_on()
    assert child.wait().code == 0
    assert (tmp_path / "audit.log").exists()


def test_a_stopped_thread_does_not_take_another_step(warm: WarmInterpreter, tmp_path: Path) -> None:
    """Whichever thread of its process gets the signal first: a thread that runs on would be stopped who knows where."""
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        ended = threading.Thread(
            target=warm.run,
            args=([], folder),
            kwargs={"failpoint": "sink_write.before=stop", "target": "fault_targets:step_in_a_thread"},
        )
        ended.start()
        child = stopped_child(warm.pid)
        gone_on = (folder / "gone-on").exists()
        os.kill(child.pid, signal.SIGCONT)
        ended.join()
        assert not gone_on
        assert (folder / "gone-on").exists()


def stopped_child(parent: int) -> psutil.Process:
    """Wait until a child of a process is stopped."""
    for _ in range(6000):
        for child in psutil.Process(parent).children():
            with suppress(psutil.NoSuchProcess):
                if child.status() == psutil.STATUS_STOPPED:
                    return child
        time.sleep(0.01)  # nobody tells when a grandchild is stopped
    raise TimeoutError("no child was stopped")


def test_cuts_and_flips_damage_every_part_and_repeat_for_a_seed() -> None:
    content = bytes(range(128))
    lengths = [len(damage.content) for damage in cuts(content)]
    assert lengths == [2 * n for n in range(64)]
    assert all(damage.content != content for damage in flips(content, 32))
    assert list(flips(content, 8, seed=3)) == list(flips(content, 8, seed=3))


def test_a_small_disk_is_full_and_grows(tmp_path: Path) -> None:
    try:
        disk = faults.tmpfs(tmp_path / "disk", 64 * 1024)
        mounted = disk.__enter__()
    except PermissionError as refused:
        pytest.skip(str(refused))
    try:
        with pytest.raises(OSError, match="No space left"):
            (mounted.path / "big").write_bytes(b"x" * 256 * 1024)
        mounted.resize(1024 * 1024)
        (mounted.path / "big").write_bytes(b"x" * 256 * 1024)
    finally:
        disk.__exit__(None, None, None)
