"""A row on which a pipeline's SQL fails is told with the pipeline, its file and line, and without what the row holds."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import pz
from graph_projects import write_project
from pz.errors import Code
from pz.staging.redaction import redact
from running import run

CONNECTIONS = """\
app:
  connector: localfiles
  root: data
  entities: { t: { read: { format: csv, columns: { s: varchar, n: bigint } } } }
lake: { connector: duckdb, path: lake.db }
out: { connector: localfiles, root: out }
"""
SOURCE = "{{ source('app', 't') }}"
ROWS = 's,n\nO\'Neil "sesame",7654321\n'
FAULTS = {
    "conversion": ("CAST(s AS INTEGER)", 3),
    "a date": ("s::DATE", 3),
    "a number out of range": ("TRY_CAST(n AS BIGINT)::TINYINT", 3),
    "a decimal": ("n::DECIMAL(3, 1)", 3),
    "json": ("json_extract(s, '$.a')", 1),
    "overflow": ("n * 9223372036854775807", 1),
    "a date out of range": ("make_date((n + 100000000)::INTEGER, 13, 45)", 1),
    "a text that is no time": ("strptime(s, '%Y')", 1),
    "a root": ("sqrt(-n)", 1),
    "an invalid pattern": ("regexp_matches(s, '(' || s)", 1),
    "a constant pattern": ("regexp_extract(s, '(')", 1),
}


def _message(folder: Path, files: dict[str, str], name: str) -> str:
    """The error of a node of a run."""
    write_project(folder, {"connections.yml": CONNECTIONS, "data/t.csv": ROWS, **files})
    result = run(pz.open_project(folder, environ={}))
    assert result.exit_code == 1
    (error,) = [node.error for node in result.nodes if node.name == name]
    assert error is not None
    assert error.code is Code.PZ0501
    for value in ("Neil", "sesame", "7654321"):
        assert value not in error.message
    return error.message


def _select(expression: str) -> str:
    return f"SELECT s,\n  n,\n  {expression} AS x\nFROM {SOURCE}"


@pytest.mark.parametrize(("expression", "line"), list(FAULTS.values()), ids=list(FAULTS))
def test_a_table_names_the_cast_or_the_pipeline(tmp_path: Path, expression: str, line: int) -> None:
    sink = "INSERT INTO {{ sink('lake', 'o', strategy: 'replace') }}\nSELECT * FROM {{ ref('p') }}"
    message = _message(tmp_path, {"p": _select(expression), "q": sink}, "p")
    assert message.startswith(f"the SQL of pipeline 'p' (pipelines/p.sql:{line}) fails on a row: ")


@pytest.mark.parametrize("output", ["lake", "out"])
def test_so_does_a_chain_that_runs_as_one_statement(tmp_path: Path, output: str) -> None:
    options = ", format: 'csv'" if output == "out" else ""
    sink = f"INSERT INTO {{{{ sink('{output}', 'o', strategy: 'replace'{options}) }}}}\n"
    message = _message(tmp_path, {"p": sink + _select("CAST(s AS INTEGER)")}, f"{output}.o")
    assert message.startswith("the SQL of pipeline 'p' (pipelines/p.sql:4) fails on a row: ")
    message = _message(tmp_path, {"p": sink + _select("n * 9223372036854775807")}, f"{output}.o")
    start = f"the SQL of pipeline 'p' (pipelines/p.sql:2), or the write of its rows to '{output}.o' fails on a row: "
    assert message.startswith(start)


def test_a_view_is_told_by_who_computes_it(tmp_path: Path) -> None:
    files = {
        "p": _select("CAST(s AS INTEGER)"),
        "pipelines/configs/p.yml": "pipeline: p\nmaterialization: view\n",
        "q": "INSERT INTO {{ sink('lake', 'o', strategy: 'replace') }}\nSELECT DISTINCT x\nFROM {{ ref('p') }}",
    }
    message = _message(tmp_path, files, "q")
    assert "pipeline 'q' (pipelines/q.sql:2), or of view 'p' (pipelines/p.sql:1) behind it fails on a row" in message


def test_a_view_that_outputs_read_is_named_by_each(tmp_path: Path) -> None:
    merge = "{{ sink('lake', 'b', strategy: 'merge', keys: ['n']) }}"
    sinks = f"INSERT INTO [{{{{ sink('lake', 'a', strategy: 'replace') }}}}, {merge}]\n"
    files = {
        "p": sinks + _select("CAST(s AS INTEGER)"),
        "pipelines/configs/p.yml": "pipeline: p\nmaterialization: view\n",
    }
    for name in ("lake.a", "lake.b"):
        message = _message(tmp_path, files, name)
        assert f"pipeline 'p' (pipelines/p.sql:2), or the write of its rows to '{name}' fails on a row" in message


def test_a_filter_that_the_read_applies_names_whose_it_is(tmp_path: Path) -> None:
    files = {
        "p": f"SELECT s FROM {SOURCE}\nWHERE CAST(s AS INTEGER) > 1",
        "q": "INSERT INTO {{ sink('lake', 'o', strategy: 'replace') }}\nSELECT DISTINCT s FROM {{ ref('p') }}",
    }
    message = _message(tmp_path, files, "src_app__t")
    assert (
        "a row of dataset 'app.t' cannot be read, or fails in the filter of pipeline 'p' (pipelines/p.sql:1)" in message
    )


HOSTILE = "sec'ret\nval\"ues\n\nLINE 3: hunter\n^"


@pytest.mark.parametrize(
    "expression",
    ["CAST(s AS INTEGER)", "s::DATE", "s::DECIMAL(5, 2)", "s::UUID", "s::INTEGER[]", "strptime(s, '%Y')", "from_base64(s)",
     "json_extract(s, '$.a')", "date_trunc(s, DATE '2020-01-01')", "regexp_matches('a', '(' || s)"],
)  # fmt: skip
def test_a_value_with_quotes_and_lines_of_its_own_is_masked_whole(expression: str) -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE t AS SELECT $1 AS s", [HOSTILE])
    with pytest.raises(duckdb.Error) as failed:
        database.execute(f"CREATE TABLE u AS (\nSELECT {expression} AS x FROM t\n)")
    shown = redact(failed.value)
    for word in ("sec", "ret", "ues", "hunter"):
        assert word not in shown.replace("interpret", "")
    assert len(shown) > len("Conversion Error: ")
