"""Whatever a project's files hold, loading and rendering end with a project or with coded problems, never otherwise."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pz.errors import ProjectError
from pz.project.loader import load
from pz.project.settings import parse_vars_option
from rendering import attempt
from test_project_jsonschema import FULL

TEMPLATE = """\
-- remark
INSERT INTO [{{ sink('db', 'main.x', strategy: 'merge', keys: ['id'], retry: { max_attempts: 3 }) }}, {{ sink('lake', 'y') }}]
{% set names = var('names') %}{% macro m(a, b=2) %}{{ a * b }}{% endmacro %}
select {% for n in names %}{{ n | upper }}{{ ',' if not loop.last }}{% endfor %}, '{{ run_id }}', {{ m(3) }}
from {{ source('lake', 'a', columns: { id: 'int', t: 'timestamptz' }, sync: { mode: 'incremental', cursor: 'id' }) }} s
join {{ ref('daily') }} d using (id) join {{ ref('inlined') }} using (id)
where id > {{ watermark('lake', 'a') }} and day = '{{ env('DAY') }}' {# done #};
"""
PIECES = [
    "{", "}", "{{", "}}", "{%", "%}", "[", "]", "(", ")", ":", ",", "'", '"', "\n", "\t", " ", "-", "&a", "*a", "<<", "!!x",
    "|", ">", "#", "\x00", "\ufeff", "\u2028", "\x85", "ü", "\ud800", "0", "-1", "1e999", "null", "~", "true", "${A}", "$${",
    "${", "---", "...", "{#", "#}", "--", "/*", "*/", ";", "__class__", "sink(", "source(", "=", "~", "**", "99999999999",
    "9" * 40, "loop", "none", "%", "\\", "\\x00", "?", "- ", "a" * 300,
]  # fmt: skip

relaxed = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def mutated(draw: st.DrawFn, original: str) -> str:
    """The original with a few cuts, copies and insertions."""
    text = original
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        middle = draw(st.sampled_from([*PIECES, "", text[start:end] * 2]))
        text = text[:start] + middle + text[end:]
    return text


def outcome(files: dict[str, str]) -> None:
    """Load; a refusal names files and renders."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            load(folder, environ={"A": "x: ['\n"})
        except ProjectError as error:
            for problem in error.problems:
                assert problem.file is not None
                assert problem.render()


@pytest.mark.parametrize("file", [name for name in FULL if name.endswith(".yml")])
@relaxed
@given(data=st.data())
def test_mutated_yaml(file: str, data: st.DataObject) -> None:
    outcome({**FULL, file: data.draw(mutated(FULL[file]))})


@relaxed
@given(text=mutated(TEMPLATE))
def test_mutated_templates(text: str) -> None:
    result, problems = attempt(text, {"DAY": "monday"}, variables={"names": ["a", "b"]})
    assert problems.errors or result.sql
    for problem in problems.errors:
        assert problem.file is not None
        assert problem.line is None or 0 < problem.line <= text.count("\n") + 1


@relaxed
@given(text=st.text(max_size=200))
def test_any_text_as_yaml_as_template_and_as_variables(text: str) -> None:
    outcome(
        {**FULL, "project.yml": text, "connections.yml": text, "pipelines/p.sql": text, "pipelines/configs/p.yml": text}
    )
    attempt(text)
    with contextlib.suppress(ProjectError):
        parse_vars_option(text)


def test_the_unmutated_template_is_fine() -> None:
    result, problems = attempt(TEMPLATE, {"DAY": "monday"}, variables={"names": ["a", "b"]})
    assert not problems.errors
    assert len(result.sinks) == 2
