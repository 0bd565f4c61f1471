"""What the TAB key offers from the project: names of nodes, pipelines, datasets, runs and connectors.

A TAB never prints and never fails: of a project that cannot be read it offers what can be told all the same, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pz.graph.model import Graph

__all__ = ["captures", "connectors", "datasets", "nodes", "pipelines", "runs", "stored"]

Names = Callable[[Path], Iterable[str]]


def _never_failing(names: Names) -> Names:
    @wraps(names)
    def found(root: Path) -> Iterable[str]:
        try:
            return sorted(set(names(root)))
        except Exception:  # noqa: BLE001 - whatever is wrong with the project, the line that is being typed must stay as it is
            return []

    return found


@_never_failing
def pipelines(root: Path) -> Iterable[str]:
    """By their files, which a project has whose YAML or SQL is faulty, too."""
    return (file.stem for file in (root / "pipelines").rglob("*.sql"))


@_never_failing
def nodes(root: Path) -> Iterable[str]:
    """What can be selected by name; of a project that does not compile, its pipelines."""
    try:
        return [node.name for node in _graph(root).nodes]
    except Exception:  # noqa: BLE001 - the line must stay as it is here, too
        return pipelines(root)


@_never_failing
def datasets(root: Path) -> Iterable[str]:
    """Keys of all datasets that are read."""
    return (source.key for source in _graph(root).sources())


@_never_failing
def stored(root: Path) -> Iterable[str]:
    """Keys of the datasets that have state."""
    from pz.api import open_project

    return (entry.key for entry in open_project(root).state.show())


@_never_failing
def captures(root: Path) -> Iterator[str]:
    """Keys of the datasets that are read by change capture, and of those that have a token."""
    from pz.api import open_project
    from pz.project.model import SyncMode

    yield from (shown.key for shown in open_project(root).state.show() if shown.kind.startswith("token"))
    yield from (source.key for source in _graph(root).sources() if source.read.sync.mode is SyncMode.CDC)


@_never_failing
def runs(root: Path) -> Iterable[str]:
    """Ids of past runs."""
    from pz.api import open_project

    return (run.run_id for run in open_project(root).runs())


@_never_failing
def connectors(root: Path) -> Iterable[str]:
    """What is installed."""
    from pz.connectors.registry import Registry

    return Registry.default().names()


def _graph(root: Path) -> Graph:
    from pz.api import open_project

    return open_project(root).compile().graph
