"""Checks of a run: what they judge, whatever the type of the column, and what a failed one tells."""

from __future__ import annotations

from pathlib import Path

import pytest

import pz
from running import errors, project, run

COLUMNS = (
    "n::int AS n, t, d::date AS d, s::timestamptz AS seen, n::decimal(5, 2) AS price, s::timestamptz::varchar AS text"
)
VALUES = "(VALUES (1, '1', '2024-01-01', '2024-01-01 10:00:00+00'), (2, 'b', NULL, NULL)) AS v(n, t, d, s)"


def failed(tmp_path: Path, checks: str, query: str = f"SELECT {COLUMNS} FROM {VALUES}") -> dict[str, str]:
    """The messages of the checks that fail, by name."""
    files = {"pipelines/p.sql": query, "pipelines/configs/p.yml": f"pipeline: p\nchecks:\n{checks}"}
    return errors(run(project(tmp_path, files)))


@pytest.mark.parametrize(
    ("column", "accepted", "rejected"),
    [
        ("t", "[1, b, true]", None),
        ("t", "['1', 2.5]", "{t=b}"),
        ("n", "['1', '2', x]", None),
        ("n", "[1, '1.5']", "{n=2}"),
        ("n", "[x]", "{n=1}"),
        ("price", "['1', 2.0]", None),
        ("d", "['2024-01-01', nothing]", None),
        ("d", "[5]", "{d=2024-01-01}"),
        ("seen", "['2024-01-01 11:00:00+01']", None),
        ("seen", "['2024-01-01']", "{seen=2024-01-01 10:00:00+00}"),
    ],
)
def test_accepted_values_are_compared_in_the_type_of_the_column(
    tmp_path: Path, column: str, accepted: str, rejected: str | None
) -> None:
    found = failed(tmp_path, f"  - accepted_values: {{ column: {column}, values: {accepted} }}\n")
    if rejected is None:
        assert not found
    else:
        (message,) = found.values()
        assert "PZ0510" in message
        assert rejected in message


def test_samples_show_values_of_every_type_as_duckdb_spells_them(tmp_path: Path) -> None:
    checks = "  - custom_sql: { name: every, sql: SELECT * FROM staging.p ORDER BY n }\n"
    (message,) = failed(tmp_path, checks).values()
    assert "{n=1, t=1, d=2024-01-01, seen=2024-01-01 10:00:00+00, price=1.00, text=2024-01-01 10:00:00+00}" in message
    assert "{n=2, t=b, d=NULL, seen=NULL, price=2.00, text=NULL}" in message


def test_a_long_value_is_cut_in_a_sample(tmp_path: Path) -> None:
    found = failed(tmp_path, "  - unique: [t]\n", "SELECT repeat('x', 1000000) AS t FROM range(2)")
    (message,) = found.values()
    assert "(1000000 characters)" in message
    assert len(message) < 2_000


def test_the_newest_instant_is_told(tmp_path: Path) -> None:
    (message,) = failed(tmp_path, "  - freshness: { column: seen, max_age: 1d }\n").values()
    assert "newest: 2024-01-01 10:00:00+00" in message


def test_freshness_of_text_is_refused_before_the_run_and_where_the_types_show_late(tmp_path: Path) -> None:
    checks = "  - freshness: { column: text, max_age: 1d }\n"
    with pytest.raises(pz.ProjectError) as refused:
        failed(tmp_path / "early", checks)
    assert [problem.code for problem in refused.value.problems] == ["PZ0401"]
    assert "'text', which is VARCHAR" in str(refused.value)

    late = tmp_path / "late"
    files = {
        "connections.yml": "here:\n  connector: localfiles\n  entities:\n    f: { read: { path: f.csv } }\n",
        "f.csv": "text\nsoon\n",
        "pipelines/p.sql": "SELECT * FROM {{ source('here', 'f') }}",
        "pipelines/configs/p.yml": f"pipeline: p\nchecks:\n{checks}",
    }
    (message,) = errors(run(project(late, files))).values()
    assert "PZ0401" in message
    assert "'text', which is VARCHAR" in message


@pytest.mark.parametrize("sql", ["DROP TABLE staging.p", "SELECT 1; SELECT 2", "CREATE TABLE staging.x AS SELECT 1"])
def test_a_custom_check_is_one_query(tmp_path: Path, sql: str) -> None:
    with pytest.raises(pz.ProjectError) as refused:
        failed(tmp_path, f"  - custom_sql: {{ name: a, sql: '{sql}' }}\n")
    (problem,) = refused.value.problems
    assert (problem.code, problem.where) == ("PZ0401", "pipelines/configs/p.yml:3")
    assert problem.hint == "a check is one query, whose rows are the violations"
