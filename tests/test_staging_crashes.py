"""A process that dies at any durable step of staging loses nothing and repeats at most one unconfirmed chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import staging_scenarios as scenario
from pz.staging.meta import AttemptState, Ledger
from pz.staging.partition_ledger import part_table
from pz.staging.session import StagingSession
from pz.testing.faults import Outcome, WarmInterpreter, list_steps

TARGET = "staging_scenarios:run"
SLICES = 6


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmInterpreter]:
    with WarmInterpreter() as opened:
        yield opened


class Chain:
    """Runs that continue each other in one directory, and the destination that they share."""

    def __init__(self, warm: WarmInterpreter, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._warm = warm
        self.home = home
        self.destination = home / "destination.txt"
        self.runs: list[Path] = []

    def run(self, failpoint: str = "", trace: Path | None = None) -> Outcome:
        priors = [str(path) for path in reversed(self.runs)]
        self.runs.append(self.home / f"run{len(self.runs)}")
        arguments = [str(self.runs[-1]), str(self.destination), *priors]
        return self._warm.run(arguments, self.home, failpoint=failpoint, trace=trace, target=TARGET)

    def points(self, trace: Path) -> list[str]:
        """Run to the end and list every point that was passed, as failpoint texts."""
        assert self.run(trace=trace).code == 0
        return [f"{point}:{nth}" for point, times in list_steps(trace).items() for nth in range(1, times + 1)]

    def must_finish(self, crashes: int) -> None:
        """Finish without faults: all rows staged, the ledger agrees, nothing lost, nothing repeated but one chunk a crash."""
        outcome = self.run()
        assert outcome.code == 0, outcome.stderr
        with StagingSession.open_read_only(self.runs[-1]) as session, session.cursor() as cursor:
            assert ids(cursor, scenario.TABLE) == ids(cursor, "model") == scenario.EXPECTED
            assert_consistent(cursor)
            done = Ledger(cursor).node_done(scenario.LOAD)
            assert done is not None
            assert done.candidate == str(scenario.UPPER)
            assert Ledger(cursor).attempts(scenario.SINK)[-1].state is AttemptState.COMMITTED
        sent = Counter(int(line) for line in self.destination.read_text().splitlines())
        assert sorted(sent) == scenario.EXPECTED
        assert sum(sent.values()) - len(sent) <= scenario.CHUNK * crashes
        assert {path.name for path in self.runs[-1].iterdir()} == {"staging.duckdb"}


def ids(cursor: duckdb.DuckDBPyConnection, table: str) -> list[int]:
    return [row[0] for row in cursor.execute(f"SELECT id FROM staging.{table} ORDER BY id").fetchall()]


def assert_consistent(cursor: duckdb.DuckDBPyConnection) -> None:
    """What the ledger says is what the tables hold."""
    ledger = Ledger(cursor)
    tables = {
        row[0]
        for row in cursor.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'staging'").fetchall()
    }
    accounted = sum(part.row_count for part in ledger.partitions_done(scenario.LOAD))
    if accounted:
        assert len(ids(cursor, scenario.TABLE)) == accounted
    for point in ledger.checkpoints(scenario.LOAD):
        part = part_table(scenario.LOAD, point.partition_id)
        covered = [number for page in scenario.PAGES[: int(point.token)] for number in page]
        found = cursor.execute(
            f"SELECT id FROM staging.{part} WHERE rowid < {point.row_count} ORDER BY rowid"
        ).fetchall()
        assert [row[0] for row in found] == covered
        assert len(covered) == point.row_count
    for done in ledger.nodes_done():
        assert set(done.tables) <= tables
        assert [len(ids(cursor, table)) for table in done.tables] == list(done.row_counts)


def check_dead_run(run_dir: Path) -> None:
    """A dead run has a whole staging file or none."""
    if (run_dir / "staging.duckdb").exists():
        with StagingSession.open_read_only(run_dir) as session, session.cursor() as cursor:
            assert_consistent(cursor)


def test_a_run_without_faults_delivers_every_row_once(warm: WarmInterpreter, tmp_path: Path) -> None:
    Chain(warm, tmp_path / "chain").must_finish(crashes=0)


def test_every_step_of_staging_is_passed_by_the_scenario(warm: WarmInterpreter, tmp_path: Path) -> None:
    chain = Chain(warm, tmp_path / "chain")
    passed = {point.partition(".")[0] for point in chain.points(tmp_path / "one")}
    chain.run("record_delivery.after:2=kill")
    passed |= {point.partition(".")[0] for point in chain.points(tmp_path / "two")}
    second = Chain(warm, tmp_path / "other")
    second.run("write_checkpoint.after:2=kill")
    passed |= {point.partition(".")[0] for point in second.points(tmp_path / "three")}
    assert passed >= {
        "create_meta",
        "create_staging",
        "pin_window",
        "pin_partitions",
        "close_plan",
        "stage_rows",
        "write_checkpoint",
        "complete_partition",
        "complete_load",
        "materialize",
        "reuse_load",
        "reuse_partitions",
        "record_attempt",
        "record_delivery",
    }


def _sweep(warm: WarmInterpreter, home: Path, before: str | None, every: int, offset: int = 0) -> None:
    """Kill at every n-th point of a run (that continues one killed at ``before``), then finish."""

    def chain_to_kill(name: str) -> Chain:
        chain = Chain(warm, home / name)
        if before is not None:
            assert chain.run(f"{before}=kill").killed
        return chain

    points = chain_to_kill("clean").points(home / "trace")
    for point in points[offset::every]:
        chain = chain_to_kill(point.replace(":", "-"))
        assert chain.run(f"{point}=kill").killed, point
        check_dead_run(chain.runs[-1])
        chain.must_finish(crashes=len(chain.runs))


def test_a_kill_at_sampled_steps_loses_nothing(warm: WarmInterpreter, tmp_path: Path) -> None:
    _sweep(warm, tmp_path, None, every=17, offset=4)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(SLICES))
def test_a_kill_at_any_step_loses_nothing(warm: WarmInterpreter, tmp_path: Path, part: int) -> None:
    _sweep(warm, tmp_path, None, every=SLICES, offset=part)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("before", ["write_checkpoint.after:2", "complete_load.before:1", "record_delivery.after:2"])
def test_a_kill_at_any_step_of_the_continuation_loses_nothing(
    warm: WarmInterpreter, tmp_path: Path, before: str, part: int
) -> None:
    _sweep(warm, tmp_path, before, every=SLICES, offset=part)


@pytest.mark.parametrize("action", ["raise", "enospc"])
def test_a_step_that_fails_leaves_what_was_durable_before(warm: WarmInterpreter, tmp_path: Path, action: str) -> None:
    for point in ("complete_partition.before:1", "write_checkpoint.before:2", "record_delivery.before:3"):
        chain = Chain(warm, tmp_path / point.replace(":", "-"))
        assert chain.run(f"{point}={action}").code == 3
        check_dead_run(chain.runs[-1])
        chain.must_finish(crashes=1)
