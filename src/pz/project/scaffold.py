"""Start a project from a template that ships with the package (`pz init`)."""

from __future__ import annotations

import json
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pz.errors import Code, Problem, ProjectError
from pz.frozen import frozen

__all__ = ["TemplateInfo", "create", "templates"]

PROJECT_NAME = '"@PROJECT@"'
"""Stands in a template's ``project.yml`` where the name of the new project goes, quotes included."""


@frozen
class TemplateInfo:
    """A template and, in a line, what it shows; ``first`` is a command that its first run needs beside it."""

    name: str
    summary: str
    first: str | None = None


def templates() -> tuple[TemplateInfo, ...]:
    """The templates; the first is the default of `pz init`."""
    return (
        TemplateInfo("minimal", "One csv file, one pipeline, one output."),
        TemplateInfo("sample", "Real flights: staging, a checked join, an aggregate, and three outputs."),
        TemplateInfo(
            "http",
            "Three web APIs, played by a server that comes along: pages, a feed, a cursor, and rows sent back.",
            first="python server.py",
        ),
        TemplateInfo("incremental", "Reads only what is new since the last run and merges it into a DuckDB file."),
    )


def create(target: Path, template: str) -> list[Path]:
    """Fill the directory ``target``, which must be absent or empty, from a template; return the files written.

    The project is named after the directory. Files that the package's installation made read-only or executable become
    ordinary files. Raises `ProjectError`: PZ0131 for an unknown template, PZ0130 for a target that is not empty or
    not a directory. Nothing is written then.
    """
    _check_template(template)
    _check_target(target)
    written: list[Path] = []
    target.mkdir(parents=True, exist_ok=True)
    _copy(files("pz.project") / "scaffolds" / template, target, target.resolve().name, written)
    return written


def _check_template(template: str) -> None:
    known = [info.name for info in templates()]
    if template not in known:
        near = get_close_matches(template, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known)}"
        raise ProjectError(Problem(Code.PZ0131, f"there is no template {template!r}", hint=hint))


def _check_target(target: Path) -> None:
    if target.is_dir():
        if any(target.iterdir()):
            raise ProjectError(Problem(Code.PZ0130, f"the directory {str(target)!r} is not empty"))
    elif target.exists() or target.is_symlink():
        raise ProjectError(Problem(Code.PZ0130, f"{str(target)!r} exists and is not a directory"))


def _copy(source: Traversable, target: Path, name: str, written: list[Path]) -> None:
    for entry in sorted(source.iterdir(), key=lambda entry: entry.name):
        if entry.name == "__pycache__":
            continue
        destination = target / entry.name
        if entry.is_dir():
            destination.mkdir()
            _copy(entry, destination, name, written)
        else:
            destination.write_bytes(_content(entry, name))  # durable: ok - made anew by another init
            written.append(destination)


def _content(entry: Traversable, name: str) -> bytes:
    if entry.name != "project.yml":
        return entry.read_bytes()
    return entry.read_text(encoding="utf-8").replace(PROJECT_NAME, json.dumps(name)).encode()
