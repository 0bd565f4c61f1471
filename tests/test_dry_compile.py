"""Pipelines that do not bind are found without any data, as far as contracts reach."""

from __future__ import annotations

from pathlib import Path

from graph_projects import compiled
from pz.errors import Problem, Severity
from pz.graph.dry_compile import dry_compile

SOURCE = "{{ source('crm', 'orders', columns: {id: 'int', Total: 'decimal(12,2)', at_: 'timestamp'}) }}"
OUT = "INSERT INTO {{ sink('lake', 'out', duplicates: 'accept') }}\n"


def tried(folder: Path, files: dict[str, str]) -> list[tuple[Severity, str, str]]:
    return [(p.severity, p.where, p.message) for p in problems(folder, files)]


def problems(folder: Path, files: dict[str, str]) -> tuple[Problem, ...]:
    return dry_compile(compiled(folder, files).graph)


def test_a_project_that_binds_is_silent(tmp_path: Path) -> None:
    files = {
        "stg": f"SELECT id, total * 2 AS double, at_ FROM {SOURCE}",
        "view": "SELECT sum(double) AS s FROM {{ ref('stg') }}",
        "pipelines/configs/view.yml": "pipeline: view\nmaterialization: view",
        "e": "SELECT s FROM {{ ref('view') }}",
        "pipelines/configs/e.yml": "pipeline: e\nmaterialization: ephemeral",
        "out": OUT + "SELECT s + 0.5 AS s FROM {{ ref('e') }} -- {{ run_id }}",
        "pipelines/configs/out.yml": "pipeline: out\nchecks: [{custom_sql: {name: a, sql: 'from staging.out where s < 0;'}}]",
    }
    assert problems(tmp_path, files) == ()


def test_an_unknown_column_is_an_error_at_its_line_with_duckdbs_suggestion(tmp_path: Path) -> None:
    files = {"p": OUT + f"SELECT id,\n       totl\nFROM {SOURCE}"}
    ((severity, where, message),) = tried(tmp_path, files)
    assert (severity, where) == (Severity.ERROR, "pipelines/p.sql:3")
    assert 'Referenced column "totl" not found' in message
    assert "Total" in message
    assert "LINE" not in message


def test_what_is_below_a_failure_is_not_echoed(tmp_path: Path) -> None:
    files = {"p": f"SELECT nope FROM {SOURCE}", "q": OUT + "SELECT nope FROM {{ ref('p') }}"}
    assert [where for _, where, _ in tried(tmp_path, files)] == ["pipelines/p.sql:1"]


def test_errors_of_independent_pipelines_come_together(tmp_path: Path) -> None:
    files = {"p": OUT + "SELECT nope(1)", "q": "SELECT abs(DATE '2024-01-01') AS a", "r": "SELECT * FROM nowhere"}
    found = tried(tmp_path, files)
    assert sorted(where for severity, where, _ in found if severity is Severity.ERROR) == [
        "pipelines/p.sql:2", "pipelines/q.sql:1", "pipelines/r.sql:1",
    ]  # fmt: skip


def test_a_dataset_without_a_contract_leaves_one_note_for_all_that_is_below(tmp_path: Path) -> None:
    files = {
        "p": "SELECT nope FROM {{ source('crm', 'orders') }}",
        "q": OUT + "SELECT * FROM {{ ref('p') }}",
        "pipelines/configs/q.yml": "pipeline: q\nchecks: [{custom_sql: {name: a, sql: 'select nope'}}, {not_null: [id]}]",
    }
    found = problems(tmp_path, files)
    assert [(p.severity, p.message, p.hint) for p in found] == [
        (
            Severity.NOTE,
            "pipeline 'p' and 2 more: the SQL is not tried before the run, because dataset 'crm.orders' declares no columns",
            "declare `columns:` to have it checked here",
        )
    ]


def test_columns_of_checks_and_merge_keys_must_be_there(tmp_path: Path) -> None:
    sink = "{{ sink('lake', 'out', strategy: 'merge', keys: ['idd', 'TOTAL'], dedupe_by: 'at') }}"
    checks = "checks: [{not_null: [id, totl]}, {unique: [ID]}, {freshness: {column: at, max_age: 1d}}]"
    files = {
        "p": f"INSERT INTO {sink}\nSELECT * FROM {SOURCE}",
        "pipelines/configs/p.yml": f"pipeline: p\n{checks}",
    }
    found = {(p.where, p.message, p.hint) for p in problems(tmp_path, files)}
    assert {message.partition(" of '")[0] for _, message, _ in found} == {
        "merge key 'idd'", "merge key 'TOTAL'", "dedupe_by 'at'", "column 'totl'", "column 'at'",
    }  # fmt: skip
    hints = {message.partition(" of '")[0]: hint for _, message, hint in found}
    assert hints["merge key 'idd'"] == "did you mean 'id'?"
    assert hints["column 'totl'"] == "did you mean 'Total'?"
    assert hints["merge key 'TOTAL'"] == "write 'Total'", "a run would refuse it, because a target may tell case apart"
    assert sum(message.endswith("is not a column of pipeline 'p'") for _, message, _ in found) == len(found) - 1


def test_a_table_that_no_call_names_gets_a_hint_how_to_read_it(tmp_path: Path) -> None:
    files = {"p": f"SELECT id FROM {SOURCE}", "q": OUT + "SELECT * FROM P", "r": "SELECT * FROM foo"}
    hints = {p.where: p.hint for p in problems(tmp_path, files)}
    assert hints["pipelines/q.sql:2"] == "write {{ ref('p') }} in its place"
    assert hints["pipelines/r.sql:1"] is not None
    assert "source('connection', 'entity')" in hints["pipelines/r.sql:1"]


def test_files_and_variables_around_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "seed.csv").write_text("a\n1\n")
    outside = tmp_path / "seed.csv"
    files = {
        "p": OUT + f"SELECT * FROM read_csv('{outside}')",
        "q": "SELECT * FROM 'x.parquet'",
        "r": "SELECT * FROM outside",
    }
    found = {p.where: p for p in problems(tmp_path, files)}
    assert found["pipelines/p.sql"].severity is Severity.NOTE
    assert "reads files by itself" in found["pipelines/p.sql"].message
    assert found["pipelines/q.sql"].severity is Severity.NOTE
    assert found["pipelines/r.sql:1"].severity is Severity.ERROR


def test_a_watermark_has_the_type_of_its_cursor(tmp_path: Path) -> None:
    where = "WHERE at_ >= coalesce({{ watermark('crm', 'orders') }}, '2024-01-01') - INTERVAL 2 HOUR"
    assert problems(tmp_path / "1", {"p": OUT + f"SELECT id FROM {SOURCE} {where}"}) == ()
    broken = OUT + f"SELECT id FROM {SOURCE}\n{where} AND\n nope = 1"
    assert [w for _, w, _ in tried(tmp_path / "2", {"p": broken})] == ["pipelines/p.sql:4"]


def test_a_custom_check_that_does_not_bind_is_an_error_at_its_place(tmp_path: Path) -> None:
    files = {
        "p": OUT + "SELECT 1 AS id",
        "pipelines/configs/p.yml": "pipeline: p\nchecks:\n  - custom_sql: { name: a, sql: select nope from staging.p }",
    }
    ((severity, where, message),) = tried(tmp_path, files)
    assert (severity, where) == (Severity.ERROR, "pipelines/configs/p.yml:3")
    assert "check 'check_p_a'" in message
