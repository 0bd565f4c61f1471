"""`retry` over local files: what is reused, carried forward, read anew; killed and cancelled runs included."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import duckdb
import pytest

from pz.connectors.contract import CancelToken
from pz.errors import Code, Problem, ProjectError, PzError, StateError
from pz.events import NodeCompleted
from pz.runs.directory import run_paths
from pz.runs.model import RunStatus
from pz.staging.session import STAGING_FILE
from running import errors, project, rows, run, statuses

FILES = {
    "data/people.csv": "id,name\n1,Ann\n2,Bo\n",
    "pipelines/base.sql": "SELECT * FROM {{ source('files', 'people') }}",
    "pipelines/good.sql": "INSERT INTO {{ sink('lake', 'good') }} SELECT id FROM {{ ref('base') }}",
    "pipelines/bad.sql": "INSERT INTO {{ sink('lake', 'bad') }} SELECT name::INT AS n FROM {{ ref('base') }}",
}


def provenance(result: object) -> dict[str, str | None]:
    return {node.name: node.provenance for node in result.nodes}  # type: ignore[attr-defined]


def test_a_retry_reuses_the_load_and_carries_the_committed_sink_forward(tmp_path: Path) -> None:
    demo = project(tmp_path, FILES)
    failed = run(demo)
    assert failed.exit_code == 1
    (tmp_path / "data/people.csv").write_text("id,name\n9,Changed\n")
    (tmp_path / "pipelines/bad.sql").write_text(FILES["pipelines/bad.sql"].replace("name::INT", "id * 2"))
    result = demo.retry()
    assert errors(result) == {}
    found = provenance(result)
    assert found["src_files__people"] == "reused"
    assert found["lake.good"] == "carried_forward"
    assert "good" not in found, "the finished pipeline ran again for nothing"
    assert rows(tmp_path / "out/bad/*.parquet") == [(2,), (4,)]
    assert rows(tmp_path / "out/good/*.parquet") == [(1,), (2,)]
    assert len(list((tmp_path / "out/good").iterdir())) == 1


def test_both_counts_are_said(tmp_path: Path) -> None:
    demo = project(tmp_path, FILES)
    run(demo)
    said: list[str] = []
    demo.retry(on_event=lambda event: said.append(str(getattr(event, "message", ""))))
    assert any("reusing staged data for 1 source load(s)" in text for text in said)
    assert any("carrying forward 1 committed sink write(s)" in text for text in said)


@pytest.mark.parametrize("mended", [True, False])
def test_a_retry_says_that_a_run_reads_again_what_it_reuses(tmp_path: Path, mended: bool) -> None:
    demo = project(tmp_path, FILES)
    run(demo)
    if mended:
        (tmp_path / "data/people.csv").write_text("id,name\n1,1\n2,22\n")
    said: list[str] = []
    demo.retry(on_event=lambda event: said.append(str(getattr(event, "message", ""))))
    told = [text for text in said if "`pz run` reads" in text]
    assert len(told) == 1
    assert ("file 'people.csv' changed since" in told[0]) is mended


def test_a_load_that_cannot_be_reused_is_told_once_and_not_called_reused(tmp_path: Path) -> None:
    demo = project(tmp_path, FILES)
    failed = run(demo)
    with duckdb.connect(failed.run_dir / STAGING_FILE) as staged:
        ((table,),) = staged.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'src_files__people%'"
        ).fetchall()
        staged.execute(f"DELETE FROM staging.staging.{table} WHERE id = 1")
    said: list[str] = []
    demo.retry(on_event=lambda event: said.append(str(getattr(event, "message", ""))))
    assert len([text for text in said if "re-extracting" in text]) == 1
    assert not [text for text in said if "reus" in text]


def test_a_retry_of_a_retry_counts_what_every_run_of_the_chain_finished(tmp_path: Path) -> None:
    demo = project(tmp_path, FILES)
    first = run(demo)
    second = demo.retry()
    assert second.exit_code == 1
    (tmp_path / "pipelines/bad.sql").write_text(FILES["pipelines/bad.sql"].replace("name::INT", "id"))
    third = demo.retry()
    assert third.exit_code == 0
    assert third.results.origin == second.results.origin == first.run_id
    assert provenance(third)["lake.good"] == "carried_forward"
    assert len(list((tmp_path / "out/good").iterdir())) == 1


def test_an_edited_pipeline_above_a_committed_sink_is_delivered_again(tmp_path: Path) -> None:
    files = {
        **FILES,
        "pipelines/good.sql": "INSERT INTO {{ sink('lake', 'good', strategy: 'replace') }} SELECT id FROM {{ ref('base') }}",
    }
    demo = project(tmp_path, files)
    run(demo)
    (tmp_path / "pipelines/base.sql").write_text(
        "SELECT id + 10 AS id, '7' AS name FROM {{ source('files', 'people') }}"
    )
    result = demo.retry()
    assert errors(result) == {}
    assert provenance(result)["lake.good"] is None
    assert rows(tmp_path / "out/good/good.parquet") == [(11,), (12,)]


def test_full_refresh_reuses_and_carries_nothing(tmp_path: Path) -> None:
    demo = project(tmp_path, FILES)
    run(demo)
    (tmp_path / "data/people.csv").write_text("id,name\n5,6\n")
    result = demo.retry(full_refresh=True)
    assert errors(result) == {}
    assert set(provenance(result).values()) == {None}
    assert (5,) in rows(tmp_path / "out/good/*.parquet")


def test_nothing_to_retry_after_a_success_makes_no_run(tmp_path: Path) -> None:
    demo = project(tmp_path, {k: v for k, v in FILES.items() if "bad" not in k})
    run(demo)
    before = sorted((tmp_path / ".pz/runs").iterdir())
    result = demo.retry()
    assert (result.exit_code, result.nothing_to_do) == (0, True)
    assert sorted((tmp_path / ".pz/runs").iterdir()) == before


@pytest.mark.parametrize("how", ["does not compile", "selects nothing", "is locked out", "is refused by state"])
def test_a_run_that_was_refused_is_not_hidden_by_the_success_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Before, ``pz run || pz retry`` went green though nothing was delivered."""
    demo = project(tmp_path, {k: v for k, v in FILES.items() if "bad" not in k})
    done = run(demo)
    broken = tmp_path / "pipelines/broken.sql"
    phase = {"is locked out": "hold_locks", "is refused by state": "resolve_reading"}.get(how)
    if how == "does not compile":
        broken.write_text("SELECT * FROM {{ ref('nowhere') }}")
    with monkeypatch.context() as patched:
        if phase is not None:
            patched.setattr(f"pz.engine.run.{phase}", _refusing)
        for _ in range(3):
            with pytest.raises(PzError):
                demo.run(*(("nowhere",) if how == "selects nothing" else ()), everything=how != "selects nothing")
    with pytest.raises(ProjectError, match="before anything moved") as refused:
        demo.retry()
    assert refused.value.code is Code.PZ0504
    assert done.run_id in str(refused.value)
    broken.unlink(missing_ok=True)
    assert run(demo).exit_code == 0
    assert demo.retry().nothing_to_do
    if how in {"does not compile", "selects nothing"}:
        assert len(run_paths(tmp_path / ".pz")) == 3, "refusals in a row left more than one trace"


def _refusing(*arguments: object, **settings: object) -> NoReturn:
    raise StateError(Problem(Code.PZ0701, "held"))


def test_refused_checks_do_not_make_a_delivered_run_one_that_was_not(tmp_path: Path) -> None:
    demo = project(tmp_path, {k: v for k, v in FILES.items() if "bad" not in k})
    run(demo)
    with pytest.raises(ProjectError):
        demo.test(select="nowhere")
    assert demo.retry().nothing_to_do


def test_a_run_that_was_refused_hides_no_failed_one(tmp_path: Path) -> None:
    demo = project(tmp_path, FILES)
    failed = run(demo)
    with pytest.raises(ProjectError):
        demo.run("nowhere")
    (tmp_path / "pipelines/bad.sql").write_text(FILES["pipelines/bad.sql"].replace("name::INT", "id"))
    assert demo.retry().results.origin == failed.run_id


def test_a_run_that_was_refused_where_none_ever_began_leaves_nothing(tmp_path: Path) -> None:
    demo = project(tmp_path, FILES)
    with pytest.raises(ProjectError):
        demo.run("nowhere")
    assert not (tmp_path / ".pz/runs").exists()


def test_checks_that_pass_hide_no_failed_run(tmp_path: Path) -> None:
    check = {"pipelines/configs/base.yml": "pipeline: base\nchecks:\n  - not_null: [id]\n"}
    demo = project(tmp_path, {**FILES, **check})
    failed = run(demo)
    assert demo.test().exit_code == 0
    (tmp_path / "pipelines/bad.sql").write_text(FILES["pipelines/bad.sql"].replace("name::INT", "id"))
    result = demo.retry()
    assert result.results.origin == failed.run_id
    assert rows(tmp_path / "out/bad/*.parquet") == [(1,), (2,)]


def test_a_project_that_never_ran_has_nothing_to_retry(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as refused:
        project(tmp_path, FILES).retry()
    assert refused.value.code is Code.PZ0502


def test_lost_staging_is_a_note_and_a_new_read(tmp_path: Path) -> None:
    demo = project(tmp_path, FILES)
    failed = run(demo)
    (failed.run_dir / "staging.duckdb").write_bytes(b"garbage")
    (tmp_path / "pipelines/bad.sql").write_text(FILES["pipelines/bad.sql"].replace("name::INT", "id"))
    result = demo.retry()
    assert errors(result) == {}
    assert provenance(result)["src_files__people"] is None
    assert rows(tmp_path / "out/bad/*.parquet") == [(1,), (2,)]


def test_a_cancelled_run_is_continued(tmp_path: Path) -> None:
    demo = project(tmp_path, {k: v for k, v in FILES.items() if "bad" not in k})
    cancel = CancelToken()

    def stop_after_the_load(event: object) -> None:
        if isinstance(event, NodeCompleted) and event.kind == "SourceLoad":
            cancel.cancel()

    cancelled = run(demo, cancel=cancel, on_event=stop_after_the_load)
    assert cancelled.status is RunStatus.FATAL
    result = demo.retry()
    assert errors(result) == {}
    assert provenance(result)["src_files__people"] == "reused"
    assert rows(tmp_path / "out/good/*.parquet") == [(1,), (2,)]


KILLED = """
import pz, sys
pz.open_project(sys.argv[1], environ={}).run(everything=True)
"""


@pytest.mark.parametrize(
    "failpoint",
    [
        "complete_load.after",
        "materialize.before",
        "sink_commit.before",
        "sink_commit.after",
        "promote_file.after",
        "finish_run.before",
    ],
)
def test_a_killed_run_is_taken_over(tmp_path: Path, failpoint: str) -> None:
    replace = "INSERT INTO {{ sink('lake', 'good', strategy: 'replace') }} SELECT id FROM {{ ref('base') }}"
    demo = project(tmp_path, {**{k: v for k, v in FILES.items() if "bad" not in k}, "pipelines/good.sql": replace})
    died = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env={**os.environ, "PZ_FAILPOINT": f"{failpoint}=kill", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, "the failpoint was not reached"
    result = demo.retry()
    assert errors(result) == {}
    assert rows(tmp_path / "out/good/good.parquet") == [(1,), (2,)]
    assert run(demo).exit_code == 0
    assert set(statuses(result).values()) <= {"success"}


def test_what_failed_and_is_no_longer_in_the_project_is_named(tmp_path: Path) -> None:
    write = "INSERT INTO {{{{ sink('lake', '{0}', strategy: 'replace') }}}}\nSELECT {1} AS one"
    files = {f"pipelines/{name}.sql": write.format(name, "error('x')") for name in ("kept", "gone")}
    demo = project(tmp_path, files)
    assert run(demo).exit_code == 1
    (tmp_path / "pipelines/gone.sql").unlink()
    (tmp_path / "pipelines/kept.sql").write_text(write.format("kept", "1"))
    notes: list[str] = []
    again = demo.retry(on_event=lambda event: notes.append(str(event.to_wire().get("message"))))
    assert again.exit_code == 0
    assert "no longer in the project, so not run again: gone, lake.gone" in notes

    (tmp_path / "pipelines/kept.sql").write_text(write.format("kept", "error('x')"))
    assert run(demo).exit_code == 1
    (tmp_path / "pipelines/kept.sql").write_text("SELECT 1 AS one")
    (tmp_path / "pipelines/kept.sql").rename(tmp_path / "pipelines/other.sql")
    nothing = demo.retry()
    assert nothing.nothing_to_do
    assert nothing.notes == ("nothing to retry: what is left is no longer in the project: kept, lake.kept",)
