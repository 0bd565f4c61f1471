"""A column is traced to its table only where nothing is in doubt."""

from __future__ import annotations

import pytest

from pz.graph.lineage import output_origin, passes_through, selects, tables
from pz.graph.sqltree import Parser


@pytest.mark.parametrize(
    ("sql", "origin"),
    [
        ("select id from staging.s", ("staging.s", "id")),
        ("select ID from staging.S as x", ("staging.s", "ID")),
        ("select * from staging.s", ("staging.s", "id")),
        ("select s.id from staging.s join staging.t on s.a = t.a", ("staging.s", "id")),
        ("select s.*, t.b from staging.s left join staging.t on s.a = t.a", ("staging.s", "id")),
        ("select staging.s.id from staging.s", ("staging.s", "id")),
        ("with a as (select * from staging.s), b as (select * from a) select id, n from b", ("staging.s", "id")),
        ("select id from (select id, n from staging.s) d where n > 1", ("staging.s", "id")),
        ("select id from staging.s union all select id from staging.s", ("staging.s", "id")),
        ("select id, max(n) from staging.s group by id", ("staging.s", "id")),
        ("select k as id from staging.s", ("staging.s", "k")),
        ("select * exclude (n) from staging.s", ("staging.s", "id")),
        ("select *, id from staging.s", ("staging.s", "id")),
        ("with a as (select id as n, n as id from staging.s) select n as id from a", ("staging.s", "id")),
        ("select n from staging.s", None),
        ("select id + 1 as id from staging.s", None),
        ("select id from staging.s join staging.t on s.a = t.a", None),
        ("select * from staging.s join staging.t on s.a = t.a", None),
        ("select id from staging.s join staging.t using (id)", None),
        ("select * replace (upper(id) as id) from staging.s", None),
        ("select * rename (k as id) from staging.s", None),
        ("select * exclude (id) from staging.s", None),
        ("select columns('id') from staging.s", None),
        ("select id from staging.s as x(a, id)", None),
        ("with a(id) as (select k from staging.s) select id from a", None),
        ("with recursive a as (select id from staging.s union select id from a) select id from a", None),
        ("select id from staging.s union all select id from staging.t", None),
        ("select id from read_csv('x.csv')", None),
        ("select s.id.part as id from staging.s", None),
        ("select *, id + 1 as id from staging.s", None),
        ("values (1)", None),
    ],
)
def test_an_output_column_is_traced_through_untouched_passes_only(sql: str, origin: tuple[str, str] | None) -> None:
    with Parser() as parser:
        assert output_origin(parser.parse(sql)["node"], {}, "id") == origin


def test_every_base_table_is_found_wherever_it_is_read() -> None:
    sql = """
        with recursive c as (select * from staging.a), r as (select 1 as n union select n from r join staging.b using (n))
        select (select max(x) from staging.d), exists (from staging.e) from c, (select * from staging.f) x
        join staging.g on x.i in (select i from staging.h)
        union select 1, true order by (select 1 from staging.i)
    """
    with Parser() as parser:
        found = tables(parser.parse(sql))
    assert sorted(found) == [f"staging.{letter}" for letter in "abdefghi"]


def test_a_cte_hides_a_table_only_where_it_is_in_sight() -> None:
    with Parser() as parser:
        statement = parser.parse("select * from (with a as (select 1) select * from a) x, a")
    assert tables(statement) == ("a",)
    assert [s.correlated for s in selects(statement)] == [False, False, False]


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("select * from staging.s", "staging.s"),
        ("from staging.S", "staging.s"),
        ("select b, a as c, x.* exclude (a) from staging.s x", "staging.s"),
        ("select a + 1 from staging.s", None),
        ("select * replace (a + 1 as a) from staging.s", None),
        ("select columns('a') from staging.s", None),
        ("select * from staging.s where a > 1", None),
        ("select distinct * from staging.s", None),
        ("select * from staging.s order by a", None),
        ("select * from staging.s limit 3", None),
        ("select * from staging.s using sample 3", None),
        ("select * from staging.s tablesample 10%", None),
        ("select a from staging.s group by a", None),
        ("select a from staging.s group by all", None),
        ("select a from staging.s qualify row_number() over () = 1", None),
        ("select * from staging.s, staging.t", None),
        ("select * from (select * from staging.s)", None),
        ("with s as (select 1) select * from staging.s", None),
        ("select * from staging.s union all select * from staging.s", None),
        ("select 1", None),
        ("values (1)", None),
    ],
)
def test_only_a_bare_copy_passes_a_table_through(sql: str, table: str | None) -> None:
    with Parser() as parser:
        assert passes_through(parser.parse(sql)) == table
