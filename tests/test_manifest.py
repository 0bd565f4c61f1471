"""The manifest shows the whole graph as JSON, without anything from a connection's own options."""

from __future__ import annotations

import json
from pathlib import Path

from graph_projects import compiled
from pz.graph.manifest import compiled_sql, manifest

FILES = {
    "connections.yml": "crm: { connector: duckdb, path: x.db, password: hunter2 }\nlake: { connector: localfiles, root: out }\n",
    "stg": "SELECT * FROM {{ source('crm', 'orders', sync: {mode: 'incremental', cursor: 'at_'},"
    " columns: {id: 'int', at_: 'date'}) }}",
    "p": "INSERT INTO {{ sink('lake', 'out', strategy: 'merge', keys: ['id'], retry: {base_delay: '2s'}) }}\n"
    "SELECT * FROM {{ ref('stg') }}",
    "pipelines/configs/p.yml": "pipeline: p\nchecks: [{freshness: {column: at_, max_age: 2d}}, {row_count: {min: 0}}]",
}


def test_the_manifest_survives_json_and_names_every_edge(tmp_path: Path) -> None:
    graph = compiled(tmp_path, FILES).graph
    text = json.dumps(manifest(graph))
    back = json.loads(text)
    assert back == manifest(graph)
    assert [node["name"] for node in back["nodes"]] == [node.name for node in graph.nodes]
    assert {(e["from"], e["to"]) for e in back["edges"]} == {(p, n.id) for n in graph.nodes for p in n.parents}
    by_name = {node["name"]: node for node in back["nodes"]}
    assert by_name["src_crm__orders"]["config"]["read_shape"] == "incremental"
    assert by_name["lake.out"]["config"]["write"]["keys"] == ["id"]
    assert by_name["lake.out"]["config"]["write"]["retry"] == {"base_delay": 2.0}
    assert by_name["check_p_row_count"]["config"]["check"] == {"kind": "row_count", "minimum": 0}
    assert (by_name["lake.out"]["file"], by_name["lake.out"]["line"]) == ("pipelines/p.sql", 1)
    assert "hunter2" not in text
    assert "x.db" not in text


def test_compiled_sql_says_what_it_writes_and_reads_by(tmp_path: Path) -> None:
    texts = compiled_sql(compiled(tmp_path, FILES).graph)
    assert texts["stg"].splitlines()[1:] == [
        "-- reads crm.orders by cursor at_", "SELECT * FROM staging.src_crm__orders",
    ]  # fmt: skip
    assert "-- output lake.out: merge" in texts["p"].splitlines()
