"""Deaths of runs that capture changes of PostgreSQL: one retry, or one run, and the copy is what its cell promises.

A slot cannot be copied with its database, so every case has a fresh database and makes its slot itself. `make crash-sweep`
dies at every point, `make test` at sampled ones. A source that changes between the death and the recovery is
`test_run_capture`'s subject, deaths at random under fire `test_capture_stress`'s.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres_server import KICK, Database, PostgresServer
from pz.connectors.contract import OnDelete, ReadShape, WriteStrategy
from pz.durable import Step
from pz.testing.faults import WarmInterpreter
from sweep import RECOVERIES, RUN, folder
from sweep_scenarios import Model, Scenario
from test_postgres_sweep import PostgresFar, PostgresSweep

STAGES = ("first", "later", "refresh")
SCENARIOS = tuple(
    Scenario(f"cdc-{how}", ReadShape.CDC, WriteStrategy.MERGE, how, source="postgres", sink="postgres")
    for how in (OnDelete.DELETE, OnDelete.SOFT, OnDelete.IGNORE)
)
ITS_OWN = {Step.PEND_SNAPSHOT, Step.CAPTURE_SLOT, Step.ACKNOWLEDGE}
"""Steps that nothing but a capture passes."""


class CaptureSweep(PostgresSweep):
    """Every copy of a stage is made from nothing: a database, its publication, and the runs before the one that dies."""

    repeatable = False

    def stage(self, scenario: Scenario, stage: str) -> tuple[Path, Model]:
        """A new one each time."""
        made = self._stages.pop((scenario.name, stage), None)
        if made is not None:
            shutil.rmtree(made[0])
        return super().stage(scenario, stage)

    def far(self, scenario: Scenario, root: Path) -> PostgresFar:
        """One for all, because a server has one slot of a name, whatever its database."""
        return PostgresFar(Database(self._server, f"capture_{os.getpid()}"))

    def create(self, scenario: Scenario, root: Path) -> None:
        """The old database goes with its slots."""
        self._drop_slots(self.far(scenario, root).database.name)
        super().create(scenario, root)
        self.far(scenario, root).database.run("CREATE PUBLICATION pz_src FOR TABLE orders")

    def remove(self) -> None:
        """The slots too: their names are those that other tests of this server use."""
        self._drop_slots(self.far(SCENARIOS[0], Path()).database.name)
        super().remove()

    def _drop_slots(self, database: str) -> None:
        with self._server.connect() as connection:
            connection.execute(KICK.replace("current_database()", f"'{database}'"))
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", [database]
            )

    @staticmethod
    def command(stage: str) -> tuple[str, ...]:
        """See `Sweep`."""
        return (*RUN, "--full-refresh") if stage == "refresh" else RUN

    def look_further(self, case: object, scenario: Scenario, root: Path) -> None:
        """There is one slot, and no death has left another."""
        slots = self.far(scenario, root).database.rows(
            "SELECT slot_name, active FROM pg_replication_slots WHERE database = current_database()"
        )
        assert [active for _, active in slots] == [False], f"{case}: slots that are left: {slots}"

    def keep(self, scenario: Scenario, stage: str) -> None:
        """Nothing is kept."""

    def restore(self, scenario: Scenario, stage: str) -> None:
        """It has just been made."""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[CaptureSweep]:
    with WarmInterpreter() as warm:
        made = CaptureSweep(folder(tmp_path_factory), warm, postgres_server)
        yield made
        made.remove()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_sampled_death_is_recovered(sweep: CaptureSweep, scenario: Scenario) -> None:
    assert sweep.failures(sweep.sampled(scenario, STAGES)) == []


@pytest.mark.slow
def test_a_capture_passes_the_steps_that_are_its_own(sweep: CaptureSweep) -> None:
    passed = {point.partition(".")[0] for stage in STAGES for point in sweep.steps(SCENARIOS[0], stage)}
    assert passed >= ITS_OWN


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_death_is_recovered(sweep: CaptureSweep, scenario: Scenario, stage: str, recovery: str) -> None:
    assert sweep.failures(sweep.cases(scenario, stage, [recovery])) == []
