"""Looking at staged rows: of a past run, or of a fresh preview that writes nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pz.errors import Code, Problem, ProjectError, StateError
from pz.sqltext import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from pz.engine.result import RunResult
    from pz.graph.model import Graph
    from pz.project.model import Project

__all__ = ["preview", "read_run", "read_staged"]

_RELATIONS = """
SELECT table_name FROM information_schema.tables WHERE table_catalog = 'run' AND table_schema = 'staging' ORDER BY ALL
"""
_MOST = 2**63 - 1
"""The highest LIMIT that DuckDB takes; nothing has more rows."""


def read_staged(run_dir: Path, name: str, limit: int | None = None) -> pa.Table:
    """Rows of a staged relation.

    Raises StateError PZ0708 when the database is gone or cannot be opened, ProjectError PZ0210 when it has no such relation.
    """
    from pz.staging.session import STAGING_FILE, StagingSession

    if not (run_dir / STAGING_FILE).exists():
        message = (
            f"what run '{run_dir.name}' staged is gone: a retention or `pz clean` has removed it, or the run died first"
        )
        raise StateError(Problem(Code.PZ0708, message, hint=f"preview the rows as they are now with: pz show {name}"))
    with StagingSession.open_read_only(run_dir) as session, session.cursor() as cursor:
        known = [found for (found,) in cursor.execute(_RELATIONS).fetchall()]
        if name not in known:
            raise ProjectError(_not_staged(run_dir.name, name, known))
        amount = "" if limit is None else f" LIMIT {min(limit, _MOST)}"
        return cursor.sql(f"SELECT * FROM staging.{quote(name)}{amount}").to_arrow_table()


def read_run(root: Path, run_id: str, name: str, limit: int) -> pa.Table:
    """Rows of a relation of a past run of the project."""
    from pz.runs.history import find

    entry = find(root / ".pz", run_id)
    if entry is None:
        raise ProjectError(Problem(Code.PZ0502, f"there is no run '{run_id}'", hint="list the runs with: pz runs"))
    return read_staged(entry.path, name, limit)


def _not_staged(run_id: str, name: str, known: list[str]) -> Problem:
    from pz.project.nearmiss import near_miss

    close = near_miss(name, known)
    hint = (
        f"did you mean '{close}'?"
        if close
        else (
            "an ephemeral pipeline and a chain in one statement stage nothing; see the rows as they are now with: "
            f"pz show {name} (from Python: show({name!r}))"
        )
    )
    return Problem(Code.PZ0210, f"run '{run_id}' staged no '{name}'", hint=hint)


def preview(root: Path, environ: Mapping[str, str], pipeline: str, limit: int) -> pa.Table:
    """Run a pipeline and what it needs in a scratch folder, and return its first rows.

    No sink is written, no state is read or stored, and no run is left behind: the last run stays the last run.
    """
    from pz.connectors.contract import CancelToken
    from pz.engine.prepare import Request, prepare
    from pz.engine.run import execute
    from pz.events import EventBus
    from pz.graph.model import NodeKind
    from pz.project.nearmiss import near_miss

    def chosen(graph: Graph) -> frozenset[str]:
        node = graph.by_name.get((NodeKind.PIPELINE, pipeline))
        if node is None:
            known = [*(name for kind, name in graph.by_name if kind is NodeKind.PIPELINE), *graph.ephemeral]
            close = near_miss(pipeline, known)
            hint = f"did you mean '{close}'?" if close is not None else "list them with: pz ls"
            raise ProjectError(Problem(Code.PZ0210, f"there is no pipeline '{pipeline}'", hint=hint))
        return graph.ancestors([node.id])

    request = Request("show")
    prepared = prepare(root, environ, request, choose=chosen, adapt=partial(_as_node, pipeline))
    with _scratch(root) as scratch:
        project = replace(prepared.project, scratch=scratch)
        result = execute(replace(prepared, project=project), request, EventBus(), CancelToken())
        return _first_rows(result, pipeline, limit)


def _as_node(name: str, project: Project) -> Project:
    """The project with an ephemeral pipeline of that name as a view, so that it has rows to look at."""
    from pz.project.model import Materialization

    found = project.pipelines.get(name)
    if found is None or found.materialization is not Materialization.EPHEMERAL:
        return project
    seen = replace(found, materialization=Materialization.VIEW)
    return replace(project, pipelines={**project.pipelines, name: seen})


def _first_rows(result: RunResult, pipeline: str, limit: int) -> pa.Table:
    failed = next((node for node in result.nodes if node.error is not None), None)
    if failed is not None and failed.error is not None:
        raise ProjectError(Problem(Code(failed.error.code), f"'{failed.name}': {failed.error.message}"))
    return read_staged(result.run_dir, pipeline, limit)


@contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """A folder on the project's own disk, which is gone afterwards."""
    parent = root / ".pz" / "tmp"
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="preview-", dir=parent) as folder:
        yield Path(folder)
