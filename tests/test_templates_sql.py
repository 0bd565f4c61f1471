"""Where INSERT INTO, semicolons and comments end, and which line of the file a line of SQL came from."""

from __future__ import annotations

import pytest

from pz.project.sqlscan import without_blanks, without_end
from rendering import FILE, faults, rendered

SINK = "{{ sink('db', 'x') }}"
OTHER = "{{ sink('lake', 'y') }}"


@pytest.mark.parametrize(
    ("text", "sql", "count"),
    [
        (f"INSERT INTO {SINK} select 1", " select 1", 1),
        (f"insert  into\n{SINK}\nselect 1", "\n\nselect 1", 1),
        (f"\n-- a\n/* b\n/* c */ */ INSERT INTO {SINK} select 1", "\n-- a\n/* b\n/* c */ */  select 1", 1),
        (f"INSERT /* a */ INTO -- b\n {SINK} select 1", "\n select 1", 1),
        (f"INSERT INTO [{SINK}] select 1", " select 1", 1),
        (f"INSERT INTO [ {SINK} , -- one\n {OTHER} ] select 1", "\n select 1", 2),
        (f"INSERT INTO {SINK}\nwith a as (select 1) select * from a", "\nwith a as (select 1) select * from a", 1),
        (f"INSERT INTO {SINK} (select 1)", " (select 1)", 1),
        ("{% set s = sink('db', 'x') %}INSERT INTO {{ s }} select 1", " select 1", 1),
        (
            "INSERT INTO [{% for e in ['x', 'y'] %}{{ sink('db', e) }}{{ ',' if not loop.last }}{% endfor %}] select 1",
            " select 1",
            2,
        ),
    ],
)
def test_a_leading_insert_is_cut_off_and_its_line_breaks_stay(text: str, sql: str, count: int) -> None:
    result = rendered(text)
    assert result.sql.strip() == sql.strip()
    assert result.sql.count("\n") == sql.count("\n")
    assert len(result.sinks) == count


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"select 1\nfrom {SINK}", 2),
        (f"select 1; INSERT INTO {SINK} select 1", 1),
        (f"INSERT INTO {SINK} select\n{OTHER}", 2),
        (f"INSERT INTO [{SINK} {OTHER}] select 1", 1),
        (f"INSERT INTO [{SINK},] select 1", 1),
        (f"INSERT INTO [{SINK} select 1", 1),
        (f"INSERT INTO lake.{SINK} select 1", 1),
        (f"-- INSERT INTO {SINK}\nselect 1", 1),
        (f"{SINK}\nselect 1", 1),
        ("select 1\n{% set s = sink('db', 'x') %}", 2),
        (f"INSERT INTO {SINK}", 1),
        (f"\nINSERT INTO {SINK}\n-- nothing\n;", 2),
        ("INSERT INTO {{ sink('db') }} select 1", 1),
        ("INSERT INTO {{ sink('db', name) }} select 1", 1),
        ("INSERT INTO {{ sink('db', 'x', a: 1, a: 1) }} select 1", 1),
        ("\nINSERT INTO {{ sink('db', 'x',\n a: 1,\n a: 1) }} select 1", 4),
    ],
)
def test_a_sink_anywhere_else_or_malformed_is_refused(text: str, line: int) -> None:
    problems = faults(text)
    assert {(problem.code, problem.file) for problem in problems} == {("PZ0208", FILE)}
    assert problems[0].line == line


@pytest.mark.parametrize(
    "head",
    [
        "INSERT INTO {{ s[:2] }}",
        "INSERT INTO {{ s | reverse }}",
        "INSERT INTO {{ s[:2] ~ '7' ~ s[-1:] }}",
        "INSERT INTO {{ s | replace('0', '') }}",
        "{{ s[:1] ~ '@99' ~ s[:1] }}",
    ],
)
def test_what_sink_returned_cannot_be_taken_apart(head: str) -> None:
    problems = faults("{% set s = sink('db', 'x') %}" + head + " select 1")
    assert {problem.code for problem in problems} == {"PZ0208"}


@pytest.mark.parametrize(
    ("sql", "clean"),
    [
        ("select 1", "select 1"),
        ("select 1;", "select 1"),
        ("select 1 ; \n\n", "select 1"),
        ("select 1; -- done", "select 1"),
        ("select 1 -- done", "select 1"),
        ("select 1 /* done */ ; /* really */ -- yes\n", "select 1"),
        ("select 1;; -- x\n ;", "select 1"),
        ("select 1; select 2;", "select 1; select 2"),
        ("select ';'", "select ';'"),
        ("select '--';", "select '--'"),
        ("select 'it''s --' -- x", "select 'it''s --'"),
        ('select "a;--" ;', 'select "a;--"'),
        ("select e'\\'--';", "select e'\\'--'"),
        ("select $$ ; -- $$;", "select $$ ; -- $$"),
        ("select $x$ $$ ; $x$ -- y", "select $x$ $$ ; $x$"),
        ("select 1 /* never closed ;", "select 1"),
        ("select 'never closed ; --", "select 'never closed ; --"),
        ("-- only\n;", ""),
        ("", ""),
        (";", ""),
    ],
)
def test_the_end_of_a_query_is_trimmed(sql: str, clean: str) -> None:
    assert without_end(sql) == clean


@pytest.mark.parametrize("text", ["", "  \n", "-- nothing", ";", "{# nothing #}", "{% if false %}select 1{% endif %}"])
def test_a_pipeline_without_a_query_is_refused(text: str) -> None:
    (problem,) = faults(text)
    assert problem.code == "PZ0104"


def test_every_line_of_sql_knows_its_line_in_the_file() -> None:
    text = """\
INSERT INTO {{ sink('db', 'x',
    strategy: 'replace') }}
{# two
   lines #}
select
{% for column in ['a', 'b'] %}
    {{ column }},
{% endfor %}
    1
from t
"""
    result = rendered(text)
    written = text.split("\n")
    for number, line in enumerate(result.sql.split("\n"), start=1):
        source_line = result.template_line(number)
        assert source_line is not None
        if line.strip() in ("a,", "b,"):
            assert written[source_line - 1].strip() == "{{ column }},"
        elif line.strip():
            assert written[source_line - 1].strip() == line.strip()
    assert result.template_line(0) is None
    assert result.template_line(1000) is None


def test_a_line_belongs_to_where_its_first_text_came_from() -> None:
    result = rendered("select 1 {% if true %}\n{% endif %} {% if true %} , 2{% endif %}\n, 3")
    assert result.sql.split("\n") == ["select 1 ", "  , 2", ", 3"]
    assert result.lines == (1, 2, 3)
    assert rendered("a {% if true %} {% endif %}{# \n #} {% if true %}b{% endif %}").lines == (1,)


def test_text_inside_a_captured_block_is_what_the_author_wrote() -> None:
    text = "{% set x %}ab{% endset %}{% macro m() %}cd{% endmacro %}select {{ x | length }}, {{ m() | length }}"
    assert rendered(text).sql == "select 2, 2"


@pytest.mark.parametrize(
    ("sql", "spelled"),
    [
        ("SELECT  a.b,1.5\n-- note\nFROM t", "SELECT a.b , 1.5 FROM t"),
        ("SELECT 1 .5", "SELECT 1 .5"),
        ("SELECT '--  x', \"a  b\", $$ /* $$", "SELECT '--  x' , \"a  b\" , $$ /* $$"),
        (" /* a /* b */ c */ SELECT 1", "SELECT 1"),
        ("SELECT a\t. b", "SELECT a . b"),
    ],
)
def test_blanks_and_comments_are_spelled_in_one_way(sql: str, spelled: str) -> None:
    assert without_blanks(sql) == spelled
