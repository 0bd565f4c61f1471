"""A project compiles to one graph, or is refused with every error of the stage, each at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph_projects import CONNECTIONS, compiled, refused
from pz.connectors.contract import ReadShape
from pz.errors import Severity
from pz.graph.model import NodeKind, PipelineNode, Pushdown, SourceNode

ORDERS = "SELECT * FROM {{ source('crm', 'orders') }}"
OUT = "INSERT INTO {{ sink('lake', 'out', strategy: 'replace') }}\n"


def test_nodes_come_parents_first_with_ties_by_kind_and_name(tmp_path: Path) -> None:
    graph = compiled(
        tmp_path,
        {
            "stg": ORDERS,
            "b": "INSERT INTO [{{ sink('lake', 'x') }}, {{ sink('lake', 'a.y') }}]\nSELECT * FROM {{ ref('stg') }}",
            "a": OUT + "SELECT * FROM {{ ref('stg') }} JOIN {{ source('crm', 'shop.users') }} USING (id);",
            "pipelines/configs/any.yml": "pipeline: a\ntags: daily\nchecks: [{not_null: [id]}, {not_null: [id, n]}]",
        },
    ).graph
    assert [(n.kind, n.name) for n in graph.nodes] == [
        (NodeKind.SOURCE_LOAD, "src_crm__orders"),
        (NodeKind.SOURCE_LOAD, "src_crm__shop_users"),
        (NodeKind.PIPELINE, "stg"),
        (NodeKind.PIPELINE, "a"),
        (NodeKind.PIPELINE, "b"),
        (NodeKind.CHECK, "check_a_not_null_id"),
        (NodeKind.CHECK, "check_a_not_null_id_n"),
        (NodeKind.SINK_WRITE, "lake.a.y"),
        (NodeKind.SINK_WRITE, "lake.out"),
        (NodeKind.SINK_WRITE, "lake.x"),
    ]
    assert {len(node.id) for node in graph.nodes} == {16}
    assert [graph.by_id[p].name for p in graph.by_name[NodeKind.PIPELINE, "a"].parents] == [
        "src_crm__shop_users",
        "stg",
    ]
    assert len(graph.components()) == 1


def test_a_self_join_reads_its_dataset_once(tmp_path: Path) -> None:
    call = "{{ source('crm', 'orders', schema_hint: 'x') }}"
    graph = compiled(tmp_path, {"p": OUT + f"SELECT a.id FROM {call} a JOIN {call} b ON a.id = b.parent"}).graph
    (source,) = graph.sources()
    assert source.read.options == {"schema_hint": "x"}
    assert source.pushdown == Pushdown()


def test_a_declared_dataset_that_nobody_reads_is_no_node(tmp_path: Path) -> None:
    connections = CONNECTIONS + "  \nspare: { connector: duckdb, path: x.db, entities: { t: { read: } } }\n"
    assert compiled(tmp_path, {"connections.yml": connections, "p": OUT + "SELECT 1 AS id"}).graph.sources() == ()


def test_yaml_and_call_declare_alike(tmp_path: Path) -> None:
    in_yaml = (
        "crm:\n  connector: duckdb\n  path: crm.db\n  entities:\n    t: { read: { columns: { id: int }, query: q } }\n"
    )
    one = compiled(tmp_path / "1", {"connections.yml": in_yaml, "p": "SELECT * FROM {{ source('crm', 't') }}"})
    two = compiled(tmp_path / "2", {"p": "SELECT * FROM {{ source('crm', 't', columns: {id: 'int'}, query: 'q') }}"})
    assert one.graph.sources()[0].id == two.graph.sources()[0].id


def test_ephemeral_pipelines_are_inlined_and_their_reads_are_the_consumers(tmp_path: Path) -> None:
    files = {
        "e": "-- the body\nSELECT id, n FROM {{ source('crm', 'orders') }} WHERE n > 1;",
        "pipelines/configs/e.yml": "pipeline: e\nmaterialization: ephemeral",
        "p": OUT + "-- head\nWITH x AS (SELECT 1)\nSELECT id FROM {{ ref('e') }}",
    }
    graph = compiled(tmp_path, files).graph
    assert [n.name for n in graph.nodes] == ["src_crm__orders", "p", "lake.out"]
    pipeline = graph.by_name[NodeKind.PIPELINE, "p"]
    assert isinstance(pipeline, PipelineNode)
    assert '"__pz_cte__e" AS (' in pipeline.sql
    assert pipeline.file_line(pipeline.sql.count("\n") + 1) == 4
    assert graph.sources()[0].pushdown == Pushdown(("id", "n"), "((n > 1))")
    assert list(graph.ephemeral) == ["e"]
    files["e"] = files["e"].replace("n > 1", "n > 2")
    assert compiled(tmp_path, files).graph.by_name[NodeKind.PIPELINE, "p"].id != pipeline.id


def test_watermark_in_sql_makes_the_dataset_incremental(tmp_path: Path) -> None:
    sql = (
        "INSERT INTO {{ sink('lake', 'out', strategy: 'merge', keys: ['id']) }}\n"
        "SELECT id FROM {{ source('crm', 'orders', columns: {id: 'int', Changed: 'timestamp'}) }}\n"
        "WHERE changed >= {{ watermark('crm', 'orders') }} - INTERVAL 2 HOUR AND id > 3"
    )
    (source,) = compiled(tmp_path, {"p": sql}).graph.sources()
    assert source.declared_shape is ReadShape.INCREMENTAL
    assert source.read.sync.cursor == "Changed"
    assert [(b.floor, b.inclusive) for b in source.bounds] == [(True, True)]
    assert source.bounds[0].location is not None
    assert source.bounds[0].location.line == 3
    assert source.pushdown == Pushdown(("id", "Changed"), "((id > 3))")


def test_change_capture_pushes_nothing(tmp_path: Path) -> None:
    sql = (
        "INSERT INTO {{ sink('lake', 'out', strategy: 'merge', keys: ['id'], on_delete: 'delete') }}\n"
        "SELECT o.id, n + 1 AS n FROM {{ source('crm', 'orders', sync: {mode: 'cdc'}) }} o WHERE n > 1"
    )
    (source,) = compiled(tmp_path, {"p": sql}).graph.sources()
    assert source.declared_shape is ReadShape.CDC
    assert source.pushdown == Pushdown()


def test_columns_stay_whole_where_drift_is_watched(tmp_path: Path) -> None:
    project = "name: demo\nversion: '1'\non_source_drift: warn\n"
    files = {"project.yml": project, "p": OUT + "SELECT id FROM {{ source('crm', 'orders') }} WHERE n > 1"}
    assert compiled(tmp_path, files).graph.sources()[0].pushdown == Pushdown(None, "((n > 1))")


def test_a_pipeline_says_what_makes_it_unsteady(tmp_path: Path) -> None:
    sql = "SELECT now() AS at, '{{ run_id }}' AS run, random() AS r, current_date AS d"
    result = compiled(tmp_path, {"p": OUT + sql})
    node = result.graph.by_name[NodeKind.PIPELINE, "p"]
    assert isinstance(node, PipelineNode)
    assert node.unsteady == ("current_date", "now()", "random()", "run_id")
    assert result.warnings == ()


def test_a_result_that_nobody_uses_is_a_warning(tmp_path: Path) -> None:
    files = {
        "lonely": "SELECT 1 AS id",
        "checked": "SELECT 1 AS id",
        "used": "SELECT 1 AS id",
        "p": OUT + "SELECT * FROM {{ ref('used') }}",
        "pipelines/configs/c.yml": "pipeline: checked\nchecks: [{row_count: {min: 1}}]",
    }
    (warning,) = compiled(tmp_path, files).warnings
    assert (warning.code, warning.severity, warning.where) == ("PZ0223", Severity.WARNING, "pipelines/lonely.sql")


def test_an_unverified_cursor_and_an_explicit_auto_are_notes(tmp_path: Path) -> None:
    files = {
        "a": "INSERT INTO {{ sink('lake', 'a', strategy: 'merge', keys: ['id']) }}\n"
        "SELECT id FROM {{ source('crm', 'a', sync: {mode: 'incremental', cursor: 'at_'}) }}",
        "b": "INSERT INTO {{ sink('lake', 'b') }}\nSELECT id FROM {{ source('crm', 'b', sync: {mode: 'auto'}) }}",
        "c": "INSERT INTO {{ sink('lake', 'c', duplicates: 'accept') }}\n"
        "SELECT id FROM {{ source('crm', 'c', sync: {mode: 'auto'}) }}",
    }
    found = [(w.code, w.severity, w.where) for w in compiled(tmp_path, files).warnings]
    assert found == [("PZ0212", Severity.NOTE, "pipelines/a.sql:2"), ("PZ0214", Severity.NOTE, "pipelines/b.sql:1")]


MERGE = "INSERT INTO {{ sink('lake', 'out', strategy: 'merge', keys: ['id']) }}\n"
TYPED = "columns: {id: 'int', at_: 'timestamp', day: 'date', txt: 'varchar'}"


def read(options: str, tail: str = "") -> str:
    return MERGE + f"SELECT id FROM {{{{ source('crm', 't', {options}) }}}}{tail}"


def sync(rest: str, columns: str = TYPED) -> str:
    return read(f"{columns}, sync: {{mode: 'incremental', {rest}}}")


WM = "{{ watermark('crm', 't') }}"
ONE = "pipelines/p.sql:1"
TWO = "pipelines/p.sql:2"

REFUSED = {
    "a merge without keys": ("PZ0209", ONE, OUT.replace("'replace'", "'merge'") + "SELECT 1"),
    "keys without a merge": ("PZ0211", ONE, OUT.replace("'replace'", "'append', keys: ['id']") + "SELECT 1"),
    "a sink claimed twice": ("PZ0206", ONE, "INSERT INTO [{{ sink('lake', 'x') }}, {{ sink('lake', 'x') }}] SELECT 1"),
    "partition_by that is no column list": ("PZ0219", ONE, OUT.replace(")", ", partition_by: [])") + "SELECT 1"),
    "tokens without partition_by": ("PZ0219", ONE, OUT.replace(")", ", path: 'x/{yyyy}/{MM}')") + "SELECT 1"),
    "tokens with two columns": (
        "PZ0219", ONE, OUT.replace(")", ", path: '{yyyy}', partition_by: ['a', 'b'])") + "SELECT 1",
    ),
    "a cursor outside the contract": ("PZ0212", TWO, sync("cursor: 'missing'")),
    "a cursor of a wrong type": ("PZ0212", TWO, sync("cursor: 'txt'")),
    "a window without a start": ("PZ0213", TWO, sync("cursor: 'id', max_window: '10'")),
    "a start without a window": ("PZ0213", TWO, sync("cursor: 'id', initial: '10'")),
    "a window of a wrong form": ("PZ0213", TWO, sync("cursor: 'id', initial: '1', max_window: '1d'")),
    "a part of a day for a date": ("PZ0213", TWO, sync("cursor: 'day', initial: '2024-01-01', max_window: '36h'")),
    "a start of a wrong form": ("PZ0213", TWO, sync("cursor: 'day', initial: 'soon', max_window: '1d'")),
    "an end before the start": ("PZ0213", TWO, sync("cursor: 'id', initial: '9', max_window: '1', until: '9'")),
    "now for a number": ("PZ0213", TWO, sync("cursor: 'id', initial: '9', max_window: '1', until: 'now'")),
    "a window over a query": (
        "PZ0213", TWO, read(TYPED + ", query: 'q', sync: {mode: 'incremental', cursor: 'id', initial: '1', max_window: '1'}"),
    ),
    "a window of unknown type": ("PZ0213", TWO, read("sync: {mode: 'incremental', cursor: 'id', initial: '1', max_window: '1'}")),
    "a lookback of a wrong form": ("PZ0213", TWO, sync("cursor: 'id', lookback: '2h'")),
    "tokens without a cursor": ("PZ0217", TWO, read("path: '{yyyy}/{MM}/x.csv'")),
    "tokens with a number cursor": (
        "PZ0217", TWO, read(TYPED + ", path: '{yyyy}', sync: {mode: 'incremental', cursor: 'id', initial: '1', max_window: '1'}"),
    ),
    "tokens without a window": ("PZ0221", TWO, read(TYPED + ", path: '{yyyy}', sync: {mode: 'incremental', cursor: 'day'}")),
    "tokens with a gap": ("PZ0218", TWO, read("path: '{yyyy}/{dd}/x.csv'")),
    "an unknown token": ("PZ0218", TWO, read("path: '{yyyy}/{month}/x.csv'")),
    "no files per partition": ("PZ0222", TWO, read("files_per_partition: 0")),
    "a capped descending read": ("PZ0229", TWO, read("cursor_order: 'desc', max_pages: 3")),
    "a comparison that is none": ("PZ0224", TWO, read(TYPED, f" WHERE id = {WM}")),
    "a watermark of what is not read": ("PZ0224", TWO, read(TYPED, " WHERE id > {{ watermark('crm', 'other') }}")),
    "both ways to be incremental": ("PZ0225", TWO, sync("cursor: 'id'") + f" WHERE id > {WM}"),
    "two ways to resume": ("PZ0315", TWO, read("sync: {mode: 'auto'}", f" WHERE id > {WM}")),
    "a watermark cursor outside the contract": ("PZ0227", TWO, read(TYPED, f" WHERE other > {WM}")),
    "a watermark cursor of a wrong type": ("PZ0227", TWO, read(TYPED, f" WHERE txt > {WM}")),
    "two watermark cursors": ("PZ0231", TWO, read(TYPED, f" WHERE id > {WM} AND at_ > {WM}")),
    "a ceiling without a floor": ("PZ0351", TWO, read(TYPED, f" WHERE id <= {WM} + 5")),
    "a statement that is no query": ("PZ0401", "pipelines/p.sql", OUT + "ATTACH 'x.db'"),
    "two statements": ("PZ0401", "pipelines/p.sql", OUT + "SELECT 1; SELECT 2"),
    "broken SQL": ("PZ0401", "pipelines/p.sql:3", OUT + "SELECT 1,\n  FROM WHERE x"),
    "a table without a call": ("PZ0201", "pipelines/p.sql", OUT + "SELECT * FROM staging.other"),
    "a cycle": ("PZ0202", "pipelines/p.sql", OUT + "SELECT * FROM {{ ref('p') }}"),
    "incremental into replace": ("PZ0335", ONE, sync("cursor: 'id'").replace(MERGE, OUT)),
    "incremental into append": ("PZ0214", ONE, sync("cursor: 'id'").replace(MERGE, OUT.replace("replace", "append"))),
    "cdc without on_delete": ("PZ0336", ONE, read("sync: {mode: 'cdc'}")),
    "on_delete without cdc": ("PZ0337", ONE, read(TYPED).replace("['id']", "['id'], on_delete: 'ignore'")),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_is(what: str, tmp_path: Path) -> None:
    code, where, sql = REFUSED[what]
    problems = refused(tmp_path, {"p": sql})
    assert [(p.code, p.where) for p in problems] == [(code, where)]
    assert all(p.advice for p in problems)
    assert all(p.file not in p.message for p in problems if p.file is not None)


CDC = "{{ source('crm', 't', sync: {mode: 'cdc'}) }}"
DELETES = "INSERT INTO {{ sink('lake', 'out', strategy: 'merge', keys: ['id', 'Part'], on_delete: 'delete') }}\n"


@pytest.mark.parametrize(
    ("files", "lost"),
    [
        ({"p": f"SELECT * FROM {CDC}"}, None),
        ({"s": f"SELECT id, part, n FROM {CDC}", "p": "SELECT x.*, 1 AS one FROM {{ ref('s') }} x"}, None),
        ({"s": f"WITH c AS (SELECT * FROM {CDC}) SELECT * FROM c WHERE n > 1", "p": "SELECT id, PART FROM {{ ref('s') }}"}, None),
        ({"s": f"SELECT id::int AS id, part FROM {CDC}", "p": "SELECT * FROM {{ ref('s') }}"}, "s"),
        ({"s": f"SELECT * FROM {CDC}", "p": "SELECT id, part || 'x' AS part FROM {{ ref('s') }}"}, "p"),
        ({"s": f"SELECT id AS key, part FROM {CDC}", "p": "SELECT key AS id, part FROM {{ ref('s') }}"}, "p"),
        ({"s": f"SELECT part AS id, id AS part FROM {CDC}", "p": "SELECT * FROM {{ ref('s') }}"}, "s"),
    ],
)  # fmt: skip
def test_deletes_need_every_key_to_come_unchanged_from_the_source(
    files: dict[str, str], lost: str | None, tmp_path: Path
) -> None:
    files = {**files, "p": DELETES + files["p"]}
    if lost is None:
        compiled(tmp_path, files)
        return
    problems = refused(tmp_path, files)
    assert {(p.code, p.where) for p in problems} == {("PZ0337", ONE)}
    assert all(f"lost in pipeline '{lost}'" in p.message for p in problems)


def test_deletes_need_one_source(tmp_path: Path) -> None:
    joined = f"SELECT t.id, t.part FROM {CDC} t JOIN {{{{ source('crm', 'u') }}}} u ON t.id = u.id"
    (problem,) = refused(tmp_path / "1", {"p": DELETES + joined})
    assert (problem.code, problem.where) == ("PZ0337", ONE)
    assert "crm.t, crm.u" in problem.message
    compiled(tmp_path / "2", {"p": DELETES.replace("'delete'", "'ignore'") + joined})


def test_two_readers_are_shown_the_staging_pipeline_to_add(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, {"zeta": ORDERS, "alpha": ORDERS, "stg_orders": "SELECT 1"})
    assert (problem.code, problem.where) == ("PZ0349", "pipelines/alpha.sql:1")
    assert problem.message.endswith("alpha, zeta")
    assert "pipelines/stg_crm_orders.sql" in problem.advice
    assert "SELECT * FROM {{ source('crm', 'orders') }}" in problem.advice


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        (["source('crm', 'a._b')", "source('crm', 'a_.b')"], "PZ0110"),
        (["source('crm', 'Orders')", "source('crm', 'orders')"], "PZ0110"),
        (["source('crm', 't', sync: {mode: 'cdc'})", "source('crm', 't__deletes')"], "PZ0110"),
    ],
)
def test_datasets_that_would_share_a_table_are_refused(calls: list[str], code: str, tmp_path: Path) -> None:
    files = {f"p{n}": f"SELECT * FROM {{{{ {call} }}}}" for n, call in enumerate(calls)}
    assert [p.code for p in refused(tmp_path, files)] == [code]


def test_a_pipeline_named_like_a_staged_dataset_is_refused(tmp_path: Path) -> None:
    problems = refused(tmp_path, {"p": ORDERS, "SRC_crm__orders": "SELECT 1"})
    assert [(p.code, p.where) for p in problems] == [("PZ0230", "pipelines/SRC_crm__orders.sql")]


def test_ephemeral_pipelines_neither_chain_nor_are_checked(tmp_path: Path) -> None:
    files = {
        "e": "SELECT 1 AS id",
        "f": "SELECT * FROM {{ ref('e') }}",
        "p": OUT + "SELECT * FROM {{ ref('f') }}",
        "pipelines/configs/e.yml": "pipeline: e\nmaterialization: ephemeral\nchecks: [{not_null: [id]}, {unique: [id]}]",
        "pipelines/configs/f.yml": "pipeline: f\nmaterialization: ephemeral",
    }
    found = [(p.code, p.where) for p in refused(tmp_path, files)]
    assert found == [("PZ0205", "pipelines/configs/e.yml:3"), ("PZ0204", "pipelines/f.sql:1")]


def test_an_option_without_an_exact_form_is_named_but_not_shown(tmp_path: Path) -> None:
    connections = (
        "crm:\n  connector: duckdb\n  path: x.db\n  entities:\n    t:\n      read: { deep: { factor: 1e999 } }\n"
    )
    (problem,) = refused(tmp_path, {"connections.yml": connections, "p": "SELECT * FROM {{ source('crm', 't') }}"})
    assert (problem.code, problem.file) == ("PZ0137", "connections.yml")
    assert "deep.factor" in problem.message
    assert "inf" not in problem.message


def test_errors_of_a_stage_come_together_ordered_by_place(tmp_path: Path) -> None:
    files = {
        "b": OUT + "SELECT FROM WHERE",
        "a": OUT.replace("'out'", "'other'") + "ATTACH 'x'",
        "c": "SELECT * FROM staging.q",
    }
    assert [(p.code, p.where) for p in refused(tmp_path, files)] == [
        ("PZ0401", "pipelines/a.sql"), ("PZ0401", "pipelines/b.sql:2"), ("PZ0201", "pipelines/c.sql"),
    ]  # fmt: skip


def test_a_cycle_is_named_with_its_path(tmp_path: Path) -> None:
    files = {
        "b": "SELECT * FROM {{ ref('c') }}",
        "c": "SELECT * FROM {{ ref('a') }}",
        "a": "SELECT * FROM {{ ref('b') }}",
    }
    files["below"] = "SELECT * FROM {{ ref('a') }}"
    (problem,) = refused(tmp_path, files)
    assert (problem.code, problem.where) == ("PZ0202", "pipelines/a.sql")
    assert problem.message.endswith("a -> b -> c -> a")


def test_the_matrix_is_judged_through_pipelines_in_between(tmp_path: Path) -> None:
    files = {
        "s": f"SELECT * FROM {{{{ source('crm', 't', {TYPED}, sync: {{mode: 'incremental', cursor: 'id'}}) }}}}",
        "v": "SELECT * FROM {{ ref('s') }}",
        "p": OUT + "SELECT * FROM {{ ref('v') }}",
        "q": "INSERT INTO {{ sink('lake', 'q') }} SELECT * FROM {{ ref('v') }}",
    }
    assert [(p.code, p.where) for p in refused(tmp_path, files)] == [("PZ0335", ONE), ("PZ0214", "pipelines/q.sql:1")]


def test_a_source_node_without_a_call_of_its_own_is_typed(tmp_path: Path) -> None:
    node = compiled(tmp_path, {"p": OUT + ORDERS}).graph.nodes[0]
    assert isinstance(node, SourceNode)
    assert node.key == "crm.orders"
    assert node.declared_shape is None
