"""What the functions of a template render, and what they record."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pz.connectors.contract import OnDelete, SchemaPolicy, WriteStrategy
from pz.project.model import (
    EntityDecl,
    Location,
    Materialization,
    NullCursor,
    ReadDecl,
    RetrySettings,
    SyncMode,
    WriteDecl,
)
from pz.project.templates import RefCall, SinkCall, SourceCall, WatermarkCall
from rendering import FILE, attempt, faults, rendered


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("select * from {{ source('lake', 'orders') }}", "select * from staging.src_lake__orders"),
        ("select * from {{ source('db', 'main.Order-Lines') }}", "select * from staging.src_db__main_Order_Lines"),
        ("select * from {{ source(\n  'db',\n  'x'\n) }}", "select * from staging.src_db__x"),
        ("select * from {{ ref('daily') }}", "select * from staging.daily"),
        ("select * from {{ ref('inlined') }}", "select * from __pz_cte__inlined"),
        ("select * from {{ this }}", "select * from staging.orders"),
        ("select '{{ run_id }}', '{{ run_started_at }}'", "select '__pz_run_id__', '__pz_run_started_at__'"),
        ("select {{ watermark('lake', 'a.b') }}", "select '__pz_watermark__:lake.a.b'"),
        ("select {{ watermark('lake', \"it's\") }}", "select '__pz_watermark__:lake.it''s'"),
        ("select '{{ env('DAY') }}'", "select 'monday'"),
        ("select {{ var('n') }}, {{ var('f') }}, {{ var('x') }}", "select 3, true, 1.5"),
        ("select {{ var('names') }}", "select ['a', 'b''c', NULL]"),
        ("select {{ var('m').k }}, {{ var('m') }}", "select v, {'k': 'v'}"),
        ("select {{ none }}", "select NULL"),
        ("select {{ var('huge') }}", "select 'inf'::DOUBLE"),
        ("{% if var('f') %}select 1{% else %}select 2{% endif %}", "select 1"),
        ("select {% for c in var('names')[:2] %}{{ c }}{{ ', ' if not loop.last }}{% endfor %}", "select a, b'c"),
        ("{% set n = 1 + 1 %}select {{ n ~ 'x' }}", "select 2x"),
        ("{% macro f(a) %}{{ a * 2 }}{% endmacro %}select {{ f(4) }}", "select 8"),
        ("select {{ ['b', 'a'] | sort | join(', ') | upper }}", "select A, B"),
        ("{# a remark #}select 1", "select 1"),
        ("{% raw %}select '{{ x }}'{% endraw %}", "select '{{ x }}'"),
        ("select {{ range(3) | list }}", "select [0, 1, 2]"),
        (
            "{% set ns = namespace(n: 0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}select {{ ns.n }}",
            "select 3",
        ),
    ],
)
def test_what_a_call_renders(text: str, sql: str) -> None:
    variables = {"n": 3, "f": True, "x": 1.5, "names": ["a", "b'c", None], "m": {"k": "v"}, "huge": float("inf")}
    assert rendered(text, {"DAY": "monday"}, variables=variables).sql == sql


def test_calls_are_recorded_once_with_their_line() -> None:
    text = """\
select *
from {{ source('lake', 'a') }} a
join {{ source('lake', 'a') }} b using (id)
join {{ ref('daily') }} using (id)
where a.t > {{ watermark(
  'lake', 'a') }}
"""
    result = rendered(text)
    assert result.sources == (
        SourceCall("lake", "a", None, Location(FILE, 2)),
        SourceCall("lake", "a", None, Location(FILE, 3)),
    )
    assert result.refs == (RefCall("daily", Location(FILE, 4)),)
    assert result.watermarks == (WatermarkCall("lake", "a", Location(FILE, 5)),)
    assert not result.uses_run_constants


def test_a_call_in_a_loop_is_recorded_once_per_entity() -> None:
    text = "{% for n in ['a', 'b', 'a'] %}\nselect * from {{ source('lake', n) }}\n{% endfor %}"
    assert rendered(text).sources == (
        SourceCall("lake", "a", None, Location(FILE, 2)),
        SourceCall("lake", "b", None, Location(FILE, 2)),
    )


@pytest.mark.parametrize("text", ["select '{{ run_id }}'", "select '{{ run_started_at }}'"])
def test_run_constants_are_noticed(text: str) -> None:
    assert rendered(text).uses_run_constants


READ_WITH_COLONS = """\
select * from {{ source('db', 'a',
    path: 'x.csv',
    columns: { id: 'int', amount: 'decimal' },
    sync: { mode: 'incremental', cursor: 'id', initial: 0, null_cursor: 'refuse', lookback: 5 },
    retry: { max_attempts: 7, base_delay: '2s' },
    nested: { list: [1, 'two', { three: true }] }) }}
"""
READ_WITH_EQUALS = """\
select * from {{ source('db', 'a', path='x.csv', columns={'id': 'int', 'amount': 'decimal'},
    sync={'mode': 'incremental', 'cursor': 'id', 'initial': 0, 'null_cursor': 'refuse', 'lookback': 5},
    retry={'max_attempts': 7, 'base_delay': '2s'}, nested={'list': [1, 'two', {'three': true}]}) }}
"""


@pytest.mark.parametrize("text", [READ_WITH_COLONS, READ_WITH_EQUALS])
def test_options_of_a_source_are_its_read_declaration_in_either_spelling(text: str) -> None:
    (call,) = rendered(text).sources
    read = call.decl
    assert read is not None
    assert read.options == {"path": "x.csv", "nested": {"list": [1, "two", {"three": True}]}}
    assert read.columns == {"id": "int", "amount": "decimal(38,9)"}
    assert (read.sync.mode, read.sync.explicit, read.sync.cursor) == (SyncMode.INCREMENTAL, True, "id")
    assert (read.sync.initial, read.sync.lookback, read.sync.null_cursor) == ("0", "5", NullCursor.REFUSE)
    assert read.retry == RetrySettings(max_attempts=7, base_delay=timedelta(seconds=2))


def test_options_of_a_sink_are_its_write_declaration() -> None:
    text = """\
INSERT INTO {{ sink('db', 'main.out', strategy: 'merge', keys: ['a', 'b'], duplicates: 'accept', dedupe_by: 't',
    on_delete: 'soft', schema_policy: 'additive', partition_by: 'day') }}
select 1
"""
    (call,) = rendered(text).sinks
    write = call.decl
    assert write is not None
    assert (write.strategy, write.keys, write.on_delete) == (WriteStrategy.MERGE, ("a", "b"), OnDelete.SOFT)
    assert (write.duplicates_accepted, write.dedupe_by) == (True, "t")
    assert write.schema_policy is SchemaPolicy.ADDITIVE
    assert write.options == {"partition_by": "day"}


def test_a_slice_and_a_dictionary_key_keep_their_colon() -> None:
    assert rendered("select {{ 'abcd'[1:3] }}, {{ {'a': 1}['a'] }}, {{ {a: 2}.a }}").sql == "select bc, 1, 2"


@pytest.mark.parametrize(
    ("call", "code", "hint"),
    [
        ("source('lake')", "PZ0201", "with the quotes"),
        ("source('lake', 'a', 'b')", "PZ0201", "with the quotes"),
        ("source('lake', orders)", "PZ0201", "with the quotes"),
        ("source('lake', 5)", "PZ0201", "with the quotes"),
        ("source()", "PZ0201", "with the quotes"),
        ("source('laek', 'a')", "PZ0201", "did you mean 'lake'?"),
        ("source('Lake', 'a')", "PZ0201", "did you mean 'lake'?"),
        ("source('ocean', 'a')", "PZ0201", "connections.yml"),
        ("source('lake', 'a', x: 1, x: 2)", "PZ0201", "keep one"),
        ("source('lake', 'a', x: word)", "PZ0201", "quotes"),
        ("source('lake', '')", "PZ0344", "remote system"),
        ("source('lake', 'a..b')", "PZ0344", "remote system"),
        ("source('lake', 'a b')", "PZ0344", "remote system"),
        ("source('lake', '.a')", "PZ0344", "remote system"),
        ("source('lake', 'a', rate_limit: 5)", "PZ0318", "on the connection"),
        ("source('lake', 'a', max_concurrency: 5)", "PZ0122", "on the connection"),
        ("source('lake', 'a', sync: 'cdc')", "PZ0334", "mode: incremental"),
        ("source('lake', 'a', sync: { mode: 'cdc', cursor: 'x' })", "PZ0334", "slot"),
        ("source('lake', 'a', sync: { mode: 'incremental' })", "PZ0334", "name the column"),
        ("source('lake', 'a', retry: { max_attempts: 0 })", "PZ0121", ""),
        ("source('lake', 'a', columns: ['a'])", "PZ0101", ""),
        ("source('lake', 'a', columns: { a: 'quux' })", "PZ0101", "DuckDB type"),
        ("ref()", "PZ0201", "with the quotes"),
        ("ref('dialy')", "PZ0201", "did you mean 'daily'?"),
        ("ref('nothing')", "PZ0201", "pipelines/nothing.sql"),
        ("ref('daily', 'x')", "PZ0201", "with the quotes"),
        ("watermark('lake')", "PZ0201", "with the quotes"),
        ("watermark('lake', 'a', x: 1)", "PZ0201", "source()"),
        ("watermark('nope', 'a')", "PZ0201", "connections.yml"),
        ("env('HOME')", "PZ0103", "set HOME"),
        ("env()", "PZ0104", "with the quotes"),
        ("var('dya')", "PZ0104", "did you mean 'day'?"),
        ("var('other')", "PZ0104", "below vars:"),
        ("var(day)", "PZ0104", "with the quotes"),
        ("var('nul')", "PZ0104", "remove the character"),
    ],
)
def test_a_faulty_call_has_its_code_line_and_hint(call: str, code: str, hint: str) -> None:
    (problem,) = faults(f"select 1,\n\n{{{{ {call} }}}}", variables={"day": 1, "nul": [{"a": "\x00>0\x00"}]})
    assert (problem.code, problem.file, problem.line) == (code, FILE, 3)
    assert hint in problem.advice


def test_all_faulty_calls_of_a_template_come_together_each_on_its_line() -> None:
    text = "select {{ var('a') }},\n{{ env('B') }}\nfrom {{ source('c', 'd') }},\n{{ ref('e') }}, {{ source(\n'lake', '') }}"
    assert [(fault.code, fault.line) for fault in faults(text)] == [
        ("PZ0104", 1),
        ("PZ0103", 2),
        ("PZ0201", 3),
        ("PZ0201", 4),
        ("PZ0344", 4),
    ]


def test_an_option_close_to_an_engine_key_draws_a_warning() -> None:
    text = "INSERT INTO {{ sink('db', 'x', stratgy: 'merge') }}\nselect * from {{ source('lake', 'a', synk: {}) }}"
    _, problems = attempt(text)
    assert not problems.errors
    assert [(warning.code, warning.line, warning.hint) for warning in problems.warnings] == [
        ("PZ0208", 1, "did you mean 'strategy'?"),
        ("PZ0201", 2, "did you mean 'sync'?"),
    ]


def test_options_on_both_surfaces_are_refused_even_when_identical() -> None:
    entities = {
        "a": EntityDecl("a", read=ReadDecl(options={"path": "x"}, location=Location("connections.yml", 7))),
        "b": EntityDecl("b", write=WriteDecl(location=Location("connections.yml", 9))),
    }
    text = (
        "INSERT INTO {{ sink('lake', 'b', strategy: 'append') }}\nselect * from {{ source('lake', 'a', path: 'x') }},\n"
        "{{ source('lake', 'b', path: 'y') }}"
    )
    problems = faults(text, entities=entities)
    assert [(problem.code, problem.line) for problem in problems] == [("PZ0341", 1), ("PZ0341", 2)]
    assert "connections.yml:9" in problems[0].message
    assert not faults("select * from {{ source('lake', 'a') }}", entities=entities)


def test_one_dataset_cannot_have_two_sets_of_options() -> None:
    text = "select * from {{ source('lake', 'a', x: 1) }},\n{{ source('lake', 'a') }},\n{{ source('lake', 'a', x: 2) }}"
    assert [(fault.code, fault.line) for fault in faults(text)] == [("PZ0341", 3)]


def test_an_ephemeral_pipeline_cannot_write() -> None:
    text = "INSERT INTO {{ sink('db', 'x') }} select 1"
    (problem,) = faults(text, materialization=Materialization.EPHEMERAL)
    assert (problem.code, problem.line) == ("PZ0208", 1)


def test_a_template_cannot_change_the_variables_of_another() -> None:
    variables = {"names": ["a"]}
    assert rendered("{% set n = var('names') %}{% set _ = n.append('b') %}select {{ n }}", variables=variables).sql == (
        "select ['a', 'b']"
    )
    assert variables == {"names": ["a"]}


def test_sink_calls_are_recorded_in_order() -> None:
    text = "INSERT INTO [{{ sink('db', 'x') }}, {{ sink('lake', 'y', strategy: 'replace') }}]\nselect 1"
    first, second = rendered(text).sinks
    assert first == SinkCall("db", "x", None, Location(FILE, 1))
    assert (second.connection, second.entity) == ("lake", "y")
    assert second.decl is not None
    assert second.decl.strategy is WriteStrategy.REPLACE
