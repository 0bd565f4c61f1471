"""A run dies, or is refused, at a single system call: each one that changes the project's files, in turn.

Where a failpoint stands is our choice; where DuckDB and Python write is not. `make crash-sweep` dies at every call and fails
every fifth (`PZ_CALLS_EVERY`), `make test` hits a few.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pz.testing.faults import WarmInterpreter, child_environment
from sweep import RUN, SEED, STAGES, Sweep, recorded, state_of
from sweep_scenarios import SCENARIOS, Scenario
from syscalls import AVAILABLE, Fault, Traced, trace
from test_local_sweep import SCENARIOS as LOCAL_SCENARIOS
from test_local_sweep import LocalSweep

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not AVAILABLE, reason="the tracer knows Linux on x86_64 only")]

COMMAND = (sys.executable, "-m", "pz.testing.child", *RUN)
FLUSHES = ("fsync", "fdatasync")
FAULTS = {
    "death": Fault(1),
    "EIO once": Fault(1, errno.EIO),
    "EIO from then on": Fault(1, errno.EIO, lasting=True),
    "ENOSPC once": Fault(1, errno.ENOSPC),
    "ENOSPC from then on": Fault(1, errno.ENOSPC, lasting=True),
    "flush fails once": Fault(1, errno.EIO, names=FLUSHES),
}
EVERY = int(os.environ.get("PZ_CALLS_EVERY", "5"))
"""Errors befall every so many-th call, deaths each."""
BY_NAME = {scenario.name: scenario for scenario in (*SCENARIOS, *LOCAL_SCENARIOS)}
SWEPT = ("incremental-append-streaming", "files-append", "files-incremental-append", "duckdb-append", "duckdb-merge")


@pytest.fixture(scope="module")
def sweeps() -> Iterator[tuple[Sweep, Sweep]]:
    root = Path("/dev/shm") / f"pz-calls-{os.getpid()}"
    for name in ("reference", "local"):
        (root / name).mkdir(parents=True)
    with WarmInterpreter() as warm:
        made = Sweep(root / "reference", warm), LocalSweep(root / "local", warm)
        yield made
        for sweep in made:
            sweep.remove()


class Calls:
    """The calls of one scenario's run, hit one after the other."""

    def __init__(self, sweeps: tuple[Sweep, Sweep], name: str, stage: str, scratch: Path) -> None:
        self.scenario: Scenario = BY_NAME[name]
        self._sweep = sweeps[self.scenario in LOCAL_SCENARIOS]
        self._without = ("far",) if self.scenario in SCENARIOS else ()
        self._stage = stage
        self._scratch = scratch

    def count(self, names: tuple[str, ...]) -> int:
        """How many calls there are to hit."""
        with self._sweep.copied(self.scenario, self._stage) as (root, _):
            done = self._trace(root, None)
        assert done.code == 0, done.stderr
        return sum(not names or call.name in names for call in done.calls)

    def hit(self, what: str, at: int) -> str | None:
        """Let ``what`` befall the ``at``-th call, recover, and say what did not hold."""
        pattern = FAULTS[what]
        fault = Fault(at, pattern.error, pattern.lasting, pattern.names)
        with self._sweep.copied(self.scenario, self._stage) as (root, model):
            before, runs = state_of(root), recorded(root)
            done = self._trace(root, fault)
            call = "no call" if done.hit is None else f"{done.hit.name} {done.hit.path}"
            case = f"{self.scenario.name}-{self._stage}, {what} at {at}: {call} (seed {SEED})"
            wrong = _wrong_end(done, what)
            if wrong is not None:
                return f"{case}: {wrong}"
            try:
                recovery = "run" if at % 2 and done.code != 0 else "retry"
                self._sweep.check_recovery(case, recovery, root, model, before, runs)
            except (AssertionError, TimeoutError) as failure:
                return f"{case}: {failure}"
        return None

    def _trace(self, root: Path, fault: Fault | None) -> Traced:
        return trace(COMMAND, root, self._scratch, environment=child_environment(), without=self._without, fault=fault)


def _wrong_end(done: Traced, what: str) -> str | None:
    """It died, or it says by a code what is wrong, or it could do without that call."""
    printed = f"exit {done.code}\n{done.stdout[-800:]}\n{done.stderr[-1500:]}"
    if done.hit is not None and what == "death":
        return None if done.code == -signal.SIGKILL else f"it outlived its death: {printed}"
    if done.code == -signal.SIGABRT and "duckdb::IOException" in done.stderr:
        return None  # DuckDB ends the process where it cannot take back a log that it could not write: a death, too
    coded = done.code == 0 or "PZ" in printed
    return None if done.code in {0, 1, 2} and coded and "Traceback" not in printed else printed


@pytest.mark.parametrize("name", SWEPT)
def test_a_sampled_call_that_fails_loses_nothing(sweeps: tuple[Sweep, Sweep], name: str, tmp_path: Path) -> None:
    chance = random.Random(f"{SEED} {name}")
    calls = Calls(sweeps, name, chance.choice(STAGES), tmp_path)
    count = calls.count(())
    wanted = [("death", chance.randint(1, count)), (chance.choice(list(FAULTS)[1:5]), chance.randint(1, count))]
    assert [broken for what, at in wanted if (broken := calls.hit(what, at)) is not None] == []


@pytest.mark.crash
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", SWEPT)
def test_every_call_that_fails_loses_nothing(
    sweeps: tuple[Sweep, Sweep], name: str, stage: str, what: str, tmp_path: Path
) -> None:
    calls = Calls(sweeps, name, stage, tmp_path)
    count = calls.count(FAULTS[what].names)
    every = 1 if what == "death" else EVERY
    hit = range(1 + random.Random(f"{SEED} {name} {stage} {what}").randrange(every), count + 1, every)
    broken = [told for at in hit if (told := calls.hit(what, at)) is not None]
    assert broken == []
