"""Small projects on disk for tests of the graph: a dictionary of files becomes a compiled graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from pz.errors import Problem, ProjectError
from pz.graph.compiler import Compiled, compile_project
from pz.project.loader import load

PROJECT = "name: demo\nversion: '1'\n"
CONNECTIONS = """\
crm: { connector: duckdb, path: crm.db }
lake: { connector: localfiles, root: out }
"""


def write_project(folder: Path, files: dict[str, str]) -> Path:
    """Write ``files`` (name -> text) below ``folder``; pipelines may be named without folder and suffix."""
    for name, text in {"project.yml": PROJECT, "connections.yml": CONNECTIONS, **files}.items():
        path = folder / (name if "." in name else f"pipelines/{name}.sql")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def compiled(folder: Path, files: dict[str, str]) -> Compiled:
    """Load and compile a project that is fine."""
    return compile_project(load(write_project(folder, files), environ={}).project, {})


def refused(folder: Path, files: dict[str, str]) -> tuple[Problem, ...]:
    """The errors of a project that is not."""
    with pytest.raises(ProjectError) as caught:
        compiled(folder, files)
    return caught.value.problems
