"""Two at once, and zombies: whatever is stopped, the others are refused with a code or wait, and nothing happens twice.

A run is stopped by SIGSTOP at a durable step (`make crash-sweep`: at every one), others try their luck, it goes on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

import hasty
import pz
from deaths import passages, watching
from promises import Promise, stored_position
from pz.errors import StateError
from pz.testing.faults import Outcome, WarmInterpreter
from pz.testing.reference import distribution_path
from pz.testing.script import Fault
from pz.testing.server import Server
from sweep_scenarios import SCENARIOS, create_flows

CELLS = ("incremental-merge", "incremental-append", "feed-merge-streaming", "full-replace", "cdc-delete")
PATIENT = "pz.testing.child:cli"


class Stoppable:
    """A warm interpreter whose fork may stop itself: started here, looked at from outside, sent on."""

    def __init__(self, warm: WarmInterpreter) -> None:
        self._warm = warm
        self._outcome: Outcome | None = None
        self._thread: threading.Thread | None = None

    def start(self, arguments: Sequence[str], root: Path, failpoint: str = "", target: str = hasty.TARGET) -> None:
        """Start ``pz <arguments>``."""

        def work() -> None:
            self._outcome = self._warm.run(arguments, root, failpoint=failpoint, target=target, timeout=120)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def wait_stopped(self) -> bool:
        """Wait until the fork has stopped itself (True), or has come to its end (False)."""
        for _ in range(6000):
            if self._thread is None or not self._thread.is_alive():
                return False
            if any(child.status() == psutil.STATUS_STOPPED for child in self._children()):
                return True
            time.sleep(0.01)
        raise TimeoutError("neither stopped nor ended")

    def go_on(self) -> Outcome:
        """Let it continue, and wait for its end."""
        for child in self._children():
            os.kill(child.pid, signal.SIGCONT)
        assert self._thread is not None
        self._thread.join(120)
        assert self._outcome is not None, "it did not end"
        return self._outcome

    def end(self) -> None:
        """Kill what is left of it."""
        for child in self._children():
            child.kill()
        if self._thread is not None:
            self._thread.join(120)

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._warm.pid).children()
        except psutil.NoSuchProcess:
            return []


@pytest.fixture(scope="module")
def _second() -> Iterator[WarmInterpreter]:
    with WarmInterpreter() as opened:
        yield opened


@pytest.fixture
def zombie(_second: WarmInterpreter) -> Iterator[Stoppable]:
    made = Stoppable(_second)
    yield made
    made.end()


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmInterpreter]:
    with WarmInterpreter() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(distribution_path()))


class Shop:
    """A project with a flow of a cell and, beside it, one that replaces; both with rows."""

    def __init__(self, root: Path, cell: str, beside: str = "full-merge-plain") -> None:
        self.root = root
        chosen = [next(s for s in SCENARIOS if s.name == name) for name in (cell, beside)]
        create_flows(root, chosen, {"retry": {"max_attempts": 1}})
        self.flows = [Promise(scenario, str(number)) for number, scenario in enumerate(chosen)]
        for flow in self.flows:
            flow.mutate(self.server, 9, [], [], 0)

    @property
    def server(self) -> Server:
        return Server(self.root / "far")

    def change(self, number: int) -> None:
        """Rows come, change and go in both flows."""
        for flow in self.flows:
            flow.mutate(self.server, 3, [1, 2], [4], 100 * number)

    def tries(self, retry: bool = False) -> None:
        """Somebody is about to try both flows."""
        for flow in self.flows:
            flow.attempt(self.position(flow), full_refresh=False, retry=retry, since=flow.clock, times=1)

    def position(self, flow: Promise) -> int | None:
        return stored_position(self.root, flow.key)

    def check(self, *, delivered: bool = False) -> None:
        """Every promise holds now; ``delivered``: and everything has arrived."""
        for flow in self.flows:
            if delivered:
                flow.succeeded(flow.clock, f"until {flow.clock}")
            stored = self.position(flow)
            broken = flow.broken(self.server, stored)
            if delivered and broken is None:
                broken = flow.behind(stored, flow.clock)
            assert broken is None, f"{flow.scenario.name}: {broken}"

    def points(self) -> list[str]:
        """The points that a run of the first flow passes."""
        copied = self.root.with_name("traced")
        shop = Shop(copied, self.flows[0].scenario.name)
        return passages(lambda: pz.open_project(copied, environ={}).run("flow0")) if shop else []

    def runs(self) -> list[dict[str, object]]:
        """The records of all runs, oldest first."""
        found = [json.loads(path.read_text()) for path in self.root.glob(".pz/runs/*/run.json")]
        return sorted(found, key=lambda record: int(record["number"]))


def stop_at(point: str) -> str:
    """``name:nth`` as a failpoint; a torn write cannot stop, so ``inside`` becomes ``after``."""
    name, _, nth = point.partition(":")
    return f"{name.replace('.inside', '.after')}:{nth}=stop"


def refused(outcome: Outcome, *codes: str) -> bool:
    return outcome.code != 0 and any(code in outcome.stdout + outcome.stderr for code in codes)


def _stop_and_go(zombie: Stoppable, warm: WarmInterpreter, root: Path, cell: str, point: str) -> None:
    shop = Shop(root, cell)
    shop.tries()
    zombie.start(["run", "flow0"], root, failpoint=stop_at(point))
    stopped = zombie.wait_stopped()
    assert stopped, f"{point} was not reached"
    locked = not point.startswith("create_run_dir")
    same = warm.run(["run", "flow0"], root, target=hasty.TARGET)
    again = warm.run(["retry"], root, target=hasty.TARGET)
    other = warm.run(["run", "flow1"], root, target=hasty.TARGET)
    told = f"{cell} stopped at {point}"
    if locked:
        assert refused(same, "PZ0701"), f"{told}: a second run of the same flow: {same}"
        assert refused(again, "PZ0503"), f"{told}: a retry: {again}"
    else:
        assert same.code == 0 or refused(same, "PZ0702"), f"{told}: a second run: {same}"
        assert again.code in {0, 2}, f"{told}: a retry: {again}"
    # Only the instant in which a number is given or a state file is rewritten concerns the flow beside it.
    instants = {"create_run_dir": ("PZ0702",), "advance_state": ("PZ0527",)}
    allowed = instants.get(point.partition(".")[0], ())
    assert other.code == 0 or refused(other, *allowed), f"{told}: another flow: {other}"
    shop.check()
    ended = zombie.go_on()
    assert ended.code == 0, f"{told}: afterwards: {ended}"
    shop.check()
    shop.change(1)
    shop.tries()
    done = warm.run(["run", "--all"], root)
    assert done.code == 0, f"{told}: the next run: {done}"
    shop.check(delivered=True)


def sampled(cell: str, tmp_path: Path, count: int) -> list[str]:
    points = Shop(tmp_path / "counted", cell).points()
    return random.Random(cell).sample(points, count)


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS[:3])
def test_a_stopped_run_keeps_the_others_out_and_ends_well(
    zombie: Stoppable, warm: WarmInterpreter, tmp_path: Path, cell: str
) -> None:
    for number, point in enumerate(sampled(cell, tmp_path, 2)):
        _stop_and_go(zombie, warm, tmp_path / str(number), cell, point)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cell", CELLS)
def test_a_run_stopped_at_any_step_keeps_the_others_out_and_ends_well(
    zombie: Stoppable, warm: WarmInterpreter, tmp_path: Path, cell: str
) -> None:
    points = Shop(tmp_path / "counted", cell).points()
    for number, point in enumerate(points):
        _stop_and_go(zombie, warm, tmp_path / str(number), cell, point)
    print(f"{len(points)} stops")


@pytest.mark.slow
def test_a_run_that_waits_for_a_stopped_one_reads_what_it_left(
    zombie: Stoppable, warm: WarmInterpreter, tmp_path: Path
) -> None:
    """Patience pays: the second reads the state behind what the first has delivered, and adds nothing twice."""
    shop = Shop(tmp_path / "shop", "incremental-append")
    shop.tries()
    zombie.start(["run", "flow0"], shop.root, failpoint="sink_commit.after:1=stop")
    assert zombie.wait_stopped()
    waiting: list[Outcome] = []
    second = threading.Thread(target=lambda: waiting.append(warm.run(["run", "flow0"], shop.root, target=PATIENT)))
    second.start()
    _until(lambda: len(list(shop.root.glob(".pz/runs/*/run.lock"))) == 2)
    assert zombie.go_on().code == 0
    second.join(60)
    assert waiting[0].code == 0, waiting[0]
    assert len(shop.server.script.calls("commit", "out0")) == 2
    flow = shop.flows[0]
    flow.succeeded(flow.clock, "both")
    assert flow.broken(shop.server, shop.position(flow)) is None


def _until(happened: object) -> None:
    assert callable(happened)
    for _ in range(3000):
        if happened():
            return
        time.sleep(0.01)
    raise TimeoutError("it did not happen")


@pytest.mark.slow
def test_a_run_that_slept_before_its_locks_does_not_bring_old_values(
    zombie: Stoppable, warm: WarmInterpreter, tmp_path: Path
) -> None:
    """It has a number and a directory, then others run twice over; it reads state and source only after they are done."""
    shop = Shop(tmp_path / "shop", "incremental-merge")
    zombie.start(["run", "flow0"], shop.root, target=hasty.SLEEPY)
    assert zombie.wait_stopped()
    for number in (1, 2):
        shop.tries()
        assert warm.run(["run", "flow0"], shop.root).code == 0
        shop.flows[0].succeeded(shop.flows[0].clock, str(number))
        shop.change(number)
    assert zombie.go_on().code == 0
    shop.flows[0].succeeded(shop.flows[0].clock, "late")
    assert shop.flows[0].broken(shop.server, shop.position(shop.flows[0])) is None
    assert shop.flows[0].behind(shop.position(shop.flows[0]), shop.flows[0].clock) is None


@pytest.mark.slow
def test_state_is_not_edited_under_a_stopped_run(zombie: Stoppable, warm: WarmInterpreter, tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop", "incremental-merge")
    assert warm.run(["run", "flow0"], shop.root).code == 0
    zombie.start(["run", "flow0"], shop.root, failpoint="sink_commit.before:1=stop")
    assert zombie.wait_stopped()
    edit = warm.run(["state", "set", "src0.orders0", "--value", "1", "--yes"], shop.root, target=hasty.TARGET)
    assert refused(edit, "PZ0517"), edit
    assert zombie.go_on().code == 0
    shop.flows[0].succeeded(shop.flows[0].clock, "both")
    assert shop.flows[0].broken(shop.server, shop.position(shop.flows[0])) is None


def test_a_lost_race_for_the_state_is_told_and_nothing_is_put_back(tmp_path: Path) -> None:
    """A writer that holds no lock (another machine, a copied project) was faster: PZ0527 with PZ0520, exit 1."""
    shop = Shop(tmp_path / "shop", "incremental-merge")
    opened = pz.open_project(shop.root, environ={})
    assert opened.run("flow0").exit_code == 0
    shop.change(1)
    rival = tmp_path / "rival.json"

    def edit(point: str, nth: int, total: int) -> None:
        if point == "sink_commit.after" and nth == 1:
            path = shop.root / ".pz" / "state" / "watermarks.json"
            rival.write_bytes(path.read_bytes())
            _set_behind_their_back(shop.root, "src0.orders0", "99")
            rival.write_bytes(path.read_bytes())

    with watching(edit):
        result = opened.run("flow0")
    assert result.exit_code == 1
    told = " ".join(problem.message for problem in result.problems)
    assert "PZ0520" in told, told
    assert (shop.root / ".pz" / "state" / "watermarks.json").read_bytes() == rival.read_bytes()


def _set_behind_their_back(root: Path, key: str, value: str) -> None:
    from dataclasses import replace

    from pz.state.entries import Watermark
    from pz.state.watermarks import watermark_store

    store = watermark_store(root / ".pz")
    found = store.read()[key]
    assert isinstance(found.value, Watermark)
    store.save(key, replace(found, value=replace(found.value, value=value)), seen=found)


@pytest.mark.slow
def test_two_retries_at_once_continue_one_run_once(zombie: Stoppable, warm: WarmInterpreter, tmp_path: Path) -> None:
    """The second is told who is at work, also while the first has no directory of its own yet."""
    for number, point in enumerate(("create_run_dir.before:1", "reuse_partitions.after:1", "sink_commit.after:1")):
        shop = Shop(tmp_path / str(number), "incremental-append")
        shop.server.script.add(Fault("read", "permanent", partition="2"))
        shop.tries()
        assert warm.run(["run", "flow0"], shop.root).code == 1
        shop.server.script.clear()
        zombie.start(["retry"], shop.root, failpoint=f"{point}=stop")
        assert zombie.wait_stopped()
        second = warm.run(["retry"], shop.root, target=hasty.TARGET)
        assert refused(second, "PZ0503"), second
        assert zombie.go_on().code == 0
        flow = shop.flows[0]
        flow.succeeded(flow.clock, "chain")
        assert flow.broken(shop.server, shop.position(flow)) is None
        assert len(shop.server.script.calls("commit", "out0")) == 1
        third = warm.run(["retry"], shop.root)
        assert (third.code, "nothing to retry" in third.stdout + third.stderr) == (0, True), third


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS)
def test_a_chain_of_three_retries_ends_as_one_run_would_have(tmp_path: Path, cell: str) -> None:
    """Each dies or fails somewhere else, the source changes in between; the chain knows its origin all the time."""
    shop = Shop(tmp_path / "shop", cell)
    opened = pz.open_project(shop.root, environ={})
    troubles = [
        Fault("batch", "permanent", entity="orders0"),
        Fault("begin_write", "permanent", entity="out0"),
        Fault("commit", "unknown", entity="out0", moment="after"),
        None,
    ]
    began = shop.flows[0].clock
    for number, trouble in enumerate(troubles):
        shop.server.script.clear()
        if trouble is not None:
            shop.server.script.add(trouble)
        flow = shop.flows[0]
        flow.attempt(shop.position(flow), full_refresh=False, retry=number > 0, since=began, times=1)
        result = opened.run("flow0") if number == 0 else opened.retry()
        assert result.exit_code == (0 if trouble is None else 1), (number, result.summary)
        shop.check()
    shop.flows[0].succeeded(began, "chain")
    shop.check()
    records = shop.runs()
    assert {record["origin"] for record in records} == {records[0]["runId"]}
    assert [record.get("retryOf") for record in records[1:]] == [record["runId"] for record in records[:-1]]
    assert opened.retry().nothing_to_do


def test_a_fresh_run_between_a_failure_and_a_retry_is_the_one_that_counts(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop", "incremental-append")
    opened = pz.open_project(shop.root, environ={})
    shop.server.script.add(Fault("write_batch", "permanent", entity="out0"))
    shop.tries()
    assert opened.run(everything=True).exit_code == 1
    shop.server.script.clear()
    shop.change(1)
    shop.tries()
    assert opened.run(everything=True).exit_code == 0
    shop.check(delivered=True)
    shop.change(2)
    assert opened.retry().nothing_to_do, "an older failure was retried over a newer success"
    shop.check()


def test_a_retry_of_a_failure_after_which_another_flow_ran_says_so(tmp_path: Path) -> None:
    """The last run counts, whatever it ran; the failed flow is made good by the next run of it."""
    shop = Shop(tmp_path / "shop", "incremental-merge")
    opened = pz.open_project(shop.root, environ={})
    shop.server.script.add(Fault("read", "permanent", entity="orders0"))
    shop.tries()
    assert opened.run("flow0").exit_code == 1
    shop.server.script.clear()
    assert opened.run("flow1").exit_code == 0
    assert opened.retry().nothing_to_do
    assert opened.run("flow0").exit_code == 0
    shop.check(delivered=True)


def test_the_waiting_of_a_run_is_bounded_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pz.oslock import OsLock, Owner
    from pz.state.locks import RunLocks, _path, output_lock

    shop = Shop(tmp_path / "shop", "full-replace")
    path = _path(shop.root / ".pz", output_lock("dst0.out0"))
    path.parent.mkdir(parents=True)
    with OsLock(path) as lock:
        assert lock.acquire(owner=Owner("20290101T000000000Z-abcd", "elsewhere", 4711))
        with pytest.raises(StateError) as busy:
            RunLocks.acquire(shop.root / ".pz", "me", [output_lock("dst0.out0")], wait=0.05)
    assert "output 'dst0.out0' is held by run 20290101T000000000Z-abcd on host elsewhere" in str(busy.value)
