"""SQL that is right over a whole dataset and wrong over a slice of it draws a warning; what is right draws none."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from graph_projects import compiled
from pz.connectors.contract import ReadShape
from pz.errors import Code, Problem, Severity
from pz.graph.compiler import Compiled
from pz.graph.slice_lint import lint_slices
from pz.graph.sqltree import AGGREGATES, Parser

CONNECTIONS = """\
app:
  connector: duckdb
  path: app.db
  entities:
    events:
      read: { columns: { id: bigint, kind: varchar, n: bigint, ts: timestamp, w: bigint },
              sync: { mode: incremental, cursor: ts } }
    days: { read: { columns: { day: date, n: bigint }, sync: { mode: incremental, cursor: day } } }
    kinds: { read: { columns: { kind: varchar, label: varchar } } }
    plain: { read: { columns: { id: bigint, kind: varchar, n: bigint, ts: timestamp } } }
pg:
  connector: postgres
  host: localhost
  database: shop
  user: pz
  entities:
    orders: { read: { columns: { id: bigint, state: varchar }, sync: { mode: cdc } } }
lake: { connector: duckdb, path: lake.db }
"""
MERGE = "strategy: 'merge', keys: ['id']"
APPEND = "strategy: 'append', duplicates: 'accept'"
CALLS = {
    "EVENTS": "{{ source('app', 'events') }}",
    "DAYS": "{{ source('app', 'days') }}",
    "KINDS": "{{ source('app', 'kinds') }}",
    "PLAIN": "{{ source('app', 'plain') }}",
    "ORDERS": "{{ source('pg', 'orders') }}",
    "MARK": "{{ watermark('app', 'plain') }}",
}


def _called(sql: str) -> str:
    for name, call in CALLS.items():
        sql = sql.replace(name, call)
    return sql


def _compiled(folder: Path, files: dict[str, str], write: str = MERGE) -> Compiled:
    sink = f"INSERT INTO {{{{ sink('lake', 'out', {write}) }}}}\n"
    texts = {name: (sink if name == "p" else "") + _called(text) for name, text in files.items()}
    return compiled(folder, {"connections.yml": CONNECTIONS, **texts})


def _warned(folder: Path, files: dict[str, str], write: str = MERGE) -> list[Problem]:
    return [problem for problem in _compiled(folder, files, write).warnings if problem.code is Code.PZ0711]


# ruff: noqa: E501
WRONG = {
    "computes sum() over groups": "SELECT id, sum(n) AS n FROM EVENTS GROUP BY id",
    "computes sum() over groups of rows": "SELECT id, sum(n) AS n FROM EVENTS GROUP BY ALL",
    "computes count() over groups": "SELECT date_trunc('day', ts) AS id, count(*) AS n FROM EVENTS GROUP BY 1",
    "computes row_number() ": "SELECT * FROM EVENTS QUALIFY row_number() OVER (PARTITION BY id ORDER BY n DESC) = 1",
    "takes one row of each key (DISTINCT ON)": "SELECT DISTINCT ON (id) * FROM EVENTS ORDER BY id, n DESC",
    "takes one row of each key (DISTINCT ON), but": "SELECT DISTINCT ON (id) * FROM EVENTS ORDER BY id, ts",
    "computes count() over all rows": "SELECT 1 AS id, count(*) AS n FROM EVENTS",
    "computes max(), sum() over groups": "SELECT id, max(n) AS m, sum(n) AS n FROM EVENTS GROUP BY id",
    "computes min() over groups": "SELECT id, min(ts) AS ts FROM EVENTS GROUP BY id",
    "computes sum() over groups of": "SELECT day AS id, n FROM (SELECT date_trunc('month', day) AS day, sum(n) AS n FROM DAYS GROUP BY ALL)",
    "computes count() over": "SELECT k.kind AS id, count(*) AS n FROM KINDS k JOIN EVENTS e ON e.kind = k.kind GROUP BY k.kind",
    "computes sum() OVER (...)": "SELECT id, sum(n) OVER (PARTITION BY kind) AS n FROM EVENTS",
    "computes lag() OVER (...)": "SELECT id, lag(n) OVER (PARTITION BY id ORDER BY ts) AS n FROM EVENTS",
    "computes row_number() OVER (...)": "SELECT id, row_number() OVER (PARTITION BY kind ORDER BY ts) AS nth FROM EVENTS",
    "computes row_number() OVER": "SELECT id, n FROM EVENTS QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts) = 1",
    "computes row_number() OVER (...), but": "SELECT id, n FROM EVENTS QUALIFY row_number() OVER (PARTITION BY kind ORDER BY ts DESC) = 1",
    "takes some of the rows (LIMIT)": "SELECT id, n FROM EVENTS ORDER BY n DESC LIMIT 10",
    "takes some of the rows": "SELECT id, n FROM (SELECT * FROM EVENTS LIMIT 10%)",
    "joins two slices": "SELECT e.id, d.n FROM EVENTS e JOIN DAYS d ON d.day = e.ts::date",
    "joins two": "SELECT e.id, d.n FROM EVENTS e, DAYS d WHERE d.day = e.ts::date",
    "joins two slices,": "SELECT e.id, d.n FROM EVENTS e LEFT JOIN DAYS d ON d.day = e.ts::date",
    "joins": "SELECT e.id, m.n FROM EVENTS e JOIN EVENTS m ON m.id = e.w",
    "keeps rows that have no partner in a slice (LEFT JOIN)": "SELECT k.kind AS id, e.n FROM KINDS k LEFT JOIN EVENTS e ON e.kind = k.kind",
    "keeps rows that have no partner in a slice (RIGHT JOIN)": "SELECT k.kind AS id, e.n FROM EVENTS e RIGHT JOIN KINDS k ON e.kind = k.kind",
    "keeps rows that have no partner in a slice (FULL JOIN)": "SELECT k.kind AS id, e.n FROM EVENTS e FULL JOIN KINDS k ON e.kind = k.kind",
    "takes what is not in a slice (ANTI JOIN)": "SELECT kind AS id FROM KINDS ANTI JOIN EVENTS USING (kind)",
    "takes what is not in a slice (NOT EXISTS or NOT IN)": "SELECT kind AS id FROM KINDS k WHERE NOT EXISTS (SELECT 1 FROM EVENTS e WHERE e.kind = k.kind)",
    "takes what is not in a slice (NOT EXISTS": "SELECT kind AS id FROM KINDS WHERE kind NOT IN (SELECT kind FROM EVENTS)",
    "takes what is not in a slice (EXCEPT)": "SELECT kind AS id FROM KINDS EXCEPT SELECT kind FROM EVENTS",
    "intersects two slices": "SELECT ts::date AS id FROM EVENTS INTERSECT SELECT day FROM DAYS",
    "looks up every row in a slice": "SELECT kind AS id, (SELECT n FROM EVENTS e WHERE e.kind = k.kind) AS n FROM KINDS k",
    "looks up rows of a slice in a slice": "SELECT id FROM EVENTS WHERE ts::date IN (SELECT day FROM DAYS)",
    "filters a captured dataset (WHERE)": "SELECT id, state FROM ORDERS WHERE state = 'open'",
}  # fmt: skip


@pytest.mark.parametrize(("what", "sql"), list(WRONG.items()), ids=list(WRONG))
def test_what_needs_the_whole_is_told_over_a_slice(tmp_path: Path, what: str, sql: str) -> None:
    write = f"{MERGE}, on_delete: 'soft'" if "ORDERS" in sql else MERGE
    (told,) = _warned(tmp_path, {"p": sql}, write)
    assert told.message.startswith(f"pipeline 'p' {what}")
    assert (told.severity, told.where) == (Severity.WARNING, "pipelines/p.sql:2")
    assert "of dataset" in told.message
    assert "each run reads only what is new" in told.message


RIGHT = [
    "SELECT id, n FROM EVENTS WHERE kind = 'x' ORDER BY ts",
    "SELECT DISTINCT id, n FROM EVENTS",
    "SELECT id FROM EVENTS GROUP BY id",
    "SELECT e.id, k.label FROM EVENTS e JOIN KINDS k USING (kind)",
    "SELECT e.id, k.label FROM EVENTS e LEFT JOIN KINDS k ON k.kind = e.kind",
    "SELECT e.id FROM EVENTS e ANTI JOIN KINDS k USING (kind)",
    "SELECT id FROM EVENTS WHERE kind NOT IN (SELECT kind FROM KINDS)",
    "SELECT e.id, (SELECT max(label) FROM KINDS k WHERE k.kind = e.kind) AS label FROM EVENTS e",
    "SELECT kind AS id FROM KINDS SEMI JOIN EVENTS USING (kind)",
    "SELECT kind AS id FROM KINDS WHERE kind IN (SELECT kind FROM EVENTS LIMIT 10)",
    "SELECT e.id, k.n FROM EVENTS e JOIN (SELECT kind, count(*) AS n FROM KINDS GROUP BY kind) k USING (kind)",
    "SELECT id, n FROM EVENTS QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts DESC) = 1",
    "SELECT id, n FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY ts DESC) AS rn FROM EVENTS) WHERE rn = 1",
    "SELECT id, max(ts) AS ts, arg_max(n, ts) AS n, any_value(kind) AS kind FROM EVENTS GROUP BY id",
    "SELECT other AS id, n FROM (SELECT id AS other, n, ts FROM EVENTS) QUALIFY rank() OVER (PARTITION BY other ORDER BY ts DESC) <= 1",
    "SELECT id, n FROM EVENTS QUALIFY 1 = row_number() OVER (PARTITION BY id, kind ORDER BY ts DESC)",
    "SELECT DISTINCT ON (id) id, n FROM EVENTS ORDER BY ts DESC",
    "SELECT id, n FROM EVENTS JOIN (SELECT id, max(ts) AS ts FROM EVENTS GROUP BY id) USING (id, ts)",
    "SELECT day AS id, sum(n) AS n FROM DAYS GROUP BY day",
    "SELECT d.day AS id, sum(d.n) AS n FROM (SELECT day, n FROM DAYS) d GROUP BY 1",
    "SELECT day AS id, rank() OVER (PARTITION BY day ORDER BY n) AS place FROM DAYS",
    "SELECT kind AS id, count(*) AS n FROM PLAIN WHERE kind IN (SELECT kind FROM EVENTS) GROUP BY kind",
    "SELECT p.kind AS id, sum(p.n) AS n FROM PLAIN p JOIN (SELECT DISTINCT kind FROM EVENTS) USING (kind) GROUP BY 1",
    "SELECT id, len(list_filter([n], lambda x: x > 1)) AS n FROM EVENTS",
    "SELECT id, n FROM EVENTS UNION ALL SELECT id, n FROM PLAIN",
    "SELECT id, item FROM EVENTS e, unnest([e.n]) AS u(item)",
    "SELECT id, sum(n) AS n FROM PLAIN GROUP BY id LIMIT 10",
    "SELECT date_trunc('day', ts) AS id, sum(n) AS n FROM PLAIN WHERE ts >= date_trunc('day', MARK::timestamp) GROUP BY 1",
]


@pytest.mark.parametrize("sql", RIGHT)
def test_what_is_right_over_a_slice_draws_no_warning(tmp_path: Path, sql: str) -> None:
    assert _warned(tmp_path, {"p": sql}) == []


@pytest.mark.parametrize(
    "floor", ["ts > date_trunc('day', MARK::timestamp)", "ts >= date_trunc('week', MARK::timestamp)"]
)
def test_a_floor_that_cuts_a_group_is_told(tmp_path: Path, floor: str) -> None:
    sql = f"SELECT date_trunc('month', ts) AS id, sum(n) AS n FROM PLAIN WHERE {floor} GROUP BY 1"
    (told,) = _warned(tmp_path, {"p": sql})
    assert "computes sum() over groups" in told.message


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT id FROM EVENTS",
        "SELECT id FROM EVENTS GROUP BY id",
        "SELECT id FROM EVENTS UNION SELECT id FROM PLAIN",
    ],
)
def test_appended_rows_are_distinct_within_a_slice_only(tmp_path: Path, sql: str) -> None:
    (told,) = _warned(tmp_path, {"p": sql}, APPEND)
    assert "an earlier run appended is appended again" in told.message


def test_the_newest_per_key_needs_a_merge(tmp_path: Path) -> None:
    sql = "SELECT id, n FROM EVENTS QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts DESC) = 1"
    assert len(_warned(tmp_path, {"p": sql}, APPEND)) == 1


def test_a_slice_is_followed_through_pipelines_and_told_where_the_construct_stands(tmp_path: Path) -> None:
    files = {
        "stg": "SELECT *\nFROM EVENTS",
        "ranked": "SELECT *,\n  row_number() OVER (PARTITION BY id ORDER BY ts DESC) AS rn\nFROM {{ ref('stg') }}",
        "p": "WITH t AS (SELECT * FROM {{ ref('ranked') }} WHERE rn = 1)\nSELECT id,\n  sum(n) AS n\nFROM t\nGROUP BY id",
    }
    (told,) = _warned(tmp_path, files)
    assert told.where == "pipelines/p.sql:4"
    assert "of dataset 'app.events'" in told.message


def test_an_ephemeral_pipeline_is_named_itself_and_once(tmp_path: Path) -> None:
    files = {
        "counted": "SELECT kind,\n  count(*) AS n\nFROM {{ ref('stg') }} GROUP BY kind",
        "pipelines/configs/counted.yml": "pipeline: counted\nmaterialization: ephemeral\n",
        "stg": "SELECT * FROM EVENTS",
        "p": "SELECT kind AS id, n FROM {{ ref('counted') }}",
        "q": "INSERT INTO {{ sink('lake', 'two', strategy: 'merge', keys: ['kind']) }}\nSELECT * FROM {{ ref('counted') }}",
    }
    (told,) = _warned(tmp_path, files)
    assert told.message.startswith("pipeline 'counted' computes count()")
    assert told.where == "pipelines/counted.sql:2"


def test_a_pipeline_that_delivers_nothing_is_not_judged(tmp_path: Path) -> None:
    assert _warned(tmp_path, {"p": "SELECT id, n FROM EVENTS", "q": "SELECT count(*) AS n FROM {{ ref('p') }}"}) == []


@pytest.mark.parametrize(
    ("sql", "on_delete", "told"),
    [
        ("SELECT id, state FROM ORDERS WHERE id > 100", "soft", 0),
        ("SELECT id, state FROM ORDERS WHERE state = 'open'", "delete", 1),
        ("SELECT id, state FROM ORDERS WHERE state = 'open'", "ignore", 0),
        ("SELECT id, state FROM ORDERS", "delete", 0),
    ],
)
def test_a_filter_on_a_captured_dataset_is_told_where_deletes_are_routed(
    tmp_path: Path, sql: str, on_delete: str, told: int
) -> None:
    found = _warned(tmp_path, {"p": sql}, f"{MERGE}, on_delete: '{on_delete}'")
    assert len(found) == told


def test_a_feed_is_a_slice_once_the_connector_says_so(tmp_path: Path) -> None:
    made = _compiled(tmp_path, {"p": "SELECT id, count(*) AS n FROM PLAIN GROUP BY id"})
    assert made.understood is not None
    (source,) = made.graph.sources()
    with Parser() as parser:
        assert not list(lint_slices(parser, made.graph, made.understood, {source.id: ReadShape.FULL}))
        (told,) = lint_slices(parser, made.graph, made.understood, {source.id: ReadShape.FEED})
    assert told.code is Code.PZ0711


def test_all_aggregates_of_duckdb_are_known() -> None:
    query = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
    only_windows = {"cume_dist", "dense_rank", "fill", "first_value", "lag", "last_value", "lead", "nth_value", "ntile",
                    "percent_rank", "rank", "rank_dense", "row_number"}  # fmt: skip
    known = {name for (name,) in duckdb.connect().execute(query).fetchall() if name[0].isalpha()}
    assert known - only_windows <= AGGREGATES
