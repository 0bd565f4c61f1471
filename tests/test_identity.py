"""An id changes with what a node does and with everything above it, and with nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from graph_projects import compiled
from pz.graph.identity import NotCanonical, canonical_json
from pz.graph.model import Graph

SQL = {
    "stg": "SELECT id, n FROM {{ source('crm', 'orders', columns: {id: 'int', n: 'int'},\n"
    "  sync: {mode: 'incremental', cursor: 'n'}) }}",
    "p": "INSERT INTO {{ sink('lake', 'out', strategy: 'merge', keys: ['id'], path: 'x') }}\nSELECT * FROM {{ ref('stg') }}",
    "other": "INSERT INTO {{ sink('lake', 'other') }}\nSELECT 1 AS one",
    "pipelines/configs/p.yml": "pipeline: p\nchecks: [{not_null: {columns: [id], sample_values: true}}]",
}
LINE = ["src_crm__orders", "stg", "p", "check_p_not_null_id", "lake.out"]


def ids(graph: Graph) -> dict[str, str]:
    return {node.name: node.id for node in graph.nodes}


def changed(tmp_path: Path, name: str, old: str, new: str) -> list[str]:
    """The nodes whose ids an edit changes."""
    assert old in SQL[name]
    before = ids(compiled(tmp_path / "before", SQL).graph)
    after = ids(compiled(tmp_path / "after", {**SQL, name: SQL[name].replace(old, new)}).graph)
    assert before.keys() == after.keys()
    return [node for node in before if before[node] != after[node]]


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("stg", "columns:", "query: 'q', columns:", LINE),
        ("stg", "n: 'int'", "n: 'bigint'", LINE),
        ("stg", "cursor: 'n'", "cursor: 'id'", LINE),
        ("stg", "cursor: 'n'", "cursor: 'n', lookback: '3'", LINE),
        ("stg", "SELECT id, n", "SELECT n, id", LINE[1:]),
        ("p", "SELECT *", "SELECT id", LINE[2:]),
        ("p", "keys: ['id']", "keys: ['id', 'n']", LINE[4:]),
        ("p", "keys: ['id']", "keys: ['id'], dedupe_by: 'n'", LINE[4:]),
        ("p", "path: 'x'", "path: 'y'", LINE[4:]),
        ("p", "path: 'x'", "path: 'x', schema_policy: 'additive'", LINE[4:]),
        ("pipelines/configs/p.yml", "true}", "false}", []),
        ("pipelines/configs/p.yml", "pipeline: p", "pipeline: p\ntags: [daily]", []),
        ("stg", "cursor: 'n'}", "cursor: 'n'}, retry: {max_attempts: 9}", []),
        ("p", "path: 'x'", "retry: {max_attempts: 9}, path: 'x'", []),
        ("p", "ref('stg') }}", "ref('stg') }} -- a note at the end", []),
        ("p", "ref('stg') }}", "ref('stg') }};", []),
        ("p", "SELECT *", "-- all\n/* of it */ SELECT  *", []),
        ("p", "path: 'x') }}\n", "path: 'x'\n) }}\n\n", []),
        ("stg", "id, n FROM", "id , n\nFROM", []),
        ("stg", "id, n FROM", "id, '--', n FROM", LINE[1:]),
        ("other", "1 AS one", "2 AS one", ["other", "lake.other"]),
    ],
)
def test_an_edit_changes_the_ids_below_it(name: str, old: str, new: str, expected: list[str], tmp_path: Path) -> None:
    assert sorted(changed(tmp_path, name, old, new)) == sorted(expected)


def test_the_place_of_a_connection_is_no_part_of_an_id(tmp_path: Path) -> None:
    one = compiled(tmp_path / "1", SQL).graph
    elsewhere = "crm: { connector: duckdb, path: other.db }\nlake: { connector: localfiles, root: /tmp/x }\n"
    assert ids(one) == ids(compiled(tmp_path / "2", {**SQL, "connections.yml": elsewhere}).graph)


def test_a_runs_own_constants_are_no_part_of_an_id(tmp_path: Path) -> None:
    sql = "INSERT INTO {{ sink('lake', 'o') }} SELECT '{{ run_id }}' AS r, '{{ run_started_at }}' AS s"
    assert ids(compiled(tmp_path / "1", {"p": sql}).graph) == ids(compiled(tmp_path / "2", {"p": sql}).graph)


def test_a_bound_in_sql_is_part_of_the_loads_id(tmp_path: Path) -> None:
    sql = (
        "INSERT INTO {{ sink('lake', 'o', duplicates: 'accept') }}\n"
        "SELECT n FROM {{ source('crm', 't') }} WHERE n > {{ watermark('crm', 't') }} - 1"
    )
    one = ids(compiled(tmp_path / "1", {"p": sql}).graph)
    two = ids(compiled(tmp_path / "2", {"p": sql.replace("- 1", "- 2")}).graph)
    assert one["src_crm__t"] != two["src_crm__t"]


def test_equal_mappings_have_one_spelling() -> None:
    assert canonical_json({"b": [1, 2.5, True, None], "a": {"y": "é", "x": 10**30}}) == (
        '{"a":{"x":1000000000000000000000000000000,"y":"é"},"b":[1,2.5,true,null]}'
    )
    assert canonical_json({"a": 1}) != canonical_json({"a": "1"})
    assert canonical_json({"a": 1}) != canonical_json({"a": True})


@pytest.mark.parametrize("value", [math.inf, math.nan, object(), {1: 2}, {"x": [b""]}])
def test_what_has_no_exact_form_is_refused_by_name(value: object) -> None:
    with pytest.raises(NotCanonical) as caught:
        canonical_json({"options": {"deep": value}})
    assert "deep" in caught.value.path
