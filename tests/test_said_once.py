"""What goes wrong is said once, where it helps, with advice that fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from pz.cli.main import build
from pz.cli.render.lines import error_lines
from pz.connectors.options import Side, check_options
from pz.connectors.registry import Registry
from pz.engine import retry as retrying
from pz.errors import Code, Problem, ProjectError, StateError
from pz.events import Event, NodeCompleted, Notice
from pz.oslock import OsLock, Owner
from pz.runs.directory import LOCK
from running import project, run

PEOPLE = "id,name\n1,Ann\n2,Bo\n"
COPIED = {
    "data/people.csv": PEOPLE,
    "pipelines/good.sql": "INSERT INTO {{ sink('lake', 'good') }} SELECT id FROM {{ source('files', 'people') }}",
}


def notices(demo: Any) -> list[Notice]:
    seen: list[Event] = []
    demo.run(everything=True, on_event=seen.append)
    return [event for event in seen if isinstance(event, Notice)]


def test_the_error_of_a_fused_chain_stands_below_its_last_node() -> None:
    def ended(kind: str, *, fused: bool) -> NodeCompleted:
        return NodeCompleted(
            run_id="r", node_id=kind, kind=kind, node_name=kind, status="failed", rows=0, duration_ms=1,
            error_code="PZ0501", error_message="it broke", fused=fused or None,
        )  # fmt: skip

    chain = ["SourceLoad", "Pipeline", "SinkWrite"]
    assert [bool(error_lines(ended(kind, fused=True))) for kind in chain] == [False, False, True]
    assert all(error_lines(ended(kind, fused=False)) for kind in chain)


def test_sql_that_could_not_be_tried_is_told_by_those_who_look_and_not_by_a_run(tmp_path: Path) -> None:
    demo = project(tmp_path, COPIED)
    assert not [notice for notice in notices(demo) if "not tried" in notice.message]
    assert [problem for problem in demo.validate() if "not tried" in problem.message]
    assert [problem for problem in demo.plan().warnings if "not tried" in problem.message]


def test_a_strategy_that_a_connector_lacks_is_refused_once(tmp_path: Path) -> None:
    wrong = COPIED["pipelines/good.sql"].replace("'good')", "'good', strategy: 'merge', keys: ['id'])")
    demo = project(tmp_path, {**COPIED, "pipelines/good.sql": wrong})
    assert [problem.code for problem in demo.validate() if problem.code == Code.PZ0324] == [Code.PZ0324]
    with pytest.raises(ProjectError) as refused:
        demo.plan()
    assert [problem.code for problem in refused.value.problems] == [Code.PZ0324]


def test_state_that_two_runs_could_not_store_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entities = (
        "files: {connector: localfiles, root: data, entities: {people: {read: {columns: {id: bigint, name: varchar}, "
    )
    entities += "sync: {mode: incremental, cursor: id}}}}}\nlake: {connector: duckdb, path: lake.duckdb}\n"
    sql = COPIED["pipelines/good.sql"].replace("'good')", "'good', strategy: 'merge', keys: ['id'])")
    demo = project(tmp_path, {**COPIED, "connections.yml": entities, "pipelines/good.sql": sql})

    def lost(*arguments: object, **settings: object) -> None:
        raise StateError(Problem(Code.PZ0520, "another was faster"))

    with monkeypatch.context() as patched:
        patched.setattr("pz.state.stores.local.LocalStore.put", lost)
        for _ in range(2):
            told = [notice for notice in notices(demo) if notice.code == Code.PZ0527]
            assert len(told) == 1
        with pytest.raises(StateError) as refused:
            demo.retry()
        assert [problem.code for problem in refused.value.problems] == [Code.PZ0527]
    assert demo.retry().exit_code == 0


def test_a_limit_of_passes_says_that_windows_are_left(tmp_path: Path) -> None:
    entities = (
        "files: {connector: localfiles, root: data, entities: {people: {read: {columns: {id: bigint, name: varchar}, "
    )
    entities += "sync: {mode: incremental, cursor: id, initial: 0, max_window: 1, until: 9}}}}}\n"
    sql = COPIED["pipelines/good.sql"].replace("'good')", "'good', strategy: 'merge', keys: ['id'])")
    places = entities + "lake: {connector: duckdb, path: lake.duckdb}\n"
    demo = project(tmp_path, {**COPIED, "connections.yml": places, "pipelines/good.sql": sql})
    seen: list[Event] = []
    demo.run(everything=True, until_caught_up=True, max_passes=1, on_event=seen.append)
    said = [event.message for event in seen if isinstance(event, Notice)]
    assert (
        "stopped after 1 pass(es): the limit of 1 passes is reached, and windows are left to be read; run again to go on"
        in said
    )


def test_a_run_that_is_going_on_is_named_once(tmp_path: Path) -> None:
    demo = project(
        tmp_path,
        {**COPIED, "pipelines/good.sql": COPIED["pipelines/good.sql"].replace("SELECT id", "SELECT name::INT AS n")},
    )
    failed = run(demo)
    assert failed.exit_code == 1
    lock = OsLock(failed.run_dir / LOCK)
    assert lock.acquire(owner=Owner.this_process(failed.run_id))
    with lock, pytest.raises(ProjectError) as refused:
        retrying.retry(tmp_path, {}, *_nobody())
    assert refused.value.code == Code.PZ0503
    assert str(refused.value).count(failed.run_id) == 1


def _nobody() -> tuple[Any, Any]:
    from pz.connectors.contract import CancelToken
    from pz.events import EventBus

    return EventBus(), CancelToken()


def test_a_misspelt_option_is_told_in_one_sentence() -> None:
    connector = Registry.default().get("localfiles")
    (problem,) = check_options(connector, Side.READ, {"formt": "csv"}, subject="dataset 'a.b'")
    assert "did you mean 'format'? (accepted options: " in problem.advice


def test_advice_fits_what_is_missing(tmp_path: Path) -> None:
    demo = project(tmp_path, COPIED)
    with pytest.raises(ProjectError) as none:
        demo.retry()
    assert "pz run" in none.value.problems[0].advice
    with pytest.raises(StateError) as unset:
        demo.state.set("files.people", "3")
    assert "initial" in unset.value.problems[0].advice


@pytest.mark.parametrize(("name", "holds"), [("project", False), ("sidecar", False), ("connections", True)])
def test_the_help_of_a_schema_claims_what_it_holds(name: str, holds: bool) -> None:
    verbs = build().get_command(click.Context(build()), "schema")
    assert isinstance(verbs, click.Group)
    page: Any = verbs.commands[name]
    assert ("connectors' own options" in page.page.about) is holds
