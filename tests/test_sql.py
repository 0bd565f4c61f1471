"""A pipeline's text can be wrapped, spliced and bound whatever it begins and ends with."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pytest

from pz.graph.sql import bind, inline, watermark_sentinel
from pz.graph.sqltree import Parser, SqlFault


def rows(sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA staging; CREATE TABLE staging.t AS SELECT range AS n FROM range(5)")
        return sorted(connection.execute(f"SELECT * FROM ({sql})").fetchall())


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("attach 'x.db'", None),
        ("copy t to 'x.csv'", None),
        ("install httpfs", None),
        ("create table x as select 1", None),
        ("select 1; select 2", None),
        ("", None),
        ("select\n 1,\nfrom where", 3),
        ("select 'é'\n, from x y z", 2),
    ],
)
def test_anything_but_one_select_is_refused_with_its_line(sql: str, line: int | None) -> None:
    with Parser() as parser, pytest.raises(SqlFault) as caught:
        parser.parse(sql)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "consumer",
    [
        "select n from __pz_cte__e where n > 1",
        "-- a comment first\nselect n from __pz_cte__e where n > 1",
        "/* c */ with a as (select * from __pz_cte__e) select n from a where n > 1",
        (
            "-- c\nwith recursive r(n) as (select 2 union select r.n + 1 from r join __pz_cte__e e on e.n = r.n + 1) "
            "select n from r"
        ),
        "(select n from __pz_cte__e) except select n from staging.t where n <= 1",
        "from __pz_cte__e select n where n > 1",
        "WITH\n\tRECURSIVE a AS (select * from __pz_cte__e) select n from a where n > 1 order by n",
    ],
)
@pytest.mark.parametrize(
    "body", ["select n from staging.t", "select n from staging.t -- all", "/* x */ table staging.t"]
)
def test_an_ephemeral_pipeline_is_spliced_into_any_consumer(consumer: str, body: str) -> None:
    with Parser() as parser:
        assert rows(inline(parser, consumer, {"e": body})) == [(2,), (3,), (4,)]


def test_several_ephemeral_pipelines_are_spliced_in_order() -> None:
    with Parser() as parser:
        sql = inline(
            parser, "select * from __pz_cte__a union all select * from __pz_cte__b", {"a": "select 1", "b": "select 2"}
        )
    assert rows(sql) == [(1,), (2,)]


def test_without_a_stored_value_a_watermark_comparison_lets_everything_pass() -> None:
    sql = f"select n from staging.t where n > {watermark_sentinel('c.t')} and n < 4"
    assert rows(bind(sql, {}, "r", "s")) == [(0,), (1,), (2,), (3,)]
    assert rows(bind(sql, {"c.t": "CAST(NULL AS BIGINT)"}, "r", "s")) == [(0,), (1,), (2,), (3,)]
    assert rows(bind(sql, {"c.t": "1"}, "r", "s")) == [(2,), (3,)]


def test_a_default_and_arithmetic_around_the_watermark_are_kept() -> None:
    mark = watermark_sentinel("c.t's")
    sql = f"with w as (select n from staging.t where coalesce({mark}, 2) - 1 <= n) select * from w -- end"
    assert rows(bind(sql, {"c.t's": "NULL"}, "r", "s")) == [(1,), (2,), (3,), (4,)]
    assert rows(bind(sql, {"c.t's": "(-5)"}, "r", "s")) == [(0,), (1,), (2,), (3,), (4,)]
    assert rows(bind(sql, {"c.t's": "4"}, "r", "s")) == [(3,), (4,)]


def test_run_constants_are_replaced_and_other_text_is_left_alone() -> None:
    sql = "select '__pz_run_id__' as r, '__pz_run_started_at__'::timestamp as s -- note"
    assert bind(sql, {}, "20240101T000000000Z-abcd", "2024-01-01T00:00:00") == (
        "select '20240101T000000000Z-abcd' as r, '2024-01-01T00:00:00'::timestamp as s -- note"
    )


def test_parsing_pulls_in_no_data_frame_library() -> None:
    program = (
        "import sys\nfrom pz.graph.sqltree import Parser\n"
        "with Parser() as parser: parser.print(parser.parse(\"select 'it''s' -- é\"))\n"
        "print(sorted({'pandas', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
