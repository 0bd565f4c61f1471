"""The crash sweep: kill a run at a durable step, recover, compare with the model. Generic over scenarios and steps.

A *stage* is a project in the state before the run that is to die: nothing delivered yet (``first``), or one run delivered
and the source changed since (``later``). Each case copies the stage, so cases are independent and can run side by side.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import pytest

from pz.state.sync_state import SNAPSHOT_PENDING
from pz.testing.faults import Outcome, WarmInterpreter, list_steps
from pz.testing.server import Server
from sweep_scenarios import SCENARIOS, Far, Model, Scenario

Stored = tuple[str, str]
"""A dataset, and its watermark or token."""

RUN = ("run", "--all")
RETRY = ("retry",)

SEED = int(os.environ.get("PZ_SWEEP_SEED", "20240229"))
STAGES = ("first", "later")
RECOVERIES = ("retry", "run")


@dataclass(frozen=True)
class Point:
    """A passage of a durable step: ``sink_commit.before``, the nth."""

    name: str
    nth: int

    @property
    def failpoint(self) -> str:
        """As `PZ_FAILPOINT` has it; ``inside`` tears the write."""
        action = "torn" if self.name.endswith(".inside") else "kill"
        step = self.name.removesuffix(".inside") if action == "torn" else self.name
        return f"{step}:{self.nth}={action}"

    def __str__(self) -> str:
        return f"{self.name}:{self.nth}"


@dataclass(frozen=True)
class Case:
    """One kill (or two) and one way to recover."""

    scenario: Scenario
    stage: str
    kills: tuple[Point, ...]
    recovery: str

    def __str__(self) -> str:
        return "-".join([self.scenario.name, self.stage, *map(str, self.kills), self.recovery])


class Sweep:
    """The stages and traces of the scenarios, made once, and the runner of cases."""

    repeatable = True
    """Whether what is stored at the end depends on nothing but the scenario and its stage."""

    def __init__(self, root: Path, warm: WarmInterpreter) -> None:
        self._root = root
        self._warm = warm
        self._stages: dict[tuple[str, str], tuple[Path, Model]] = {}
        self._steps: dict[tuple[str, str], dict[str, int]] = {}
        self._settled: dict[tuple[str, str], Set[Stored]] = {}
        self.deaths: Counter[int] = Counter()
        """How many cases died so many times: once, or again in their recovery."""

    def stage(self, scenario: Scenario, stage: str) -> tuple[Path, Model]:
        """The project before the run that dies, and its model."""
        key = (scenario.name, stage)
        if key not in self._stages:
            root = self._root / f"{scenario.name}-{stage}"
            model = Model(scenario)
            self.create(scenario, root)
            far = self.far(scenario, root)
            model.mutate(far, 0)
            if stage != "first":
                done = self._warm.run(RUN, root)
                assert done.code == 0, _tell(done)
                model.deliver()
                assert model.broken_promise(far) is None, model.broken_promise(far)
                model.mutate(far, 1)
            self.keep(scenario, stage)
            self._stages[key] = (root, model)
        return self._stages[key]

    def steps(self, scenario: Scenario, stage: str) -> dict[str, int]:
        """The points that an uninterrupted run passes, with how often; that run itself keeps the promise."""
        key = (scenario.name, stage)
        if key not in self._steps:
            with self.copied(scenario, stage) as (root, model):
                trace = root.with_suffix(".trace")
                done = self._warm.run(self.command(stage), root, trace=trace)
                assert done.code == 0, _tell(done)
                model.deliver()
                broken = model.broken_promise(self.far(scenario, root))
                assert broken is None, f"an uninterrupted run: {broken}"
                self._steps[key], self._settled[key] = list_steps(trace), state_of(root)
        return self._steps[key]

    def recovery_steps(self, scenario: Scenario) -> dict[str, int]:
        """The points that retries after a death in the load and after one in the delivery pass."""
        passed: dict[str, int] = {}
        names = self.steps(scenario, "later")
        late = [
            name for name in ("complete_partition.after", "complete_load.after", "sink_commit.after") if name in names
        ]
        for name in late:
            with self.copied(scenario, "later") as (root, _):
                self._warm.run(RUN, root, failpoint=Point(name, 1).failpoint)
                trace = root.with_suffix(".trace")
                self._warm.run(RETRY, root, trace=trace)
                passed |= list_steps(trace)
        return passed

    def remove(self) -> None:
        """Take the stages away."""
        shutil.rmtree(self._root, ignore_errors=True)

    def points(self, scenario: Scenario, stage: str) -> Iterator[Point]:
        """First and last passage of every point."""
        for name, count in self.steps(scenario, stage).items():
            for nth in sorted({1, count}):
                yield Point(name, nth)

    def cases(self, scenario: Scenario, stage: str, recoveries: Sequence[str] = RECOVERIES) -> list[Case]:
        """All single kills of a stage."""
        return [Case(scenario, stage, (point,), how) for point in self.points(scenario, stage) for how in recoveries]

    def sampled(self, scenario: Scenario, stages: Sequence[str]) -> list[Case]:
        """Two kills at one stage, one for each way to recover."""
        chance = random.Random(f"{SEED} {scenario.name}")
        stage = chance.choice(stages)
        points = list(self.points(scenario, stage))
        return [Case(scenario, stage, (chance.choice(points),), recovery) for recovery in RECOVERIES]

    def failures(self, cases: Iterable[Case]) -> list[str]:
        """Run cases, print their numbers, and tell those that went wrong."""
        found = []
        self.deaths.clear()
        for case in cases:
            try:
                self.run(case)
            except (AssertionError, TimeoutError) as failure:
                found.append(f"{case} (seed {SEED}): {failure}")
        print(f"{self.deaths.total()} cases, {self.deaths[2]} died twice, {len(found)} failed")
        return found

    def doubles(self, chance: random.Random, count: int) -> Iterator[Case]:
        """Sampled double crashes: the recovery of a kill dies too, at points that it passes."""
        while count > 0:
            scenario, stage, recovery = chance.choice(SCENARIOS), chance.choice(STAGES), chance.choice(RECOVERIES)
            first = chance.choice(list(self.points(scenario, stage)))
            with self.copied(scenario, stage) as (root, _):
                self._warm.run(self.command(stage), root, failpoint=first.failpoint)
                trace = root.with_suffix(".trace")
                self._warm.run(self._verb(recovery), root, trace=trace)
                passed = list_steps(trace) if trace.exists() else {}
            # A retry of a run that had nothing to leave passes no step.
            second = [Point(name, nth) for name, times in passed.items() for nth in sorted({1, times})]
            for point in chance.sample(second, min(3, count, len(second))):
                yield Case(scenario, stage, (first, point), recovery)
                count -= 1

    def run(self, case: Case) -> None:
        """Kill, recover, check; in every other case then change the source once more and check again."""
        with self.copied(case.scenario, case.stage) as (root, model):
            before, runs, deaths = state_of(root), recorded(root), 0
            for index, point in enumerate(case.kills):
                verb = self.command(case.stage) if index == 0 else self._verb(case.recovery)
                died = self._warm.run(verb, root, failpoint=point.failpoint)
                assert died.killed or index > 0, f"{case}: not reached: {_tell(died)}"
                deaths += died.killed
            self.deaths[deaths] += 1
            again = zlib.crc32(str(case).encode()) % 2 == 0
            self.check_recovery(case, case.recovery, root, model, before, runs, again=again)
            settled = self._settled.get((case.scenario.name, case.stage))
            if self.repeatable and settled is not None and not again:
                assert state_of(root) == settled, f"{case}: {state_of(root)} is stored, and not {settled}"

    def check_recovery(
        self,
        case: object,
        recovery: str,
        root: Path,
        model: Model,
        before: Set[Stored],
        runs: int,
        *,
        again: bool = True,
    ) -> None:
        """Recover a project whose run came to grief, and check; then (``again``) change the source and check once more.

        ``before`` and ``runs`` are `state_of` and `recorded` from before that run; ``case`` names it in messages.
        """
        server, retried = self.far(model.scenario, root), recovery == "retry"
        model.deliver()
        if state_of(root) - before:
            broken = model.broken_promise(server, retried=retried)
            assert broken is None, f"{case}: state is ahead of the destination: {broken}"
        self._recover(case, recovery, root, recorded(root) > runs)
        broken = model.broken_promise(server, retried=retried)
        assert broken is None, f"{case}: after the recovery: {broken}"
        left = list((root / ".pz" / "state").glob("*.tmp"))
        assert left == [], f"{case}: {left} is left by a dead run"
        self.look_further(case, model.scenario, root)
        if not again:
            return
        model.mutate(server, 7)
        done = self._warm.run(RUN, root)
        assert done.code == 0, f"{case}: the next run: {_tell(done)}"
        model.deliver()
        broken = model.broken_promise(server, retried=retried)
        assert broken is None, f"{case}: after the next run: {broken}"
        self.look_further(case, model.scenario, root)

    def look_further(self, case: object, scenario: Scenario, root: Path) -> None:
        """What else must hold once a project has recovered."""

    def _recover(self, case: object, recovery: str, root: Path, begun: bool) -> None:
        """One retry, or one run, must do. A run that died before it was recorded leaves nothing to retry."""
        done = self._warm.run(self._verb(recovery), root)
        if recovery == "retry" and not begun:
            assert done.code in {0, 2}, f"{case}: a retry of nothing: {_tell(done)}"
            done = self._warm.run(RUN, root)
        elif recovery == "retry" and done.code == 2 and _last_status(root) == "success":
            return  # the run had ended when it was killed
        assert done.code == 0, f"{case}: {recovery} did not recover: {_tell(done)}"

    @staticmethod
    def command(stage: str) -> tuple[str, ...]:
        """What dies at a stage."""
        return RUN

    @staticmethod
    def _verb(recovery: str) -> tuple[str, ...]:
        return RETRY if recovery == "retry" else RUN

    def copied(self, scenario: Scenario, stage: str) -> _Copy:
        """A throw-away copy of a stage: a context of its folder and its model."""
        root, model = self.stage(scenario, stage)
        self.restore(scenario, stage)
        return _Copy(root, model)

    # --- the far side; this one lies in the project's folder and is copied with it

    def create(self, scenario: Scenario, root: Path) -> None:
        """Write the project and make its far side, with an empty source."""
        scenario.create(root)

    def far(self, scenario: Scenario, root: Path) -> Far:
        """Where source and target of a project live."""
        return Server(root / "far")

    def keep(self, scenario: Scenario, stage: str) -> None:
        """Remember the far side as it is, for `restore`."""

    def restore(self, scenario: Scenario, stage: str) -> None:
        """Make the far side what it was at a stage."""


def folder(factory: pytest.TempPathFactory) -> Path:
    """Where a sweep works. Process death keeps the page cache, so memory serves as well as a disk, and sooner."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        return factory.mktemp("sweep")
    return Path(tempfile.mkdtemp(prefix="pz-sweep-", dir=memory))


class _Copy:
    """A throw-away copy of a stage and its model."""

    def __init__(self, root: Path, model: Model) -> None:
        self._from, self._model = root, model
        self._to = root.with_name(f"case-{random.getrandbits(64):016x}")

    def __enter__(self) -> tuple[Path, Model]:
        shutil.copytree(self._from, self._to)
        return self._to, copy.deepcopy(self._model)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._to, ignore_errors=True)


def state_of(root: Path) -> frozenset[Stored]:
    """Where any dataset stands; that a snapshot is to come is no more than nothing."""
    found: list[Stored] = []
    for name, section in (("watermarks.json", "watermarks"), ("sync-state.json", "tokens")):
        file = root / ".pz" / "state" / name
        entries = json.loads(file.read_text())[section] if file.exists() else {}
        positions = {key: entry.get("value", entry.get("token")) for key, entry in entries.items()}
        found += [(key, position) for key, position in positions.items() if position != SNAPSHOT_PENDING]
    return frozenset(found)


def recorded(root: Path) -> int:
    """How many runs are recorded."""
    return len(list((root / ".pz" / "runs").glob("*/run.json")))


def _last_status(root: Path) -> str:
    """The status of the newest run."""
    results = sorted((root / ".pz" / "runs").glob("*/run_results.json"))
    return str(json.loads(results[-1].read_text())["status"]) if results else ""


def _tell(outcome: Outcome) -> str:
    return f"exit {outcome.code}\n{outcome.stdout[-1500:]}\n{outcome.stderr[-1500:]}"
