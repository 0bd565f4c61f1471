"""Renders templates without files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pz.errors import Problem, Problems
from pz.project.model import ConnectionDecl, EntityDecl, Location, Materialization, PipelineDecl, Project
from pz.project.templates import Rendered, render

FILE = "pipelines/orders.sql"


def project(
    text: str,
    *,
    variables: Mapping[str, Any] | None = None,
    entities: Mapping[str, EntityDecl] | None = None,
    materialization: Materialization = Materialization.TABLE,
) -> Project:
    """A project with connections ``lake`` and ``db`` and pipelines ``orders`` (the text), ``daily`` and ``inlined``."""
    pipelines = {
        "orders": PipelineDecl("orders", text, Location(FILE), materialization),
        "daily": PipelineDecl("daily", "select 1", Location("pipelines/daily.sql")),
        "inlined": PipelineDecl("inlined", "select 1", Location("pipelines/i.sql"), Materialization.EPHEMERAL),
    }
    connections = {
        "lake": ConnectionDecl("lake", "localfiles", entities=entities or {}),
        "db": ConnectionDecl("db", "duckdb"),
    }
    return Project(Path(), "demo", "1", vars=variables or {}, connections=connections, pipelines=pipelines)


def attempt(text: str, environ: Mapping[str, str] | None = None, **options: Any) -> tuple[Rendered, Problems]:
    """Render and return the problems as well."""
    made = project(text, **options)
    problems = Problems()
    return render(made, made.pipelines["orders"], environ or {}, problems), problems


def rendered(text: str, environ: Mapping[str, str] | None = None, **options: Any) -> Rendered:
    """Render a template that is right."""
    result, problems = attempt(text, environ, **options)
    assert not problems.errors, problems.errors
    return result


def faults(text: str, environ: Mapping[str, str] | None = None, **options: Any) -> tuple[Problem, ...]:
    """The errors of a template, in order."""
    return attempt(text, environ, **options)[1].errors
