"""Small projects that tests run for real, and ways to look at what came out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

import pz
from projects import write
from pz.engine.result import RunResult
from pz.events import Event

CONNECTIONS = """
files:
  connector: localfiles
  root: data
lake:
  connector: localfiles
  root: out
"""


def project(root: Path, files: Mapping[str, str | bytes]) -> pz.OpenProject:
    """A project with connections ``files`` (data/) and ``lake`` (out/), unless ``files`` brings its own."""
    return pz.open_project(write(root, {"connections.yml": CONNECTIONS, **files}), environ={})


def run(opened: pz.OpenProject, *flows: str, **options: Any) -> RunResult:
    """Run everything (or the flows named)."""
    return opened.run(*flows, **{"everything": not flows and "select" not in options, **options})


def events_of(opened: pz.OpenProject, **options: Any) -> tuple[RunResult, list[dict[str, Any]]]:
    """Run everything and collect the events as they go over the wire."""
    seen: list[Event] = []
    result = run(opened, on_event=seen.append, **options)
    return result, [json.loads(json.dumps(event.to_wire())) for event in seen]


def statuses(result: RunResult) -> dict[str, str]:
    """Status by node name."""
    return {node.name: str(node.status) for node in result.nodes}


def errors(result: RunResult) -> dict[str, str]:
    """Code and message by node name, of the failed nodes."""
    return {node.name: f"{node.error.code} {node.error.message}" for node in result.nodes if node.error}


def rows(pattern: Path | str) -> list[tuple[Any, ...]]:
    """All rows of the files that a glob matches, sorted; parquet or csv by ending."""
    reader = "read_parquet" if str(pattern).endswith("parquet") else "read_csv"
    with duckdb.connect() as oracle:
        return sorted(oracle.execute(f"SELECT * FROM {reader}('{pattern}')").fetchall(), key=repr)
