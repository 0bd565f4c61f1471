"""Power fails in a run: whatever the disk then holds, the run is recovered, or the state is refused, and no row is lost.

A run's calls are recorded once, then disks are made that may be left of any prefix of them (see `power_loss`). `make test`
makes some, `make crash-sweep` many.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from power_loss import Disk
from pz.testing.faults import WarmInterpreter, child_environment
from sweep import RECOVERIES, RUN, SEED, STAGES, Sweep, recorded, state_of
from sweep_scenarios import SCENARIOS, Scenario
from syscalls import AVAILABLE, Call, trace
from test_local_sweep import SCENARIOS as LOCAL_SCENARIOS
from test_local_sweep import LocalSweep

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not AVAILABLE, reason="the tracer knows Linux on x86_64 only")]

COMMAND = (sys.executable, "-m", "pz.testing.child", *RUN)
IMAGES = int(os.environ.get("PZ_POWER_IMAGES", "60"))
REFERENCE = tuple(
    scenario
    for scenario in SCENARIOS
    if scenario.name in {"full-append", "incremental-append-streaming", "feed-merge", "cdc-delete"}
)


def _sweep(kind: type[Sweep], name: str) -> Iterator[Sweep]:
    root = Path("/dev/shm") / f"pz-power-{name}-{os.getpid()}"  # where a flush costs nothing
    root.mkdir(exist_ok=True)
    with WarmInterpreter() as warm:
        made = kind(root, warm)
        yield made
        made.remove()


@pytest.fixture(scope="module")
def sweep() -> Iterator[Sweep]:
    yield from _sweep(Sweep, "reference")


@pytest.fixture(scope="module")
def local() -> Iterator[Sweep]:
    yield from _sweep(LocalSweep, "local")


def images(sweep: Sweep, scenario: Scenario, stage: str, scratch: Path, count: int) -> list[str]:
    """Make ``count`` disks of a run and recover each, in turns by a retry and a run; what did not hold."""
    chance = random.Random(f"{SEED} {scenario.name} {stage}")
    elsewhere = "far" if scenario.sink.startswith("reference") else ""
    found = []
    with sweep.copied(scenario, stage) as (root, model):
        before, runs, begun = state_of(root), recorded(root), scratch / "begun"
        shutil.copytree(root, begun)
        done = trace(COMMAND, root, scratch, environment=child_environment(), content=True)
        assert done.code == 0, done.stderr
        for number in range(count):
            until = chance.randrange(len(done.calls) + 1)
            disk = Disk(begun, elsewhere)
            for call in done.calls[:until]:
                disk.do(call)
            disk.write_image(root, chance)
            recovery = RECOVERIES[number % 2]
            case = f"{scenario.name}-{stage}-image {number}-after {_tell(done.calls, until)}-{recovery} (seed {SEED})"
            try:
                sweep.check_recovery(case, recovery, root, copy.deepcopy(model), before, runs)
            except (AssertionError, TimeoutError) as failure:
                found.append(str(failure))
    return found


def _tell(calls: Sequence[Call], until: int) -> str:
    last = calls[until - 1] if until else None
    return "nothing" if last is None else f"{until}: {last.name} {last.path}"


@pytest.mark.parametrize("scenario", REFERENCE, ids=lambda scenario: scenario.name)
def test_power_loss_is_recovered(sweep: Sweep, scenario: Scenario, tmp_path: Path) -> None:
    assert images(sweep, scenario, "later", tmp_path, 3) == []


@pytest.mark.parametrize("scenario", LOCAL_SCENARIOS, ids=lambda scenario: scenario.name)
def test_power_loss_under_files_and_databases_is_recovered(local: Sweep, scenario: Scenario, tmp_path: Path) -> None:
    assert images(local, scenario, "later", tmp_path, 2) == []


@pytest.mark.crash
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("scenario", REFERENCE, ids=lambda scenario: scenario.name)
def test_many_power_losses_are_recovered(sweep: Sweep, scenario: Scenario, stage: str, tmp_path: Path) -> None:
    assert images(sweep, scenario, stage, tmp_path, IMAGES) == []


@pytest.mark.crash
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("scenario", LOCAL_SCENARIOS, ids=lambda scenario: scenario.name)
def test_many_power_losses_under_files_and_databases_are_recovered(
    local: Sweep, scenario: Scenario, stage: str, tmp_path: Path
) -> None:
    assert images(local, scenario, stage, tmp_path, IMAGES) == []
