"""References to environment variables: where they are substituted, and what they cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from projects import loaded, places, refused


def options(tmp_path: Path, value: str, environ: dict[str, str]) -> object:
    project = loaded(tmp_path, {"connections.yml": f"lake:\n  connector: x\n  o: {value}\n"}, environ=environ).project
    return project.connections["lake"].options["o"]


@pytest.mark.parametrize(
    ("written", "environ", "value"),
    [
        ("${A}", {"A": "5432"}, 5432),
        ("${A}", {"A": "true"}, True),
        ("${A}", {"A": "0123"}, "0123"),
        ("${A}", {"A": "1.10"}, "1.10"),
        ("${A}", {"A": "1.5"}, 1.5),
        ("${A}", {"A": "1e5"}, "1e5"),
        ("${A}", {"A": "+5"}, "+5"),
        ("'${A}'", {"A": "5432"}, "5432"),
        ("x${A}y${B}", {"A": "1", "B": "2"}, "x1y2"),
        ("5${A}", {"A": "4"}, 54),
        ("$${A}", {"A": "1"}, "${A}"),
        ("$${A}${A}", {"A": "1"}, "${A}1"),
        ("${A}", {"A": "${B}", "B": "no"}, "${B}"),
        ("${1A} $A ${A", {"A": "1"}, "${1A} $A ${A"),
        ("{p: ['${A}', {q: '${A}'}]}", {"A": "1"}, {"p": ["1", {"q": "1"}]}),
        ("${A}", {"A": ""}, ""),
    ],
)
def test_values_are_substituted_after_parsing(
    tmp_path: Path, written: str, environ: dict[str, str], value: object
) -> None:
    result = options(tmp_path, written, environ)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize("secret", ['a"b', "a'b", "a\nb: c", "x # y", ": {", "*a", "\ttab", "ü\u2028"])
def test_a_secret_cannot_change_the_structure_around_it(tmp_path: Path, secret: str) -> None:
    assert options(tmp_path, "${S}\n  other: 1", {"S": secret}) == secret


def test_unset_variables_are_named_and_hide_nothing(tmp_path: Path) -> None:
    files = {
        "project.yml": "name: demo\nversion: 1\nvars:\n  d: ${DAY}\nengine:\n  threads: 0\n",
        "connections.yml": "lake:\n  connector: x\n  host: ${HOST}:${PORT}\n",
    }
    problems = refused(tmp_path, files)
    assert places(problems) == [
        ("PZ0103", "connections.yml:3"),
        ("PZ0103", "connections.yml:3"),
        ("PZ0103", "project.yml:4"),
        ("PZ0120", "project.yml:6"),
    ]
    assert "'HOST'" in problems[0].message
    assert "set HOST" in problems[0].advice


def test_references_below_entities_are_literal_and_warned_about(tmp_path: Path) -> None:
    text = "lake:\n  connector: x\n  entities:\n    e:\n      read:\n        path: in/${DAY}.csv\n"
    result = loaded(tmp_path, {"connections.yml": text}, environ={"DAY": "1"})
    read = result.project.connections["lake"].entities["e"].read
    assert read is not None
    assert read.options == {"path": "in/${DAY}.csv"}
    (warning,) = result.warnings
    assert (warning.code, warning.where) == ("PZ0133", "connections.yml:6")
    assert "lake.e.read.path" in warning.message


def test_no_message_holds_a_value(tmp_path: Path) -> None:
    text = "lake:\n  connector: x\n  max_concurrency: 0\n  password: ${S}\n  port: {a: ${S}, a: ${S}}\n"
    for problem in refused(tmp_path, {"connections.yml": text}, environ={"S": "hunter2"}):
        assert "hunter2" not in problem.render()
