"""What becomes of a dead or failed run's unfinished business when a retry, or another run, follows it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import pz
from deaths import dying
from promises import Promise, stored_position
from pz.engine.locking import hold_locks
from pz.errors import Code, StateError
from pz.runs.unsettled import unsettled_ids
from pz.staging.prior_run import NotReused
from pz.staging.session import StagingSession
from pz.testing.reference import distribution_path
from pz.testing.script import Fault
from pz.testing.server import Server
from sweep_scenarios import SCENARIOS, create_flows


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(distribution_path()))


def flows(root: Path, *names: str) -> list[Promise]:
    """A project with these cells, each with a dozen rows."""
    chosen = [next(s for s in SCENARIOS if s.name == name) for name in names]
    create_flows(root, chosen, {"retry": {"max_attempts": 1}})
    made = [Promise(scenario, str(number)) for number, scenario in enumerate(chosen)]
    for promise in made:
        promise.mutate(Server(root / "far"), 12, [], [], 0)
    return made


def test_a_retry_stores_the_state_of_a_flow_that_had_committed_before_the_death(tmp_path: Path) -> None:
    """The flow itself is not run again, so the retry's own walk does not see it."""
    root = tmp_path / "project"
    first, _ = flows(root, "feed-merge", "full-replace-streaming")
    with dying(root, lambda point, nth, total: (point, nth) == ("sink_prepare.before", 1)) as died:
        pz.open_project(root, environ={}).run(everything=True)
    assert died
    assert stored_position(root, first.key) is None
    assert pz.open_project(root, environ={}).retry().exit_code == 0
    assert first.broken(Server(root / "far"), stored_position(root, first.key)) is None
    assert stored_position(root, first.key) == Server(root / "far").head()
    assert len(Server(root / "far").script.calls("commit", "out0")) == 1, "it was delivered twice for want of state"


def test_partitions_are_not_reused_where_no_upper_bound_was_pinned(tmp_path: Path) -> None:
    """A row that changed in a reused partition would stay below the mark that another partition yields."""
    root = tmp_path / "project"
    (flow,) = flows(root, "incremental-merge-silent")
    server = Server(root / "far")
    server.script.add(Fault("read", "permanent", partition="2"))
    opened = pz.open_project(root, environ={})
    flow.attempt(None, full_refresh=False, retry=False, since=flow.clock, times=1)
    assert opened.run(everything=True).exit_code == 1
    server.script.clear()
    # seq 0 lies in a partition that is done, seq 2 in the one that failed; the latter changes last.
    flow.mutate(server, 0, [0], [], 0)
    flow.mutate(server, 0, [2], [], 0)
    assert opened.retry().exit_code == 0
    flow.succeeded(flow.clock, "chain")
    assert flow.broken(server, stored_position(root, flow.key)) is None
    assert opened.run(everything=True).exit_code == 0
    assert flow.broken(server, stored_position(root, flow.key)) is None


def test_later_runs_do_not_open_the_staging_of_a_death_that_nothing_can_come_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each run paid for every death before it: cost grows with data, not with history."""
    root = tmp_path / "project"
    first, _ = flows(root, "feed-merge", "full-replace-streaming")
    for _ in range(3):
        with dying(root, lambda point, nth, total: (point, nth) == ("sink_prepare.before", 1)) as died:
            pz.open_project(root, environ={}).run(everything=True)
        assert died
    opened: list[Path] = []
    original = StagingSession.open_read_only

    def open_read_only(run_dir: Path) -> StagingSession:
        opened.append(run_dir)
        return original(run_dir)

    monkeypatch.setattr(StagingSession, "open_read_only", open_read_only)
    first.mutate(Server(root / "far"), 3, [], [], 100)
    assert pz.open_project(root, environ={}).run(everything=True).exit_code == 0
    assert opened, "the first deaths had committed before they could store state: their record is needed"
    assert stored_position(root, first.key) is not None
    opened.clear()
    assert pz.open_project(root, environ={}).run(everything=True).exit_code == 0
    assert not opened


def test_a_retry_that_waited_for_a_newer_run_does_not_put_older_rows_over_its(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead run's rows are staged; while the retry waits for the output's lock, a newer run delivers newer rows."""
    root = tmp_path / "project"
    (flow,) = flows(root, "full-replace-streaming")
    server = Server(root / "far")
    with dying(root, lambda point, nth, total: (point, nth) == ("sink_prepare.before", 1)) as died:
        pz.open_project(root, environ={}).run(everything=True)
    assert died
    flow.mutate(server, 3, [0, 1], [2], 100)

    def overtaken(*arguments: Any, **settings: Any) -> Any:
        monkeypatch.setattr("pz.engine.run.hold_locks", hold_locks)
        assert pz.open_project(root, environ={}).run(everything=True).exit_code == 0
        return hold_locks(*arguments, **settings)

    monkeypatch.setattr("pz.engine.run.hold_locks", overtaken)
    with pytest.raises(StateError, match="has had output") as refused:
        pz.open_project(root, environ={}).retry()
    assert (refused.value.code, "pz retry" in str(refused.value.problems[0].hint)) == (Code.PZ0520, True)
    flow.succeeded(flow.clock, "the newer run")
    assert flow.broken(server, None) is None
    assert pz.open_project(root, environ={}).retry().nothing_to_do
    assert flow.broken(server, None) is None


@pytest.mark.parametrize("reusable", [False, True])
@pytest.mark.parametrize("full_refresh", [False, True])
@pytest.mark.parametrize("cell", ["feed-append", "incremental-append", "feed-merge"])
def test_a_retry_loses_nothing_that_came_after_a_commit_that_was_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str, *, full_refresh: bool, reusable: bool
) -> None:
    """The dead run's state is stored first; a retry that reads anew then finds other rows than that run had delivered."""
    root = tmp_path / "project"
    (flow,) = flows(root, cell)
    server = Server(root / "far")
    opened = pz.open_project(root, environ={})
    flow.attempt(None, full_refresh=False, retry=False, since=flow.clock, times=1)
    assert opened.run(everything=True).exit_code == 0
    flow.mutate(server, 3, [], [], 200)
    stored = stored_position(root, flow.key)
    flow.attempt(stored, full_refresh=full_refresh, retry=False, since=flow.clock, times=1)
    since = flow.clock
    with dying(root, lambda point, nth, total: (point, nth) == ("sink_commit.after", 1)) as died:
        opened.run(everything=True, full_refresh=full_refresh)
    assert died
    assert stored_position(root, flow.key) == stored
    flow.mutate(server, 2, [0], [], 300)
    flow.attempt(stored, full_refresh=full_refresh, retry=True, since=since, times=1)
    if not reusable:
        monkeypatch.setattr("pz.engine.prior.reuse_node", lambda *_: NotReused("it is gone"))
    assert opened.retry().exit_code == 0
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(distribution_path()))
    flow.succeeded(since, "chain")
    assert flow.broken(server, stored_position(root, flow.key)) is None
    since = flow.clock
    flow.attempt(stored_position(root, flow.key), full_refresh=False, retry=False, since=since, times=1)
    assert opened.run(everything=True).exit_code == 0
    flow.succeeded(since, "next")
    assert flow.broken(server, stored_position(root, flow.key)) is None


@pytest.mark.parametrize(
    ("cell", "verb"),
    [
        ("full-append", "retry"),
        *((cell, verb) for cell in ("feed-append", "incremental-append") for verb in ("run", "retry")),
    ],
)
def test_a_project_that_is_renamed_after_a_death_appends_nothing_twice(tmp_path: Path, cell: str, verb: str) -> None:
    """The mark of a slice at the destination holds the project's name as it was when the chain of runs began."""
    root = tmp_path / "project"
    (flow,) = flows(root, cell)
    server = Server(root / "far")
    flow.attempt(None, full_refresh=False, retry=False, since=flow.clock, times=1)
    with dying(root, lambda point, nth, total: (point, nth) == ("sink_commit.after", 1)) as died:
        pz.open_project(root, environ={}).run(everything=True)
    assert died
    declared = root / "project.yml"
    declared.write_text(declared.read_text().replace("name: shop", "name: renamed"))
    opened = pz.open_project(root, environ={})
    assert (opened.retry() if verb == "retry" else opened.run(everything=True)).exit_code == 0
    assert flow.broken(server, stored_position(root, flow.key)) is None
    assert sum(call.rows for call in server.script.calls("commit", "out0")) == 12
    record = opened.runs()[0].record
    assert record is not None
    assert record.project == ("shop" if verb == "retry" else "renamed")


@pytest.mark.parametrize("cell", ["feed-append", "incremental-append"])
def test_a_retry_that_died_does_not_lend_its_newer_load_to_an_older_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    """It had read anew and then found that the run before it had committed: what it read is not what was delivered."""
    root = tmp_path / "project"
    (flow,) = flows(root, cell)
    server = Server(root / "far")
    opened = pz.open_project(root, environ={})
    flow.attempt(None, full_refresh=False, retry=False, since=flow.clock, times=1)
    with dying(root, lambda point, nth, total: (point, nth) == ("sink_commit.after", 1)) as died:
        opened.run(everything=True)
    assert died
    flow.mutate(server, 2, [0], [], 300)
    flow.attempt(None, full_refresh=False, retry=True, since=0, times=1)
    monkeypatch.setattr("pz.engine.prior.reuse_node", lambda *_: NotReused("it is gone"))
    with dying(root, lambda point, nth, total: (point, nth) == ("record_attempt.after", 2)) as died:
        opened.retry()
    assert died
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(distribution_path()))
    assert opened.retry().exit_code == 0
    assert flow.broken(server, stored_position(root, flow.key)) is None
    since = flow.clock
    flow.attempt(stored_position(root, flow.key), full_refresh=False, retry=False, since=since, times=1)
    assert opened.run(everything=True).exit_code == 0
    flow.succeeded(since, "next")
    assert flow.broken(server, stored_position(root, flow.key)) is None


def test_a_death_stays_in_sight_however_often_another_flow_ran_since(tmp_path: Path) -> None:
    root = tmp_path / "project"
    first, second = flows(root, "feed-append", "full-replace-streaming")
    with dying(root, lambda point, nth, total: (point, nth) == ("advance_state.before", 1)) as died:
        pz.open_project(root, environ={}).run(everything=True)
    assert died
    assert stored_position(root, first.key) is None
    opened = pz.open_project(root, environ={})
    for _ in range(12):
        assert opened.run(f"flow{second.number}").exit_code == 0
    assert opened.run(everything=True).exit_code == 0
    assert sum(call.rows for call in Server(root / "far").script.calls("commit", "out0")) == 12, "it was repeated"
    assert stored_position(root, first.key) == Server(root / "far").head()
    assert unsettled_ids(root / ".pz") == frozenset()


def test_what_nothing_can_come_of_is_looked_at_no_more(tmp_path: Path) -> None:
    root = tmp_path / "project"
    flows(root, "feed-append", "full-replace-streaming")
    for _ in range(3):
        with dying(root, lambda point, nth, total: (point, nth) == ("stage_rows.before", 1)) as died:
            pz.open_project(root, environ={}).run(everything=True)
        assert died
    assert len(unsettled_ids(root / ".pz")) == 1, "each run has seen that nothing came of the one before"
    assert pz.open_project(root, environ={}).run(everything=True).exit_code == 0
    assert unsettled_ids(root / ".pz") == frozenset()


def test_runs_of_an_earlier_version_are_looked_at_once(tmp_path: Path) -> None:
    root = tmp_path / "project"
    first, _ = flows(root, "feed-append", "full-replace-streaming")
    with dying(root, lambda point, nth, total: (point, nth) == ("advance_state.before", 1)) as died:
        pz.open_project(root, environ={}).run(everything=True)
    assert died
    shutil.rmtree(root / ".pz/runs/.open")
    assert pz.open_project(root, environ={}).run(everything=True).exit_code == 0
    assert sum(call.rows for call in Server(root / "far").script.calls("commit", "out0")) == 12
    assert stored_position(root, first.key) == Server(root / "far").head()


@pytest.mark.parametrize("verb", ["run", "retry"])
@pytest.mark.parametrize("cells", [("feed-append",), ("full-replace-streaming",)])
def test_a_run_that_died_after_its_last_output_ends_as_what_it_was(
    tmp_path: Path, cells: tuple[str, ...], verb: str
) -> None:
    root = tmp_path / "project"
    flows(root, *cells)
    with dying(root, lambda point, nth, total: (point, nth) == ("finish_run.before", 1)) as died:
        pz.open_project(root, environ={}).run(everything=True)
    assert died
    opened = pz.open_project(root, environ={})
    (dead,) = opened.runs()
    assert dead.dead
    result = opened.run(everything=True) if verb == "run" else opened.retry()
    assert result.exit_code == 0
    (after,) = (entry for entry in opened.runs() if entry.run_id == dead.run_id)
    assert (after.dead, str(after.status)) == (False, "success")
    assert after.results is not None
    assert all(node.status == "success" for node in after.results.nodes)


def test_refused_runs_leave_one_trace_and_no_more(tmp_path: Path) -> None:
    root = tmp_path / "project"
    flows(root, "feed-append")
    opened = pz.open_project(root, environ={})
    assert opened.run(everything=True).exit_code == 0
    (kept,) = opened.runs()
    path = root / ".pz/state/sync-state.json"
    stored = path.read_bytes()
    path.write_bytes(b"{")
    for _ in range(2):
        with pytest.raises(StateError, match="PZ0706"):
            opened.run(everything=True)
    assert opened.runs() == (kept,)
    _, trace = sorted(p for p in (root / ".pz/runs").iterdir() if not p.name.startswith("."))
    assert not (trace / "run.json").exists()
    assert list((root / ".pz/runs").glob(".gone-*")) == []
    path.write_bytes(stored)
    assert opened.run(everything=True).exit_code == 0
    assert [entry.number for entry in opened.runs()] == [5, 1]
