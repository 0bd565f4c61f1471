"""The Python interface: what it exports, and what it raises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pz
from projects import write
from pz.codes import Code
from pz.state.locks import RunLocks, output_lock
from running import project, run

ROOT = Path(__file__).parents[1]
FILES = {
    "data/t.csv": "a\n1\n",
    "pipelines/stg_t.sql": "select * from {{ source('files', 't', format: 'csv') }}",
}


@pytest.mark.parametrize("name", pz.__all__)
def test_what_is_exported_is_there_and_errors_have_one_base(name: str) -> None:
    value = getattr(pz, name)
    assert not name.endswith("Error") or issubclass(value, pz.PzError)


def test_the_page_names_what_is_exported() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert [name for name in ("CancelToken", "PzError", "ProjectError", "StateError") if f"pz.{name}" not in page] == []


@pytest.mark.parametrize("where", ["nowhere", "empty"])
def test_a_folder_without_a_project_is_refused_when_it_is_opened(where: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(pz.ProjectError) as caught:
        pz.open_project(tmp_path / where)
    assert caught.value.code == Code.PZ0101
    assert caught.value.problems[0].advice


def test_a_faulty_project_opens_and_is_refused_by_what_is_done_with_it(tmp_path: Path) -> None:
    opened = pz.open_project(write(tmp_path, {"project.yml": "nonsense: ["}), environ={})
    with pytest.raises(pz.PzError):
        opened.run()


@pytest.mark.parametrize(
    ("asked", "advice"),
    [("stg_y", "did you mean 'stg_t'?"), ("zz", "an ephemeral pipeline and a chain in one statement stage nothing")],
)
def test_a_relation_that_was_not_staged_is_named_with_a_near_miss(asked: str, advice: str, tmp_path: Path) -> None:
    result = run(project(tmp_path, FILES))
    assert result.table("stg_t").to_pylist() == [{"a": 1}]
    with pytest.raises(pz.ProjectError) as caught:
        result.table(asked)
    assert caught.value.code == Code.PZ0210
    assert caught.value.problems[0].advice.startswith(advice)


def test_staging_that_is_gone_has_its_code(tmp_path: Path) -> None:
    result = run(project(tmp_path, FILES))
    (result.run_dir / "staging.duckdb").unlink()
    with pytest.raises(pz.StateError):
        result.table("stg_t")
    with pytest.raises(pz.StateError, match="is gone") as caught:
        project(tmp_path, FILES).show("stg_t", run_id=result.run_id)
    assert caught.value.code == Code.PZ0708
    assert "pz show stg_t" in caught.value.problems[0].advice
    assert str(tmp_path) not in str(caught.value)


def test_a_run_that_is_stopped_while_it_waits_for_another_raises_cancelled(tmp_path: Path) -> None:
    files = {**FILES, "pipelines/t.sql": "insert into {{ sink('lake', 't') }} select * from {{ ref('stg_t') }}"}
    stop = pz.CancelToken()
    with (
        RunLocks.acquire(tmp_path / ".pz", "the-other-run", [output_lock("lake.t")]),
        pytest.raises(pz.Cancelled),
    ):
        project(tmp_path, files).run(on_event=lambda event: stop.cancel(), cancel=stop)


@pytest.mark.parametrize("limit", [2**63 - 1, 2**63, 10**30])
def test_a_limit_beyond_what_a_machine_counts_is_none(limit: int, tmp_path: Path) -> None:
    opened = project(tmp_path, FILES)
    result = run(opened)
    assert opened.show("stg_t", limit=limit).num_rows == opened.show("stg_t").num_rows > 0
    assert opened.show("stg_t", limit=limit, run_id=result.run_id).num_rows > 0
    assert len(opened.runs(limit)) == 1


def test_an_empty_path_is_no_project() -> None:
    with pytest.raises(pz.ProjectError) as caught:
        pz.open_project("")
    assert caught.value.code == Code.PZ0101


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int, tmp_path: Path) -> None:
    opened = project(tmp_path, FILES)
    for call in (
        lambda: opened.show("stg_t", limit=limit),
        lambda: opened.runs(limit),
        lambda: opened.run(until_caught_up=True, max_passes=limit),
    ):
        with pytest.raises(pz.ProjectError) as caught:
            call()
        assert caught.value.code == Code.PZ0534


def test_a_run_shows_as_one_short_line(tmp_path: Path) -> None:
    opened = project(tmp_path, FILES)
    result = run(opened)
    assert re.fullmatch(rf"<RunResult {result.run_id}: success, \d+ succeeded, 0 failed, 0 skipped>", repr(result))
    assert repr(opened.runs()) == f"(<RunEntry {result.run_id}: success>,)"
