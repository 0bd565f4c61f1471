"""What is pushed to a source never changes what a pipeline returns; every doubt drops it."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pz.graph.model import Pushdown
from pz.graph.pushdown import infer_pushdown
from pz.graph.sql import watermark_sentinel
from pz.graph.sqltree import Parser

CONTRACT = {"id": "int", "grp": "int", "n": "int", "Txt": "varchar", "day": "date"}


def pushed(sql: str, *, keep: tuple[str, ...] = (), columns: dict[str, str] | None = None) -> Pushdown:
    with Parser() as parser:
        return infer_pushdown(parser, parser.parse(sql), "r", keep=keep, columns=columns)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("select id, n + 1 as m from staging.r", ("id", "n")),
        ("select r.id, u.x from staging.r join staging.u on u.id = r.grp", ("grp", "id")),
        ("select id from staging.r order by n", ("id", "n")),
        ("select id from staging.r group by all order by all", ("id",)),
        ("select s.payload.name from staging.r s", ("payload",)),
        ("select payload.name from staging.r", ("payload",)),
        ("select staging.r.id from staging.r", ("id",)),
        ("with a as (select id from staging.r where n > 1) select * from a", ("id", "n")),
        ("with a as (select * from staging.u) select r.id, a.x from staging.r r join a on a.id = r.id", ("id",)),
        ("select * from (select id from staging.r) d", ("id",)),
        ("select id from staging.r union all select id from staging.u", ("id",)),
        ("select count(*), max(n) from staging.r", ("n",)),
        ("select * from staging.r", None),
        ("select r.* from staging.r join staging.u on r.id = u.id", None),
        ("select columns('i.*') from staging.r", None),
        ("select r from staging.r", None),
        ("select id, x from staging.r join staging.u on r.id = u.id", None),
        ("select r.n from staging.r join staging.u using (id)", None),
        ("select r.n from staging.r natural join staging.u", None),
        ("select q.id from staging.r join staging.u on r.id = u.id", None),
        ("select a.id from staging.r a join staging.r b on a.id = b.grp", None),
        ("with a as (select n from staging.r) select id from staging.r where n in (select n from a)", None),
        ("select id from staging.r where exists (select 1 from staging.u where u.id = grp)", None),
        ("select id from staging.u where exists (select 1 from staging.r where n = x)", None),
        ("select list_transform([1], lambda n: n + id) from staging.r", None),
        ("select id as n, n + 1 as o from staging.r", None),
        ("select #1 from staging.r", None),
        ("select a from staging.r as t(a, b)", None),
        ("select rowid from staging.r", None),
        ("select \"user\" from staging.r", None),
        ("select count(*) from staging.r", None),
        ("select * from (select r.id from staging.r) d, lateral (select d.id + 1)", ("id",)),
        ("select id from staging.u, (select n from staging.r where x = n) d", None),
    ],
)  # fmt: skip
def test_columns_are_pruned_only_where_every_name_is_certain(sql: str, columns: tuple[str, ...] | None) -> None:
    assert pushed(sql).columns == columns


@pytest.mark.parametrize(
    ("sql", "predicate"),
    [
        ("select id from staging.r where n > 1", "((n > 1))"),
        ("select id from staging.r where n > 1 or grp = 2", "(((n > 1) OR (grp = 2)))"),
        ("select id from staging.r where n > 1 and (grp = 2 or grp is null)", "((n > 1)) AND (((grp = 2) OR (grp IS NULL)))"),
        ("select r.id from staging.r join staging.u on r.id = u.id where r.n > 1 and u.x = 2", "((n > 1))"),
        ("select r.id from staging.r left join staging.u on r.id = u.id where r.n > 1 and u.x is null", "((n > 1))"),
        ("select r.id from staging.u right join staging.r on r.id = u.id where r.n > 1", "((n > 1))"),
        ("select r.id from staging.r anti join staging.u on r.id = u.id where r.n > 1", "((n > 1))"),
        ("with a as (select * from staging.r where n = 1) select * from a where id = 2", "((n = 1))"),
        ("select n + 1 as m from staging.r where \"Txt\" = 'it''s' and n > 1", "((Txt = 'it''s')) AND ((n > 1))"),
        ("select u.id from staging.u left join staging.r on r.id = u.id where r.n is null", None),
        ("select r.id from staging.r full join staging.u on r.id = u.id where r.n > 1", None),
        ("select r.id from staging.r positional join staging.u where r.n > 1", None),
        ("select r.id from staging.r asof join staging.u on r.id >= u.id where r.n > 1", None),
        ("select a.id from staging.r a join staging.r b on a.id = b.grp where a.n > 1", None),
        ("select n + 1 as m from staging.r where m > 1", None),
        ("select r.id from staging.r, (select 1 as x) d where r.n > 1", None),
        ("select id from staging.r where day < now()", None),
        ("select id from staging.r where day < current_date", None),
        ("select id from staging.r where random() < n", None),
        ("select id from staging.r where n in (select x from staging.u)", None),
        ("select id from staging.r where '__pz_run_id__' = \"Txt\"", None),
        ("select id from staging.r using sample 3 rows", None),
        ("select id from staging.r tablesample reservoir(3 rows) where n > 1", None),
        ("select id from staging.r where 1 = 1", None),
        ("select id from staging.r where r.payload.n > 1", None),
        ("select id from staging.r having n > 1", None),
    ],
)  # fmt: skip
def test_a_filter_is_pushed_only_where_it_sees_this_dataset_alone(sql: str, predicate: str | None) -> None:
    assert pushed(sql).predicate == predicate


def test_a_watermark_comparison_is_no_filter_and_its_column_is_kept() -> None:
    sql = f"select id from staging.r where day >= {watermark_sentinel('c.r')} and (n = 1 or n = 2)"
    assert pushed(sql, keep=("day",)) == Pushdown(("day", "id", "n"), "(((n = 1) OR (n = 2)))")


def test_the_cursor_is_never_pruned() -> None:
    assert pushed("select id from staging.r", keep=("updated",)).columns == ("id", "updated")


def test_names_are_spelled_as_in_the_contract() -> None:
    assert pushed("select TXT, ID from staging.R", columns=CONTRACT).columns == ("id", "Txt")
    assert pushed("select id, unknown from staging.r", columns=CONTRACT).columns is None


JOINS = [
    "staging.r",
    "staging.r r join staging.u u on r.grp = u.id",
    "staging.r r left join staging.u u on r.grp = u.id",
    "staging.u u left join staging.r r on r.grp = u.id",
    "staging.r r right join staging.u u on r.grp = u.id",
    "staging.r r full join staging.u u on r.grp = u.id",
    "staging.r r semi join staging.u u on r.grp = u.id",
    "staging.r r anti join staging.u u on r.grp = u.id",
    "staging.r r, staging.u u",
    "staging.r r join staging.u u using (id)",
    "staging.r r join staging.r u on r.grp = u.id",
    "(select * from staging.r where n > 0) r left join staging.u u on u.id = r.grp",
    "staging.u u left join (select id, grp, n from staging.r where grp = 1) r on u.id = r.id",
]
SELECTS = [
    "*",
    "r.id",
    "r.id, r.n + 1 as grp",
    "count(*)",
    "r.grp, sum(r.n) as n",
    "id",
    "id as n, n as id",
    "r.id, u.x",
    "r.*",
]
WHERES = [
    "r.n > 1", "r.n is null", "n > 1", "r.grp = 1 or r.n = 0", "r.id = 1 or r.grp = 2", "coalesce(r.n, 0) < 2", "u.x = 1",
    "u.id is null", "r.id <> 2", "not (r.n > 1)", "r.n between 0 and 2", "r.grp in (1, null)",
    "r.n > (select min(x) from staging.u)",
    "id = 1", "r.n = u.x",
]  # fmt: skip
TAILS = [
    "",
    "group by all",
    "order by all",
    "order by 1 limit 1000",
    "qualify row_number() over (partition by r.grp order by r.id) = 1",
]
WRAPS = [
    "{}",
    "with a as ({}) select * from a",
    "select * from ({}) d",
    "({}) union all select 7 as id",
    "select * from staging.u where exists ({})",
]

VALUES = st.one_of(st.none(), st.integers(0, 3))
ROWS = st.lists(st.tuples(st.integers(0, 4), VALUES, VALUES), max_size=6)


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str] | None:
    try:
        return sorted(map(repr, connection.execute(sql).fetchall()))
    except duckdb.BinderException:
        return None


@settings(max_examples=250, deadline=None)
@given(
    ROWS, ROWS, st.sampled_from(JOINS), st.sampled_from(SELECTS), st.lists(st.sampled_from(WHERES), max_size=3),
    st.sampled_from(TAILS), st.sampled_from(WRAPS),
)  # fmt: skip
def test_a_pipeline_returns_the_same_rows_from_pushed_down_input(
    r: list[tuple[int, int | None, int | None]],
    u: list[tuple[int, int | None, int | None]],
    join: str,
    chosen: str,
    wheres: list[str],
    tail: str,
    wrap: str,
) -> None:
    where = f"where {' and '.join(f'({w})' for w in wheres)}" if wheres else ""
    sql = wrap.format(f"select {chosen} from {join} {where} {tail}")
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE SCHEMA staging; CREATE TABLE whole (id INT, grp INT, n INT); CREATE TABLE staging.u (id INT, x INT, y INT)"
        )
        for table, data in (("whole", r), ("staging.u", u)):
            if data:
                connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", data)
        connection.execute("CREATE TABLE staging.r AS FROM whole")
        expected = rows(connection, sql)
        if expected is None:
            return
        hint = pushed(sql)
        columns = ", ".join(hint.columns) if hint.columns else "*"
        connection.execute(
            f"CREATE OR REPLACE TABLE staging.r AS SELECT {columns} FROM whole WHERE {hint.predicate or 'true'}"
        )
        assert rows(connection, sql) == expected
