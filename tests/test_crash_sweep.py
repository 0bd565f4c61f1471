"""A run that dies at any durable step is recovered by one retry, and by one run, to exactly what its cell promises.

`make crash-sweep` dies at the first and the last passage of every point, before, inside and after, in every legal cell of
the pairing matrix, and twice in a row at sampled pairs. `make test` runs a sample of the same cases.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from pz.connectors.contract import OnDelete
from pz.durable import Step
from pz.graph.delivery import MATRIX
from pz.testing.faults import WarmInterpreter
from sweep import RECOVERIES, SEED, STAGES, Sweep, folder
from sweep_scenarios import SCENARIOS, Scenario

DOUBLES = int(os.environ.get("PZ_SWEEP_DOUBLES", "300"))

# Steps that these scenarios cannot pass, with the test that does.
ELSEWHERE: dict[Step, str] = {
    **dict.fromkeys((Step.PEND_SNAPSHOT, Step.CAPTURE_SLOT, Step.ACKNOWLEDGE), "test_capture_sweep.py"),
    Step.WRITE_MANIFEST: "test_cli_compile.py",
    Step.APPEND_AUDIT: "test_state_verbs.py",
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    with WarmInterpreter() as warm:
        made = Sweep(folder(tmp_path_factory), warm)
        yield made
        made.remove()


def test_every_legal_cell_of_the_matrix_has_a_scenario() -> None:
    legal = {(c.shape, c.strategy, d) for c in MATRIX if c.guarantee is not None for d in _kinds(c.on_delete)}
    covered = {(s.shape, s.strategy, s.on_delete) for s in SCENARIOS}
    assert legal <= covered


def _kinds(on_delete: tuple[OnDelete | None, ...]) -> tuple[OnDelete | None, ...]:
    """A cell that holds for any ``on_delete`` is covered without one."""
    return (None,) if None in on_delete else on_delete


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_sampled_death_is_recovered(sweep: Sweep, scenario: Scenario) -> None:
    assert sweep.failures(sweep.sampled(scenario, STAGES)) == []


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_death_is_recovered(sweep: Sweep, scenario: Scenario, stage: str, recovery: str) -> None:
    assert sweep.failures(sweep.cases(scenario, stage, [recovery])) == []


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(10))
def test_a_death_during_recovery_is_recovered(sweep: Sweep, part: int) -> None:
    chance = random.Random(f"{SEED} {part}")
    assert sweep.failures(sweep.doubles(chance, DOUBLES // 10)) == []


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_step_is_passed_by_some_scenario_or_its_recovery(sweep: Sweep) -> None:
    passed = {name.partition(".")[0] for s in SCENARIOS for stage in STAGES for name in sweep.steps(s, stage)}
    for scenario in SCENARIOS:
        passed |= {name.partition(".")[0] for name in sweep.recovery_steps(scenario)}
    assert {step for step in Step if step.value not in passed} == set(ELSEWHERE)
