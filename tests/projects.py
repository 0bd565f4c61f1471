"""Makes small projects on disk for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pz.errors import Code, Problem, ProjectError
from pz.project.loader import Loaded, load

MINIMAL = {"project.yml": "name: demo\nversion: 1.0.0\n"}


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files, given as relative path -> content, over a minimal project."""
    for name, content in {**MINIMAL, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def loaded(root: Path, files: Mapping[str, str | bytes], **options: Any) -> Loaded:
    """Write and load; the environment is empty unless given."""
    return load(write(root, files), **{"environ": {}, **options})


def refused(root: Path, files: Mapping[str, str | bytes], **options: Any) -> tuple[Problem, ...]:
    """Write, load and return the problems that refuse the project."""
    with pytest.raises(ProjectError) as caught:
        loaded(root, files, **options)
    return caught.value.problems


def places(problems: tuple[Problem, ...]) -> list[tuple[Code, str]]:
    """Code and ``file:line`` of every problem."""
    return [(problem.code, problem.where) for problem in problems]
