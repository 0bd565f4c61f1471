"""Sidecars: materialisation, tags, and the six checks with everything that can be wrong with them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from projects import loaded, places, refused
from pz.project.model import CheckDecl, CheckKind, Location, Materialization, PipelineDecl

FILE = "pipelines/configs/orders.yml"


def files(body: str) -> dict[str, str]:
    return {"pipelines/orders.sql": "select 1", FILE: f"pipeline: orders\n{body}"}


def pipeline(tmp_path: Path, body: str) -> PipelineDecl:
    return loaded(tmp_path, files(body)).project.pipelines["orders"]


def checks(tmp_path: Path, *items: str) -> tuple[CheckDecl, ...]:
    return pipeline(tmp_path, "checks:\n" + "".join(f"  - {item}\n" for item in items)).checks


def test_without_a_sidecar_a_pipeline_is_a_table(tmp_path: Path) -> None:
    project = loaded(tmp_path, {"pipelines/a/b/orders.sql": "select 1\r\nfrom x  \n\n"}).project
    assert project.pipelines["orders"] == PipelineDecl(
        "orders", "select 1\nfrom x", Location("pipelines/a/b/orders.sql")
    )


@pytest.mark.parametrize(
    ("body", "materialization", "tags"),
    [
        ("materialization: view\ntags: [a, b]\n", Materialization.VIEW, ("a", "b")),
        ("materialization: ephemeral\ntags: daily\n", Materialization.EPHEMERAL, ("daily",)),
        ("materialization:\ntags:\nchecks:\n", Materialization.TABLE, ()),
    ],
)
def test_materialization_and_tags(
    tmp_path: Path, body: str, materialization: Materialization, tags: tuple[str, ...]
) -> None:
    result = pipeline(tmp_path, body)
    assert (result.materialization, result.tags) == (materialization, tags)


def test_all_types_of_checks_are_read(tmp_path: Path) -> None:
    items = [
        "not_null: [a, b]",
        "not_null: {column: c, sample_values: false}",
        "unique: id",
        "unique: {columns: [a, b]}",
        "row_count: {min: 0, max: 5}",
        "freshness: {column: at, max_age: 2d}",
        "accepted_values: {column: s, values: [a, 1, 1.5, true, '1']}",
        'custom_sql: {name: no_gaps, sql: "select 1; -- end"}',
    ]
    assert checks(tmp_path, *items) == (
        CheckDecl(CheckKind.NOT_NULL, ("a", "b"), location=Location(FILE, 3)),
        CheckDecl(CheckKind.NOT_NULL, ("c",), sample_values=False, location=Location(FILE, 4)),
        CheckDecl(CheckKind.UNIQUE, ("id",), location=Location(FILE, 5)),
        CheckDecl(CheckKind.UNIQUE, ("a", "b"), location=Location(FILE, 6)),
        CheckDecl(CheckKind.ROW_COUNT, minimum=0, maximum=5, location=Location(FILE, 7)),
        CheckDecl(CheckKind.FRESHNESS, ("at",), max_age=timedelta(days=2), location=Location(FILE, 8)),
        CheckDecl(CheckKind.ACCEPTED_VALUES, ("s",), values=("a", 1, 1.5, True, "1"), location=Location(FILE, 9)),
        CheckDecl(CheckKind.CUSTOM_SQL, name="no_gaps", sql="select 1", location=Location(FILE, 10)),
    )


@pytest.mark.parametrize(
    ("item", "hint"),
    [
        ("not_null", "one of not_null"),
        ("[not_null]", "one of not_null"),
        ("{not_null: [a], unique: [a]}", "one of not_null"),
        ("nut_null: [a]", "did you mean 'not_null'?"),
        ("range: [a]", "the types are not_null"),
        ("not_null:", "column"),
        ("not_null: []", ""),
        ("not_null: {}", "add column"),
        ("not_null: {column: a, columns: [b]}", "keep one"),
        ("not_null: {column: ''}", ""),
        ("not_null: ['']", ""),
        ("not_null: {columns: [a, a]}", ""),
        ("not_null: {columns: [[a]]}", ""),
        ("not_null: {colum: a, column: b}", "did you mean 'column'?"),
        ("not_null: {column: a, sample_values: yes}", "true or false"),
        ("row_count: 5", "min"),
        ("row_count: {}", "at least one"),
        ("row_count: {min: 5, max: 4}", ""),
        ("row_count: {min: -1}", ""),
        ("row_count: {min: 1.5}", ""),
        ("row_count: {min: '1'}", "without quotes"),
        ("freshness: {column: a}", "max_age"),
        ("freshness: {max_age: 1d}", "add column"),
        ("freshness: {column: a, max_age: 0s}", "30s"),
        ("freshness: {column: a, max_age: soon}", "30s"),
        ("freshness: {columns: [a, b], max_age: 1d}", "one check per column"),
        ("freshness: [a]", "max_age"),
        ("accepted_values: {column: a}", "values"),
        ("accepted_values: {column: a, values: []}", ""),
        ("accepted_values: {column: a, values: x}", ""),
        ("accepted_values: {column: a, values: [[1]]}", ""),
        ("accepted_values: {values: [1]}", "add column"),
        ("custom_sql: {name: a}", "sql"),
        ("custom_sql: {sql: select 1}", "name"),
        ("custom_sql: {name: No, sql: select 1}", "lower-case"),
        ("custom_sql: {name: a, sql: '-- nothing'}", ""),
        ("custom_sql: {name: a, sql: select 1, severity: warn}", "known here"),
    ],
)
def test_a_faulty_check_is_reported_with_its_line(tmp_path: Path, item: str, hint: str) -> None:
    (problem,) = refused(tmp_path, files(f"checks:\n  - not_null: [ok]\n  - {item}\n"))
    assert (problem.code, problem.where) == ("PZ0113", f"{FILE}:4")
    assert hint in problem.advice


def test_repeated_checks_and_names_are_refused(tmp_path: Path) -> None:
    items = [
        "not_null: [a]",
        "not_null: {column: a}",
        "accepted_values: {column: a, values: [1]}",
        "accepted_values: {column: a, values: ['1']}",
        "custom_sql: {name: x, sql: select 1}",
        "custom_sql: {name: x, sql: select 2}",
    ]
    problems = refused(tmp_path, files("checks:\n" + "".join(f"  - {item}\n" for item in items)))
    assert places(problems) == [("PZ0113", f"{FILE}:4"), ("PZ0113", f"{FILE}:8")]


def test_faulty_checks_come_together(tmp_path: Path) -> None:
    problems = refused(tmp_path, files("checks:\n  - unique: {}\n  - row_count: {}\n  - nothing: {}\n"))
    assert places(problems) == [("PZ0113", f"{FILE}:3"), ("PZ0113", f"{FILE}:4"), ("PZ0113", f"{FILE}:5")]


@pytest.mark.parametrize(
    ("body", "code", "line", "hint"),
    [
        ("materialization: tabel", "PZ0134", 2, "did you mean 'table'?"),
        ("materialization: incremental", "PZ0134", 2, "ephemeral"),
        ("material: table", "PZ0101", 2, "known here"),
        ("check: []", "PZ0101", 2, "did you mean 'checks'?"),
        ("checks: {a: b}", "PZ0113", 2, ""),
        ("tags: [[a]]", "PZ0101", 2, ""),
        ("tags: [a, a]", "PZ0101", 2, ""),
    ],
)
def test_a_faulty_sidecar_is_reported(tmp_path: Path, body: str, code: str, line: int, hint: str) -> None:
    (problem,) = refused(tmp_path, files(body + "\n"))
    assert (problem.code, problem.where) == (code, f"{FILE}:{line}")
    assert hint in problem.advice


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("pipeline: ordes\n", "PZ0111", "did you mean 'orders'?"),
        ("pipeline: other\n", "PZ0111", "pipelines/other.sql"),
        ("pipeline: Orders\n", "PZ0111", "did you mean 'orders'?"),
        ("tags: [a]\n", "PZ0101", "add pipeline"),
        ("pipeline: [a]\n", "PZ0101", ""),
        ("", "PZ0101", "add pipeline"),
    ],
)
def test_a_sidecar_names_its_pipeline(tmp_path: Path, text: str, code: str, hint: str) -> None:
    (problem,) = refused(tmp_path, {**files(""), "pipelines/configs/x.yml": text} | {FILE: "pipeline: orders\n"})
    assert (problem.code, problem.file) == (code, "pipelines/configs/x.yml")
    assert hint in problem.advice


def test_a_pipeline_has_one_sidecar(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, {**files(""), "pipelines/configs/z.yml": "tags: [a]\npipeline: orders\n"})
    assert (problem.code, problem.where) == ("PZ0101", "pipelines/configs/z.yml:2")
    assert FILE in problem.message
