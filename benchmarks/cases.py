"""The same move three ways: csv to parquet by plain DuckDB, by pz in one statement, by pz through staging."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmarks.data import COLUMNS
from benchmarks.measure import Measurement, measure
from pz.api import open_project

MEMORY_LIMIT = "1GiB"

PLAIN = """
import duckdb
duckdb.connect().execute("COPY (SELECT * FROM read_csv('{csv}')) TO 'plain.parquet' (FORMAT parquet)")
"""

PROJECT = f"""
name: benchmark
version: "1"
engine:
  duckdb:
    memory_limit: {MEMORY_LIMIT}
"""

CONNECTIONS = """
source:
  connector: localfiles
  entities:
    moved:
      read:
        path: {csv}
        format: csv
        columns: {{ {columns} }}
lake:
  connector: localfiles
  root: output
"""

PIPELINE = """
INSERT INTO {{ sink('lake', 'moved', format: 'parquet', strategy: 'replace') }}
SELECT * FROM {{ source('source', 'moved') }}
"""

# A check looks at the pipeline's relation, so the rows have to be staged.
SIDECAR = """
pipeline: moved
checks:
  - row_count: { min: 1 }
"""


def plain(csv: Path, directory: Path) -> Measurement:
    """What DuckDB alone does, as a process of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    return measure([sys.executable, "-c", PLAIN.format(csv=csv)], directory)


def project(csv: Path, directory: Path, *, staged: bool) -> Path:
    """A pz project that makes the move; return its directory."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "pipelines" / "configs").mkdir(parents=True)
    (directory / "project.yml").write_text(PROJECT)
    columns = ", ".join(f'{name}: "{kind}"' for name, kind in COLUMNS.items())
    (directory / "connections.yml").write_text(CONNECTIONS.format(csv=csv, columns=columns))
    (directory / "pipelines" / "moved.sql").write_text(PIPELINE)
    if staged:
        (directory / "pipelines" / "configs" / "moved.yml").write_text(SIDECAR)
    return directory


def pz(directory: Path) -> Measurement:
    """One `pz run` of a project, as a process of its own."""
    shutil.rmtree(directory / ".pz", ignore_errors=True)
    return measure([str(Path(sys.executable).with_name("pz")), "run", "--all"], directory)


def budget(directory: Path) -> int:
    """The peak memory, in bytes, that the plan of the project promises."""
    return open_project(directory).plan().budget.total
