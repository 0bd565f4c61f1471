"""A system that does not answer while a run asks what is there is asked again, and a refusal ends the stream of events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pz
from cli_support import invoke
from projects import write
from pz.errors import Cancelled
from pz.events import Event, RetryScheduled
from pz.testing.reference import distribution_path
from pz.testing.script import Fault
from pz.testing.server import Server
from running import run

PIPELINE = """
INSERT INTO {{ sink('dst', 'out') }} SELECT id FROM {{ source('src', 'orders') }}
UNION ALL SELECT id FROM {{ source('src', 'more') }}
"""


def reference(path: str, entities: dict[str, Any]) -> dict[str, Any]:
    retry = {"max_attempts": 3, "base_delay": "1ms"}
    return {"connector": "reference", "path": path, "retry": retry, "entities": entities}


@pytest.fixture(name="opened")
def _opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pz.OpenProject:
    monkeypatch.syspath_prepend(str(distribution_path()))
    root = tmp_path / "shop"
    connections = {
        "src": reference("far", {"orders": {"read": {}}, "more": {"read": {}}}),
        "dst": reference("near", {"out": {"write": {"strategy": "replace"}}}),
    }
    write(root, {"connections.yml": json.dumps(connections), "pipelines/orders.sql": PIPELINE})
    for name in ("orders", "more"):
        Server(root / "far").create(name, {"id": "BIGINT"}, keys=["id"])
        Server(root / "far").insert(name, [{"id": 1}])
    Server(root / "near")
    return pz.open_project(root, environ={})


@pytest.mark.parametrize(
    ("place", "op", "name"), [("far", "probe", "src_src__orders"), ("near", "probe_output", "dst.out")]
)
def test_a_system_that_is_back_at_the_third_attempt_is_no_refusal(
    opened: pz.OpenProject, place: str, op: str, name: str
) -> None:
    Server(opened.root / place).script.add(
        Fault(op, "transient", entity=name.rpartition("_")[2].rpartition(".")[2], times=2, message="connection refused")
    )
    seen: list[Event] = []
    assert run(opened, on_event=seen.append).exit_code == 0
    retries = [event for event in seen if isinstance(event, RetryScheduled)]
    assert [(r.attempt, r.max_attempts, r.operation, r.reason) for r in retries] == [
        (1, 3, "probe", "connection refused"),
        (2, 3, "probe", "connection refused"),
    ]
    assert {r.node_name for r in retries} == {name}
    assert [event.name for event in seen[:3]] == ["retry_scheduled", "retry_scheduled", "run_started"]


def test_the_console_names_the_node_that_is_asked_again(opened: pz.OpenProject) -> None:
    Server(opened.root / "far").script.add(Fault("probe", "transient", message="connection refused"))
    answer = invoke("run", "--all", project=opened)
    assert answer.code == 0
    assert ": probe: attempt 1 of 3 failed, next in " in answer.out
    assert "note: src" in answer.out


def test_one_that_stays_away_is_waited_for_once_and_then_refused(opened: pz.OpenProject) -> None:
    script = Server(opened.root / "far").script
    script.add(Fault("probe", "transient", times=0, message="connection refused"))
    with pytest.raises(pz.ProjectError) as refused:
        run(opened)
    assert {problem.code for problem in refused.value.problems} == {"PZ0330"}
    assert all("run again" in problem.advice for problem in refused.value.problems)
    assert len(script.calls("probe")) == 3 + 1
    assert not script.calls("read")


def test_what_another_attempt_would_not_mend_is_refused_at_once(opened: pz.OpenProject) -> None:
    script = Server(opened.root / "far").script
    script.add(Fault("probe", "permanent", entity="orders"))
    with pytest.raises(pz.ProjectError):
        run(opened)
    assert len(script.calls("probe", "orders")) == 1


def test_a_stop_ends_the_wait(opened: pz.OpenProject) -> None:
    Server(opened.root / "far").script.add(Fault("probe", "transient", times=0, retry_after=20))
    stop = pz.CancelToken()
    with pytest.raises(Cancelled):
        run(opened, cancel=stop, on_event=lambda _: stop.cancel())


def test_a_plan_asks_once(opened: pz.OpenProject) -> None:
    script = Server(opened.root / "far").script
    script.add(Fault("probe", "transient", entity="orders", times=0))
    with pytest.raises(pz.ProjectError):
        opened.plan(connect=True)
    assert len(script.calls("probe", "orders")) == 1


def test_a_refusal_is_one_object_of_the_stream_for_each_problem(opened: pz.OpenProject) -> None:
    Server(opened.root / "far").script.add(Fault("probe", "permanent", times=0, message="no such database"))
    answer = invoke("run", "--all", "--log-format", "json", project=opened)
    objects = [json.loads(line) for line in answer.out.splitlines()]
    assert answer.code == 2
    assert [list(found)[:4] for found in objects] == [["version", "event", "at", "runId"]] * 2
    assert {(found["event"], found["code"], found["exitCode"]) for found in objects} == {("run_refused", "PZ0330", 2)}
    assert all("no such database" in found["message"] and found["hint"] for found in objects)
    assert "error PZ0330" in answer.err


def test_a_project_that_does_not_compile_is_told_with_its_place(opened: pz.OpenProject) -> None:
    (opened.root / "pipelines/orders.sql").write_text("SELECT * FROM {{ ref('nothing') }}")
    answer = invoke("run", "--all", "--log-format", "json", project=opened)
    (found,) = map(json.loads, answer.out.splitlines())
    assert (found["event"], found["code"], found["file"], found["line"]) == (
        "run_refused",
        "PZ0201",
        "pipelines/orders.sql",
        1,
    )
