"""A template can neither reach out of its sandbox nor run or grow without end: it fails with PZ0104 and a line."""

from __future__ import annotations

import pytest

from rendering import FILE, faults

ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ this.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ source.__globals__ }}",
    "{{ source.__self__ }}",
    "{{ source.__func__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ [].append.__self__ }}",
    "{{ 'a'.replace.func }}",
    "{{ ''.format.__self__ }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ ''|attr('__class__') }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ self }}",
    "{{ self.__init__ }}",
    "{{ cycler }}",
    "{{ lipsum }}",
    "{{ range.__self__ }}",
    "{{ open('/etc/passwd') }}",
    "{{ import('os') }}",
    "{% include 'x.sql' %}",
    "{% import 'x.sql' as x %}",
    "{% from 'x.sql' import x %}",
    "{% extends 'x.sql' %}",
    "{% for i in [1] %}{{ loop._iterable }}{% endfor %}",
    "{{ joiner }}",
    "{{ dict }}",
]

ENDLESS = [
    "{% for i in range(1000000000) %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}" + "x" * 2000 + "{% endfor %}",
    "{% for i in range(90000) %}{% set x %}" + "y" * 2000 + "{% endset %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{{ 'x' * 10 ** 10 }}",
    "{{ 10 ** 10 * 'x' }}",
    "{{ [1] * 10 ** 10 }}",
    "{{ 99 ** 99 ** 99 }}",
    "{{ 2 ** 100000 }}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x | replace('a', 'aa') %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x.replace('a', 'aa') %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x.join([n.x, n.x]) %}{% endfor %}",
    "{{ '%999999999d' % 1 }}",
    "{{ 'x'.center(999999999) }}",
    "{{ 'x' | center(999999999) }}",
    "{{ 'x' | indent(999999999) }}",
    "{{ range(100000) | batch(1) | list }}",
]

BROKEN = [
    "{{",
    "{{ }}",
    "{% if %}",
    "{% endif %}",
    "{% for %}",
    "{% unknown %}",
    "{{ 1 / 0 }}",
    "{{ 'a' + 1 }}",
    "{{ [1][5] }}",
    "{{ x | nothing }}",
    "{{ x is nothing }}",
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "{{ " + "+".join(["1"] * 3000) + " }}",
    "{{ " + "9" * 5000 + " }}",
    "{% if 1 %}" * 200 + "{% endif %}" * 200,
    "{{ source }}",
    "{{ 'unclosed }}",
    "{{ f(a: ) }}",
    "{{ '\\x00' }}",
    "select '{{ '\\x00>0\\x00' }}'",
]


@pytest.mark.parametrize("text", ESCAPES + ENDLESS + BROKEN)
def test_it_ends_with_an_error_of_the_template(text: str) -> None:
    problems = faults(f"select 1\n{text}")
    assert {(problem.code, problem.file) for problem in problems} == {("PZ0104", FILE)}


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("select 1,\n{{ souce('a', 'b') }}", 2, "did you mean 'source'?"),
        ("select 1,\n{{ Run_id }}", 2, "did you mean 'run_id'?"),
        ("select 1,\n\n{{ anything }}", 3, "a template may call source(), ref(), sink(), watermark(), var(), env()"),
        ("select 1\n{% if %}", 2, ""),
        ("select\n\n{{ 1\n/ 0 }}", 3, ""),
        ("{% for i in [1] %}\n{{ i.x.y }}\n{% endfor %}", 2, ""),
        ("{% macro f() %}\n{{ 1 / 0 }}\n{% endmacro %}\n{{ f() }}", 2, ""),
        ("select {{ 'a' | shout }}", 1, "the filters are"),
    ],
)
def test_the_error_points_to_the_line_in_the_file(text: str, line: int, hint: str) -> None:
    (problem,) = faults(text)
    assert (problem.code, problem.line) == ("PZ0104", line)
    assert hint in problem.advice


def test_what_env_gave_out_is_in_no_message() -> None:
    (problem,) = faults("select {{ {}[env('TOKEN')] }}", {"TOKEN": "hunter2"})
    assert "hunter2" not in problem.render()
    assert "***" in problem.message
