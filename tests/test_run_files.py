"""Whole runs over local files: what is written, what is recorded, what a failure leaves."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from cli_support import invoke
from pz.connectors.contract import CancelToken
from pz.engine.context import NodeContext
from pz.errors import Code, ProjectError, StateError
from pz.runs.model import RunStatus
from running import CONNECTIONS, errors, events_of, project, rows, run, statuses

PEOPLE = "id,name\n1,Ann\n2,Bo\n3,\n"
COPY = "INSERT INTO {{ sink('lake', 'people', strategy: 'replace') }}\nSELECT * FROM {{ source('files', 'people') }}"


def test_a_run_moves_a_file_through_sql_to_a_file(tmp_path: Path) -> None:
    demo = project(tmp_path, {"data/people.csv": PEOPLE, "pipelines/people.sql": COPY + " WHERE id > 1"})
    result = run(demo)
    assert (result.status, result.exit_code) == (RunStatus.SUCCESS, 0)
    assert rows(tmp_path / "out/people/people.parquet") == [(2, "Bo"), (3, None)]


def test_a_plain_chain_is_fused_and_says_so(tmp_path: Path) -> None:
    demo = project(tmp_path, {"data/people.csv": PEOPLE, "pipelines/people.sql": COPY + " WHERE id > 1"})
    result = run(demo)
    assert [(node.kind, node.fused, node.rows) for node in result.nodes] == [
        ("SourceLoad", True, 3),
        ("Pipeline", True, 2),
        ("SinkWrite", True, 2),
    ]
    planned = demo.plan()
    assert {str(node.way) for node in planned.nodes} == {"fused"}


def test_a_check_makes_the_chain_staged_and_its_result_is_a_table(tmp_path: Path) -> None:
    files = {
        "data/people.csv": PEOPLE,
        "pipelines/people.sql": COPY,
        "pipelines/configs/people.yml": "pipeline: people\nchecks:\n  - not_null: [id]\n",
    }
    result = run(project(tmp_path, files))
    assert errors(result) == {}
    assert result.table("people").to_pylist()[0] == {"id": 1, "name": "Ann"}
    assert all(node.fused is None for node in result.nodes)


@pytest.mark.parametrize(("select", "kind"), [("SELECT *", "view"), ("SELECT *, 1 AS one", "table")])
def test_a_pipeline_that_hands_a_staged_table_on_is_a_view_upon_it(tmp_path: Path, select: str, kind: str) -> None:
    files = {
        "data/people.csv": PEOPLE,
        "pipelines/people.sql": COPY.replace("SELECT *", select),
        "pipelines/configs/people.yml": "pipeline: people\nchecks:\n  - not_null: [id]\n",
    }
    demo = project(tmp_path, files)
    (planned,) = (node for node in demo.plan().nodes if node.kind == "Pipeline")
    result = run(demo)
    assert ("a view upon" in planned.reason) == (kind == "view")
    assert [node.rows for node in result.nodes if node.kind == "Pipeline"] == [3]
    (staging,) = tmp_path.glob(".pz/runs/*/staging.duckdb")
    with duckdb.connect(str(staging), read_only=True) as connection:
        found = connection.execute(
            "SELECT table_type FROM information_schema.tables WHERE table_name = 'people'"
        ).fetchall()
    assert found == [("VIEW" if kind == "view" else "BASE TABLE",)]


def test_text_is_staged_as_it_is_where_it_came_as_text(tmp_path: Path) -> None:
    lines = "".join(f"{number},somebody called {number % 7}\n" for number in range(20_000))
    files = {
        "data/people.csv": "id,name\n" + lines,
        "pipelines/people.sql": COPY,
        "pipelines/configs/people.yml": "pipeline: people\nchecks:\n  - not_null: [id]\n",
    }
    assert errors(run(project(tmp_path, files))) == {}
    (staging,) = tmp_path.glob(".pz/runs/*/staging.duckdb")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{staging}' AS run (READ_ONLY)")
        info = "pragma_storage_info('run.staging.src_files__people')"
        found = connection.execute(
            f"SELECT column_name, compression FROM {info} WHERE segment_type <> 'VALIDITY'"
        ).fetchall()
    held = {name: {compression for column, compression in found if column == name} for name in ("id", "name")}
    assert held["name"] == {"Uncompressed"}
    assert "Uncompressed" not in held["id"]


def test_a_failed_check_fails_the_run_but_not_the_sink(tmp_path: Path) -> None:
    files = {
        "data/people.csv": PEOPLE,
        "pipelines/people.sql": COPY,
        "pipelines/configs/people.yml": "pipeline: people\nchecks:\n  - not_null: [name]\n",
    }
    result = run(project(tmp_path, files))
    assert result.exit_code == 1
    assert statuses(result)["lake.people"] == "success"
    (message,) = errors(result).values()
    assert "PZ0510" in message
    assert "1 violation" in message
    assert "id=3" in message
    assert "SELECT" in message


def test_a_failing_pipeline_skips_what_is_below_and_nothing_else(tmp_path: Path) -> None:
    files = {
        "data/people.csv": PEOPLE,
        "pipelines/base.sql": "SELECT * FROM {{ source('files', 'people') }}",
        "pipelines/bad.sql": "INSERT INTO {{ sink('lake', 'bad') }} SELECT name::INT AS n FROM {{ ref('base') }}",
        "pipelines/good.sql": "INSERT INTO {{ sink('lake', 'good') }} SELECT id FROM {{ ref('base') }}",
    }
    result = run(project(tmp_path, files))
    assert result.status is RunStatus.COMPLETED_WITH_FAILURES
    found = statuses(result)
    assert (found["bad"], found["lake.bad"], found["good"], found["lake.good"]) == (
        "failed",
        "skipped",
        "success",
        "success",
    )
    assert not (tmp_path / "out/bad").exists() or not list((tmp_path / "out/bad").iterdir())
    assert "Ann" not in errors(result)["bad"], "a row value reached the error"


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "  nme",
            "dataset 'files.people' has no column 'nme', which is read by pipeline 'people' (pipelines/people.sql:3)",
        ),
        ("  name + 1", "(pipelines/people.sql:3)"),
        ("  nothing_such(name)", "Scalar Function with name nothing_such does not exist! Did you mean"),
    ],
)
def test_sql_that_does_not_fit_what_was_read_is_told_with_its_place(
    tmp_path: Path, line: str, said: str, *, staged: bool
) -> None:
    """No columns are declared, so it shows only now."""
    head, tail = COPY.splitlines()
    files = {"data/people.csv": PEOPLE, "pipelines/people.sql": f"{head}\n{tail.replace('*', f'id,{chr(10)}{line}')}"}
    if staged:
        files["pipelines/configs/people.yml"] = "pipeline: people\nchecks:\n  - not_null: [id]\n"
    result = run(project(tmp_path, files))
    assert result.exit_code == 1
    found = [node.error for node in result.nodes if node.error is not None]
    assert {error.code for error in found} == {Code.PZ0401}
    assert all(said in error.message and "people.sql:3)" in error.message for error in found)


def test_append_adds_a_file_per_run_and_replace_keeps_one(tmp_path: Path) -> None:
    files = {
        "data/people.csv": PEOPLE,
        "pipelines/base.sql": "SELECT * FROM {{ source('files', 'people') }}",
        "pipelines/a.sql": "INSERT INTO {{ sink('lake', 'a', strategy: 'append') }} SELECT id FROM {{ ref('base') }}",
        "pipelines/r.sql": "INSERT INTO {{ sink('lake', 'r', strategy: 'replace') }} SELECT id FROM {{ ref('base') }}",
    }
    demo = project(tmp_path, files)
    first = run(demo)
    run(demo)
    run(demo)
    names = sorted(path.name for path in (tmp_path / "out/a").iterdir())
    assert len(names) == 3
    assert any(first.run_id in name for name in names)
    assert rows(tmp_path / "out/a/*.parquet") == sorted([(1,), (2,), (3,)] * 3)
    assert [path.name for path in (tmp_path / "out/r").iterdir()] == ["r.parquet"]


def test_an_empty_source_replaces_the_target_by_an_empty_file_with_its_columns(tmp_path: Path) -> None:
    demo = project(tmp_path, {"data/people.csv": PEOPLE, "pipelines/people.sql": COPY})
    run(demo)
    (tmp_path / "data/people.csv").write_text("id,name\n")
    result = run(demo)
    assert errors(result) == {}
    assert rows(tmp_path / "out/people/people.parquet") == []


def test_run_json_says_what_the_run_is_to_do_and_results_end_with_the_terminal_status(tmp_path: Path) -> None:
    demo = project(tmp_path, {"data/people.csv": PEOPLE, "pipelines/people.sql": COPY})
    result = run(demo)
    record = json.loads((result.run_dir / "run.json").read_text())
    assert record["runId"] == record["origin"] == result.run_id
    assert [node["kind"] for node in record["nodes"]] == ["SourceLoad", "Pipeline", "SinkWrite"]
    assert record["nodes"][0]["location"]
    written = json.loads((result.run_dir / "run_results.json").read_text())
    assert (written["version"], written["status"]) == (1, "success")
    assert written["finishedAt"]
    assert run(demo).results.nodes[0].id == result.nodes[0].id


def test_events_open_with_run_started_and_tell_every_node_once(tmp_path: Path) -> None:
    files = {
        "data/people.csv": PEOPLE,
        "pipelines/base.sql": "SELECT * FROM {{ source('files', 'people') }}",
        "pipelines/out.sql": "INSERT INTO {{ sink('lake', 'o') }} SELECT id FROM {{ ref('base') }}",
    }
    result, events = events_of(project(tmp_path, files))
    names = [event["event"] for event in events]
    assert names[0] == "run_started"
    assert names[-2:] == ["run_completed", "retention_swept"]
    assert names.count("node_started") == names.count("node_completed") == len(result.nodes) == 4
    assert all(event["runId"] == result.run_id and event["version"] == 1 for event in events)


def test_a_cancelled_run_is_fatal_and_writes_nothing(tmp_path: Path) -> None:
    demo = project(tmp_path, {"data/people.csv": PEOPLE, "pipelines/people.sql": COPY})
    cancel = CancelToken()
    result = run(demo, cancel=cancel, on_event=lambda event: cancel.cancel())
    assert (result.status, result.exit_code) == (RunStatus.FATAL, 3)
    assert set(statuses(result).values()) == {"skipped"}
    assert not (tmp_path / "out").exists()


def test_a_bare_run_of_two_flows_asks_which_one(tmp_path: Path) -> None:
    files = {
        "data/people.csv": PEOPLE,
        "data/pets.csv": "id\n1\n",
        "pipelines/people.sql": COPY,
        "pipelines/pets.sql": "INSERT INTO {{ sink('lake', 'pets') }} SELECT * FROM {{ source('files', 'pets') }}",
    }
    demo = project(tmp_path, files)
    with pytest.raises(ProjectError) as refused:
        demo.run()
    assert refused.value.code is Code.PZ0215
    assert set(statuses(run(demo, "pets"))) == {"src_files__pets", "pets", "lake.pets"}
    assert not (tmp_path / "out/people").exists()


def test_a_refused_project_leaves_no_run_behind(tmp_path: Path) -> None:
    demo = project(tmp_path, {"pipelines/people.sql": "SELECT * FROM {{ ref('nowhere') }}"})
    with pytest.raises(ProjectError):
        run(demo)
    assert not (tmp_path / ".pz/runs").exists()


def test_old_staging_is_swept_and_results_stay(tmp_path: Path) -> None:
    files = {
        "project.yml": "name: demo\nversion: 1.0.0\nretention:\n  keep_last: 1\n",
        "data/people.csv": PEOPLE,
        "pipelines/people.sql": COPY,
    }
    demo = project(tmp_path, files)
    first, second = run(demo), run(demo)
    assert not (first.run_dir / "staging.duckdb").exists()
    assert (first.run_dir / "run_results.json").exists()
    assert (second.run_dir / "staging.duckdb").exists()


def test_a_view_is_computed_when_it_is_read(tmp_path: Path) -> None:
    files = {
        "data/people.csv": PEOPLE,
        "pipelines/v.sql": "SELECT id * 10 AS ten FROM {{ source('files', 'people') }}",
        "pipelines/configs/v.yml": "pipeline: v\nmaterialization: view\n",
        "pipelines/out.sql": "INSERT INTO {{ sink('lake', 'o') }} SELECT ten FROM {{ ref('v') }}",
    }
    result = run(project(tmp_path, files))
    assert errors(result) == {}
    assert next(node.rows for node in result.nodes if node.name == "v") == 0
    assert rows(tmp_path / "out/o/*.parquet") == [(10,), (20,), (30,)]


def test_show_previews_a_pipeline_without_touching_its_sink(tmp_path: Path) -> None:
    demo = project(tmp_path, {"data/people.csv": PEOPLE, "pipelines/people.sql": COPY})
    assert demo.show("people", limit=2).num_rows == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("check", "shows", "expected"),
    [
        ("not_null: [name]", "to see the rows, ", [(3, None)]),
        ("row_count: {min: 9}", "to see the number of rows, ", [(3,)]),
    ],
)
def test_a_failed_check_says_what_to_run_where(
    check: str, shows: str, expected: list[tuple[object, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint alone is enough, in the project's folder."""
    files = {
        "data/people.csv": PEOPLE,
        "pipelines/people.sql": "SELECT id, name FROM {{ source('files', 'people') }}",
        "pipelines/configs/people.yml": f"pipeline: people\nchecks:\n  - {check}\n",
    }
    (message,) = errors(run(project(tmp_path, files))).values()
    hint = message.split("\nhint: ")[1]
    assert hint.startswith(shows)
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as shell:
        assert shell.execute(hint.split("shell: ")[1]).fetchall() == expected


def test_a_variable_that_is_used_may_come_from_the_command_line_alone(tmp_path: Path) -> None:
    demo = project(tmp_path, {"pipelines/n.sql": "INSERT INTO {{ sink('lake', 'n') }} SELECT {{ var('n') }} AS n"})
    result = run(demo, vars={"n": 7})
    assert rows(tmp_path / "out/n/*.parquet") == [(7,)]
    assert [problem.code for problem in result.problems] == []
    assert [problem.code for problem in run(demo, vars={"n": 7, "m": 1}).problems] == [Code.PZ0716]


def test_a_retry_tells_a_file_that_was_mended_from_one_that_changes_under_it(tmp_path: Path) -> None:
    """Nor does the error of a csv of four lines begin with "1 of 1 partition(s) failed"."""
    files = {
        "connections.yml": CONNECTIONS.replace(
            "root: data", "root: data\n  entities: {people: {read: {columns: {id: int}}}}"
        ),
        "data/people.csv": "id\n1\nx\n",
        "pipelines/people.sql": COPY,
        "pipelines/configs/people.yml": "pipeline: people\nchecks:\n  - not_null: [id]\n",
    }
    demo = project(tmp_path, files)
    (message, *_) = errors(run(demo)).values()
    assert message.startswith("PZ0722 file 'people.csv', line 3")
    (tmp_path / "data/people.csv").write_text("id\n1\n2\n")
    seen: list[dict[str, object]] = []
    assert demo.retry(on_event=lambda event: seen.append(event.to_wire())).exit_code == 0
    notes = [str(event["message"]) for event in seen if event["event"] == "notice"]
    assert "source 'files.people': file 'people.csv' changed since the run that is continued; planning anew" in notes


@pytest.mark.parametrize("checked", ["", "checks: [{row_count: {max: 0}}]\n"], ids=["fused", "staged"])
def test_a_dataset_that_may_be_missing_says_so_once(tmp_path: Path, checked: str) -> None:
    options = "path: 'no/*.csv', columns: {id: 'int'}, missing: 'empty'"
    files = {
        "pipelines/people.sql": "INSERT INTO {{ sink('lake', 'people', strategy: 'replace') }}\n"
        "SELECT * FROM {{ source('files', 'people', " + options + ") }}",
        "pipelines/configs/people.yml": f"pipeline: people\n{checked}",
    }
    result, events = events_of(project(tmp_path, files))
    assert errors(result) == {}
    logs = [(event["connection"], event["message"]) for event in events if event["event"] == "connector_log"]
    assert logs == [("files", "no file matches 'no/*.csv', so nothing is read (`missing: empty`)")]
    assert rows(tmp_path / "out/people/people.parquet") == []


def test_a_view_is_told_from_a_table_without_rows(tmp_path: Path) -> None:
    files = {
        "pipelines/seen.sql": "SELECT 1 AS one",
        "pipelines/configs/seen.yml": "pipeline: seen\nmaterialization: view\n",
        "pipelines/none.sql": "SELECT * FROM {{ ref('seen') }} WHERE one > 1",
    }
    demo = project(tmp_path, files)
    result = run(demo)
    assert {node.name: (node.rows, node.materialization) for node in result.nodes} == {
        "seen": (0, "view"),
        "none": (0, None),
    }
    table = invoke("runs", "show", project=demo).out.splitlines()
    assert [line.split()[:4] for line in table if line.startswith("none")] == [["none", "Pipeline", "success", "0"]]
    (shown,) = (line.split() for line in table if line.startswith("seen"))
    assert (shown[:3], shown[-1], len(shown)) == (["seen", "Pipeline", "success"], "view", 5)


def test_a_run_warns_in_the_words_of_validate(tmp_path: Path) -> None:
    demo = project(tmp_path, {"pipelines/lonely.sql": "SELECT 1 AS one"})
    warned = invoke("validate", project=demo).err.splitlines()[-2:]
    assert warned[0].startswith("warning PZ0223: ")
    assert "ref('lonely')" in warned[1]
    assert invoke("run", "--all", project=demo).out.splitlines()[:2] == warned
    _, events = events_of(demo)
    assert [event["hint"] for event in events if event["event"] == "notice"] == [warned[1].removeprefix("hint: ")]


@pytest.mark.parametrize("sink", ["'lake', 'o', strategy: 'replace'", "'db', 'o', strategy: 'replace'"])
def test_what_is_wrong_in_one_statement_is_blamed_on_what_is_wrong(sink: str, tmp_path: Path) -> None:
    source = "{{ source('files', 'people', columns: {id: 'int', name: 'varchar'}) }}"
    files = {
        "connections.yml": CONNECTIONS + "db:\n  connector: duckdb\n  path: db.duckdb\n",
        "data/people.csv": "id,name\n1,a\nx,b\n",
        "pipelines/p.sql": f"INSERT INTO {{{{ sink({sink}) }}}}\nSELECT * FROM {source}",
    }
    demo = project(tmp_path, files)
    assert set(errors(run(demo)).values()) == {
        (
            "PZ0722 file 'people.csv', line 3, column 'id': a value does not fit the type INTEGER\n"
            "hint: declare it as varchar in `columns` and convert it in the SQL, such as CAST(trim(id) AS INTEGER); "
            "or correct the file"
        )
    }
    (tmp_path / "data/people.csv").write_text("id,name\n1,a,3\n")
    assert {text.split("\n")[0] for text in errors(run(demo)).values()} == {
        "PZ0722 file 'people.csv', line 2: 3 values where the header has 2"
    }
    (tmp_path / "data/people.csv").write_text("id,name\n1,a\n")
    sql = tmp_path / "pipelines/p.sql"
    sql.write_text(sql.read_text().replace("SELECT *", "SELECT name::int AS n"))
    (message,) = set(errors(run(demo)).values())
    assert message.startswith(
        "PZ0501 the SQL of pipeline 'p' (pipelines/p.sql:2)"
    )  # DuckDB 2 does not tell it from the write
    assert " fails on a row: Conversion Error: Could not convert string '***' to INT32" in message


@pytest.mark.parametrize("other", ["./w.duckdb", "pipelines/../w.duckdb", "link.duckdb"])
def test_two_connections_may_lead_to_one_database_file(tmp_path: Path, other: str) -> None:
    """One reads and one writes: the file is attached once, for writing."""
    (tmp_path / "link.duckdb").symlink_to("w.duckdb")
    files = {
        "connections.yml": f"a:\n  connector: duckdb\n  path: w.duckdb\nb:\n  connector: duckdb\n  path: {other}\n",
        "pipelines/p.sql": "INSERT INTO {{ sink('b', 'copy', strategy: 'replace') }} SELECT * FROM {{ source('a', 't') }}",
        "pipelines/q.sql": "INSERT INTO {{ sink('a', 'more', strategy: 'append') }} SELECT * FROM {{ source('b', 't') }}",
    }
    demo = project(tmp_path, files)
    with duckdb.connect(tmp_path / "w.duckdb") as file:
        file.execute("CREATE TABLE t AS SELECT 7 AS n")
    assert errors(run(demo)) == {}
    assert errors(run(demo)) == {}
    with duckdb.connect(tmp_path / "w.duckdb") as file:
        assert file.execute("SELECT * FROM copy").fetchall() == [(7,)]
        assert file.execute("SELECT * FROM more").fetchall() == [(7,), (7,)]


def test_one_of_two_connections_alone_may_write_whatever_name_its_file_has(tmp_path: Path) -> None:
    files = {
        "connections.yml": "a:\n  connector: duckdb\n  path: w.duckdb\nb:\n  connector: duckdb\n  path: link.duckdb\n",
        "pipelines/p.sql": "INSERT INTO {{ sink('b', 'copy', strategy: 'replace') }} SELECT * FROM {{ source('a', 't') }}",
    }
    demo = project(tmp_path, files)
    with duckdb.connect(tmp_path / "w.duckdb") as file:
        file.execute("CREATE TABLE t AS SELECT 7 AS n")
    link = tmp_path / "link.duckdb"
    link.symlink_to("w.duckdb")
    assert errors(run(demo)) == {}
    link.unlink()
    link.hardlink_to(tmp_path / "w.duckdb")
    with pytest.raises(ProjectError, match=r"2 names \(hard links\)") as refused:
        run(demo)
    assert refused.value.problems[0].code is Code.PZ0724


def test_a_path_through_a_link_and_back_is_another_place(tmp_path: Path) -> None:
    """The state of one file must not hold for another that the text alone takes for the same."""
    files = {
        "data/t.csv": "id\n1\n5\n",
        "other/data/t.csv": "id\n2\n9\n",
        "pipelines/p.sql": "INSERT INTO {{ sink('lake', 't', strategy: 'append', duplicates: 'accept') }} SELECT * FROM "
        "{{ source('files', 't', columns: {id: 'int'}, sync: {mode: 'incremental', cursor: 'id'}) }}",
    }
    assert errors(run(project(tmp_path, files))) == {}
    (tmp_path / "other/sub").mkdir()
    (tmp_path / "link").symlink_to("other/sub")
    with pytest.raises(StateError, match="another source location"):
        run(project(tmp_path, {"connections.yml": CONNECTIONS.replace("root: data", "root: link/../data")}))


def test_a_watermark_does_not_hold_for_another_path_of_the_dataset(tmp_path: Path) -> None:
    """Else what the other files hold below it would never be read, without a word."""
    sql = (
        "INSERT INTO {{ sink('lake', 't', strategy: 'append', duplicates: 'accept') }} SELECT * FROM "
        "{{ source('files', 't', path: '%s', columns: {id: 'int'}, sync: {mode: 'incremental', cursor: 'id'%s}) }}"
    )
    files = {"data/a/t.csv": "id\n1\n5\n", "data/b/t.csv": "id\n2\n9\n", "pipelines/p.sql": sql % ("a/*.csv", "")}
    assert errors(run(project(tmp_path, files))) == {}
    assert errors(run(project(tmp_path, {"pipelines/p.sql": sql % ("./a/*.csv", "")}))) == {}
    with pytest.raises(StateError, match="when it read another path") as refused:
        run(project(tmp_path, {"pipelines/p.sql": sql % ("b/*.csv", "")}))
    assert refused.value.code is Code.PZ0705
    assert errors(run(project(tmp_path, {"pipelines/p.sql": sql % ("b/*.csv", ", start: 'from_state'")}))) == {}
    assert errors(run(project(tmp_path, {"pipelines/p.sql": sql % ("b/*.csv", "")}))) == {}, (
        "the state is of the new path now"
    )


def test_a_dataset_with_wrong_options_stops_only_the_flow_that_reads_it(tmp_path: Path) -> None:
    good = "INSERT INTO {{ sink('lake', 't', strategy: 'replace') }} SELECT * FROM {{ source('files', 't') }}"
    bad = "INSERT INTO {{ sink('lake', 'u', strategy: 'replace') }} SELECT * FROM {{ source('files', 'u', %s) }}"
    for options in ("format: 'zip'", "format: 'parquet', delimiter: ';'"):
        files = {"data/t.csv": "id\n1\n", "pipelines/good.sql": good, "pipelines/bad.sql": bad % options}
        assert errors(run(project(tmp_path, files), "good")) == {}


def test_a_root_is_one_place_however_it_is_spelled(tmp_path: Path) -> None:
    """What is stored for ``out`` still belongs to ``./out/``."""
    files = {
        "data/t.csv": "id,at\n1,2024-01-01\n2,2024-01-02\n",
        "pipelines/p.sql": "INSERT INTO {{ sink('lake', 't', strategy: 'append', duplicates: 'accept') }} SELECT * FROM "
        "{{ source('files', 't', columns: {id: 'int', at: 'date'}, sync: {mode: 'incremental', cursor: 'at'}) }}",
    }
    demo = project(tmp_path, files)
    assert errors(run(demo)) == {}
    respelled = project(tmp_path, {"connections.yml": CONNECTIONS.replace("root: data", "root: ./data/")})
    result = run(respelled)
    assert errors(result) == {}
    assert [load.rows for load in result.nodes if load.kind == "SourceLoad"] == [0], "read from the watermark on"


def test_what_a_node_cannot_let_go_of_fails_the_node_and_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(context: NodeContext) -> None:
        raise RuntimeError("does not let go")

    monkeypatch.setattr(NodeContext, "release", refuse)
    files = {
        "data/people.csv": PEOPLE,
        "pipelines/people.sql": COPY,
        "project.yml": "name: demo\nversion: '1'\nengine:\n  force_universal: true\n",
    }
    result = run(project(tmp_path, files))
    assert (result.status, result.exit_code) == (RunStatus.COMPLETED_WITH_FAILURES, 1)


@pytest.mark.parametrize(
    ("days", "told"),
    [
        (("01/02/2024", "03/04/2024"), 1),
        (("01/02/2024", "13/02/2024"), 0),
        (("2024-05-01", "2024-05-11"), 0),
        (("01/02/2024 10:00:00", "02/02/2024 11:00:00"), 1),
    ],
)
@pytest.mark.parametrize("staged", [True, False])
def test_a_date_that_may_be_read_in_two_ways_is_told_once_on_every_way(
    tmp_path: Path, days: tuple[str, ...], told: int, staged: bool
) -> None:
    files = {"data/people.csv": "\n".join(["id,day", *(f"{n},{day}" for n, day in enumerate(days)), ""])}
    if staged:
        files["pipelines/configs/people.yml"] = "pipeline: people\nchecks:\n  - not_null: [id]\n"
    demo = project(tmp_path, {**files, "pipelines/people.sql": COPY})
    result, events = events_of(demo)
    assert {node.fused for node in result.nodes} == {None if staged else True}
    codes = [event.get("code") for event in events]
    assert codes.count("PZ0524") == told
    answer = invoke("run", "--all", project=demo)
    assert (answer.out + answer.err).count("ISO dates") == told
