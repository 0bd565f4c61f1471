"""The locks that a run takes before it reads any state."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from children import start, wait_for_line
from pz.connectors.contract import Cancelled, CancelToken
from pz.errors import Code, StateError
from pz.state.locks import RunLocks, dataset_lock, output_lock

HOLD = """
import sys
from pathlib import Path
from pz.state.locks import RunLocks
locks = RunLocks.acquire(Path(sys.argv[1]), "the-holder", sys.argv[2:])
print("held", flush=True)
sys.stdin.readline()
"""


def acquire(state_dir: Path, *names: str) -> RunLocks:
    return RunLocks.acquire(state_dir, "a-run", names, wait=0)


def test_runs_with_disjoint_datasets_and_outputs_do_not_meet(tmp_path: Path) -> None:
    with acquire(tmp_path, dataset_lock("crm.orders"), output_lock("lake.orders")):
        acquire(tmp_path, dataset_lock("crm.items"), output_lock("crm.orders")).release()


def test_a_held_lock_is_refused_naming_object_run_and_host(tmp_path: Path) -> None:
    with (
        acquire(tmp_path, dataset_lock("crm.orders")),
        pytest.raises(
            StateError, match=r"dataset 'crm\.orders' is held by run a-run on host .+ \(process \d+\)"
        ) as raised,
    ):
        acquire(tmp_path, dataset_lock("crm.orders"))
    assert raised.value.code is Code.PZ0701
    acquire(tmp_path, dataset_lock("crm.orders")).release()


def test_all_locks_are_taken_or_none(tmp_path: Path) -> None:
    with acquire(tmp_path, output_lock("b")):
        with pytest.raises(StateError):
            acquire(tmp_path, output_lock("a"), output_lock("b"), output_lock("c"))
        acquire(tmp_path, output_lock("a"), output_lock("c")).release()


@pytest.mark.parametrize(
    "names",
    [("output:a.b", "output:a_b"), ("output:é", "output:è"), ("output:A.b", "output:a.b"), ("dataset:x", "output:x")],
)
def test_names_that_differ_in_any_way_have_locks_of_their_own(tmp_path: Path, names: tuple[str, str]) -> None:
    acquire(tmp_path, *names).release()
    with acquire(tmp_path, names[0]):
        acquire(tmp_path, names[1]).release()


@pytest.mark.parametrize("entity", ["../../etc/passwd", "a/b\\c", "x" * 5000, "new\nline", "CON", "*?<>|"])
def test_any_entity_name_gives_a_lock_inside_the_locks_directory(tmp_path: Path, entity: str) -> None:
    with acquire(tmp_path, output_lock(entity)):
        names = [path.name for path in (tmp_path / "locks").iterdir()]
        assert all(len(name) < 110 and name.replace("-", "_").replace(".", "_").isidentifier() for name in names)
        with pytest.raises(StateError):
            acquire(tmp_path, output_lock(entity))


def test_a_stopped_holder_keeps_its_locks_and_a_killed_one_frees_them(tmp_path: Path) -> None:
    child = start(HOLD, tmp_path, "dataset:crm.orders", "output:lake.orders")
    wait_for_line(child, "held")
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    with pytest.raises(StateError, match="the-holder"):
        acquire(tmp_path, "output:lake.orders")
    child.kill()
    child.communicate()
    acquire(tmp_path, "dataset:crm.orders", "output:lake.orders").release()


def test_a_waiting_run_gets_the_lock_when_the_holder_ends(tmp_path: Path) -> None:
    child = start(HOLD, tmp_path, "output:x")
    wait_for_line(child, "held")
    assert child.stdin is not None
    child.stdin.write("end\n")
    child.stdin.flush()
    RunLocks.acquire(tmp_path, "a-run", ["output:x"], wait=60).release()
    child.communicate()


def test_who_waits_is_told_at_once_and_once(tmp_path: Path) -> None:
    heard: list[str] = []
    with acquire(tmp_path, "output:x") as held:

        def tell(message: str) -> None:
            heard.append(message)
            held.release()

        RunLocks.acquire(tmp_path, "b-run", ["output:w", "output:x"], wait=60, tell=tell).release()
    (message,) = heard
    assert re.fullmatch(r"waiting up to 60 s for output 'x', held by run a-run on host .+ \(process \d+\)", message)


def test_a_refusal_after_waiting_says_how_long(tmp_path: Path) -> None:
    with acquire(tmp_path, "output:x"), pytest.raises(StateError, match=r"; waited 0\.2 s\n"):
        RunLocks.acquire(tmp_path, "b-run", ["output:x"], wait=0.2)


def test_a_cancelled_run_stops_waiting(tmp_path: Path) -> None:
    cancel = CancelToken()
    cancel.cancel()
    with acquire(tmp_path, "output:x"), pytest.raises(Cancelled):
        RunLocks.acquire(tmp_path, "b-run", ["output:x"], wait=60, cancel=cancel)
