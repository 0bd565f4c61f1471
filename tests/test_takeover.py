"""What becomes of a dead or failed run's unfinished business when a retry, or another run, follows it."""

from __future__ import annotations

from pathlib import Path

import pytest

import pz
from deaths import dying
from promises import Promise, stored_position
from pz.testing.reference import distribution_path
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
