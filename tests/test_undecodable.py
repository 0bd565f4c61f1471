"""Bytes that are no UTF-8, where an operating system hands them over: refused by name, never a crash."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import pz
from pz.sqltext import printable, unfit
from running import CONNECTIONS, project

BAD = os.fsdecode(b"a\xff")
COPY = (
    "INSERT INTO {{ sink('lake', 'o', strategy: 'replace') }}\nSELECT * FROM {{ source('files', 't', path: '*.csv') }}"
)


def refusal(opened: pz.OpenProject, **options: Any) -> tuple[str, str, str]:
    """Code, place and message of the one refusal; the message can be printed anywhere."""
    with pytest.raises(pz.ProjectError) as refused:
        opened.run(everything=True, **options)
    (problem,) = refused.value.problems
    problem.render().encode()
    return problem.code, problem.where, problem.message


@pytest.mark.parametrize("value", [BAD, ["x", BAD], {"k": BAD}, {BAD: 1}, "\ud800"])
def test_a_variable_is_refused(tmp_path: Path, value: object) -> None:
    opened = project(
        tmp_path, {"project.yml": "name: x\nversion: '1'\nvars: { v: 1 }\n", "pipelines/p.sql": "SELECT {{ var('v') }}"}
    )
    found = refusal(opened, vars={"v": value})
    assert found == ("PZ0104", "pipelines/p.sql:1", "variable 'v' is not UTF-8 text")


def test_an_environment_variable_is_refused_in_templates_and_in_connections(tmp_path: Path) -> None:
    files = {
        "connections.yml": CONNECTIONS.replace("root: data", "root: ${WHERE}"),
        "pipelines/p.sql": "SELECT '{{ env('WHAT') }}'",
    }
    folder = project(tmp_path, files).root
    opened = pz.open_project(folder, environ={"WHERE": BAD, "WHAT": "x"})
    assert refusal(opened) == ("PZ0103", "connections.yml:4", "environment variable 'WHERE' is not UTF-8 text")
    opened = pz.open_project(folder, environ={"WHERE": "data", "WHAT": BAD})
    assert refusal(opened) == ("PZ0103", "pipelines/p.sql:1", "environment variable 'WHAT' is not UTF-8 text")


def test_an_escape_in_a_template_is_refused(tmp_path: Path) -> None:
    opened = project(tmp_path, {"pipelines/p.sql": "SELECT '{{ '\\ud800' }}'"})
    code, where, message = refusal(opened)
    assert (code, where) == ("PZ0104", "pipelines/p.sql:1")
    assert "is not UTF-8 text" in message


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_a_file_is_refused_by_its_name(tmp_path: Path, ending: str) -> None:
    opened = project(tmp_path, {"data/t.txt": "", "pipelines/p.sql": COPY.replace("csv", ending)})
    (tmp_path / "data" / f"{BAD}.{ending}").write_bytes(b"")
    code, _, message = refusal(opened)
    assert code == "PZ0722"
    assert f"file 'a\\udcff.{ending}': its name is not UTF-8" in message


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_a_project_is_refused_by_its_path(tmp_path: Path) -> None:
    opened = project(tmp_path / BAD, {"pipelines/p.sql": "SELECT 1 AS one"})
    code, _, message = refusal(opened)
    assert code == "PZ0101"
    assert message.endswith("a\\udcff'")


def test_what_is_unfit_is_said_at_any_depth() -> None:
    assert unfit({"a": [1, None, ("x", "é\U0001f600")]}) is None
    assert unfit([{"a": "\x00"}]) == "holds a NUL character"
    assert printable("é" + BAD) == "éa\\udcff"
