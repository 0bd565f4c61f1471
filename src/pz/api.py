"""The Python API, which the command line is a thin layer over.

    import pz

    project = pz.open_project("demo")
    result = project.run("flights_enriched")
    result.status, result.exit_code
    result.table("flights_enriched")          # a pyarrow.Table of what the run staged

Every method loads the project afresh, so a notebook sees its edits. Whatever is refused raises a `pz.PzError` that carries
its problems, codes and hints; a run that fails half-way returns a result that says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pz.arguments import Selection, checked, united
from pz.connectors.contract import CancelToken
from pz.engine.result import RunResult
from pz.errors import Code, Problem, ProjectError
from pz.events import Event, EventBus
from pz.frozen import frozen

if TYPE_CHECKING:
    import pyarrow as pa

    from pz.engine.capture_verbs import ShownCapture
    from pz.graph.compiler import Compiled
    from pz.plan.model import Plan
    from pz.project.loader import Loaded
    from pz.runs.history import RunEntry
    from pz.runs.retention import CleanReport
    from pz.state.verbs import Change, ShownState

__all__ = ["CancelToken", "OpenProject", "ProjectCapture", "ProjectState", "RunResult", "open_project"]

EventHandler = Callable[[Event], None]


@checked
def open_project(path: str | os.PathLike[str] = ".", *, environ: Mapping[str, str] | None = None) -> OpenProject:
    """A handle on the project in ``path``. ``environ`` replaces the process environment for ``${VAR}`` and ``env()``.

    Raises ProjectError PZ0101 where there is no project, and for an empty path; what is wrong within it is told by the methods.
    """
    from pz.project.loader import require_project

    if os.fspath(path) == "":
        raise ProjectError(
            Problem(Code.PZ0101, "the path of the project is empty", hint="'.' is the current directory")
        )
    root = Path(os.path.realpath(path))
    require_project(root)
    return OpenProject(root, os.environ if environ is None else environ)


@frozen(slots=False)
class OpenProject:
    """A project folder. Cheap to make; no file is read before a method asks for it."""

    root: Path
    environ: Mapping[str, str] = field(repr=False)

    @checked
    def load(self, vars: Mapping[str, Any] | None = None) -> Loaded:
        """Read project, connections, pipelines and sidecars. Raises ProjectError with all problems."""
        from pz.project.loader import load

        return load(self.root, vars_override=vars, environ=self.environ)

    @checked
    def compile(self, vars: Mapping[str, Any] | None = None) -> Compiled:
        """The graph. Raises ProjectError with all problems."""
        from pz.graph.compiler import compile_project

        return compile_project(self.load(vars).project, self.environ)

    @checked
    def validate(self, *, connect: bool = False) -> tuple[Problem, ...]:
        """Everything that can be checked without moving data; ``connect`` also tries the live systems.

        Returns errors, warnings and notes together; does not raise for a faulty project.
        """
        from pz.engine.validate import validate

        return validate(self.root, self.environ, connect=connect)

    @checked
    def plan(
        self, *flows: str, select: Selection | None = None, everything: bool = False, connect: bool = False
    ) -> Plan:
        """What a run would do, how, and what it guarantees. Offline unless ``connect``."""
        from pz.engine.prepare import Request, plan_for

        return plan_for(self.root, self.environ, Request("plan", flows, united(select), everything), connect=connect)

    @checked
    def run(
        self,
        *flows: str,
        select: Selection | None = None,
        everything: bool = False,
        vars: Mapping[str, Any] | None = None,
        full_refresh: bool = False,
        fail_fast: bool = False,
        until_caught_up: bool = False,
        max_passes: int = 100,
        on_event: EventHandler | None = None,
        cancel: CancelToken | None = None,
    ) -> RunResult:
        """Run flows by name, by selection, or everything; with one flow in the project, nothing need be named."""
        from pz.engine.prepare import Request
        from pz.engine.run import run
        from pz.engine.until_caught_up import run_until_caught_up

        request = Request("run", flows, united(select), everything, vars or {}, full_refresh, fail_fast)
        bus, token = _bus(on_event), cancel or CancelToken()
        if until_caught_up:
            _require_positive(max_passes)
            return run_until_caught_up(self.root, self.environ, request, bus, token, max_passes)
        return run(self.root, self.environ, request, bus, token)

    @checked
    def test(
        self,
        *,
        select: Selection | None = None,
        vars: Mapping[str, Any] | None = None,
        fail_fast: bool = False,
        on_event: EventHandler | None = None,
        cancel: CancelToken | None = None,
    ) -> RunResult:
        """Run the checks and what they need, never a sink."""
        from pz.engine.prepare import Request
        from pz.engine.run import run

        request = Request("test", (), united(select), False, vars or {}, False, fail_fast)
        return run(self.root, self.environ, request, _bus(on_event), cancel or CancelToken())

    @checked
    def retry(
        self,
        *,
        full_refresh: bool = False,
        fail_fast: bool = False,
        on_event: EventHandler | None = None,
        cancel: CancelToken | None = None,
    ) -> RunResult:
        """Continue the last run from what is durable: failed, skipped, killed and cancelled work, and nothing else."""
        from pz.engine.retry import retry

        return retry(
            self.root,
            self.environ,
            _bus(on_event),
            cancel or CancelToken(),
            full_refresh=full_refresh,
            fail_fast=fail_fast,
        )

    @checked
    def show(self, pipeline: str, *, limit: int = 20, run_id: str | None = None) -> pa.Table:
        """Rows of a pipeline: from the run named, else from a fresh preview that writes to no sink."""
        from pz.engine.show import preview, read_run

        _require_positive(limit)
        if run_id is not None:
            return read_run(self.root, run_id, pipeline, limit)
        return preview(self.root, self.environ, pipeline, limit)

    @checked
    def runs(self, limit: int | None = None) -> tuple[RunEntry, ...]:
        """Past runs, newest first."""
        from pz.runs.history import list_runs

        _require_positive(limit)
        return list_runs(self.root / ".pz", limit)

    @checked
    def clean(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        purge: bool = False,
        dry_run: bool = False,
    ) -> CleanReport:
        """Remove old staging databases (or, with ``purge``, whole runs); never results, state or live runs."""
        from pz.runs.retention import clean

        return clean(self.root / ".pz", keep_last=keep_last, older_than=older_than, purge=purge, dry_run=dry_run)

    @property
    def cdc(self) -> ProjectCapture:
        """Look at and let go of change capture."""
        return ProjectCapture(self)

    @property
    def state(self) -> ProjectState:
        """Look at and edit the stored watermarks."""
        return ProjectState(self.root / ".pz", self.root, self.environ)


@frozen(slots=False)
class ProjectCapture:
    """The captured datasets of a project."""

    project: OpenProject

    def status(self) -> tuple[ShownCapture, ...]:
        """How each of them stands at its source."""
        from pz.engine.capture_verbs import show_captures

        return show_captures(self.project.root, self.project.environ)

    @checked
    def drop(self, key: str, *, dry_run: bool = False) -> str:
        """Let go of one; the next run reads the whole table again. ``dry_run`` only says what would be dropped.

        Raises ProjectError PZ0508, StateError PZ0517.
        """
        from pz.engine.capture_verbs import drop_capture

        return drop_capture(self.project.root, self.project.environ, key, dry_run=dry_run)


@frozen(slots=False)
class ProjectState:
    """The stored state of a project. Every edit is audited; ``dry_run`` only says what would change.

    The notes of a change name the appends that get rows again by it, as far as the project compiles.

    Raises StateError: PZ0513 no such key, PZ0514 to PZ0515 a value or run that does not fit, PZ0517 a run is in flight.
    """

    state_dir: Path
    root: Path
    environ: Mapping[str, str] = field(repr=False)

    def _appends(self, key: str) -> tuple[str, ...]:
        from pz.engine.repeats import appends_of

        return appends_of(self.root, self.environ, key)

    @checked
    def show(self, key: str | None = None) -> tuple[ShownState, ...]:
        """All entries, or one."""
        from pz.state import verbs

        return verbs.show(self.state_dir, key)

    @checked
    def set(self, key: str, value: str, *, reason: str | None = None, dry_run: bool = False) -> Change:
        """Move an existing watermark to a value, in any direction."""
        from pz.state import verbs

        appends = self._appends(key)
        return verbs.set_value(self.state_dir, key, value, reason=reason, dry_run=dry_run, appends=appends)

    @checked
    def rollback(self, key: str, to_run: str, *, reason: str | None = None, dry_run: bool = False) -> Change:
        """Move a watermark back to what a past run recorded."""
        from pz.state import verbs

        appends = self._appends(key)
        return verbs.rollback(self.state_dir, key, to_run, reason=reason, dry_run=dry_run, appends=appends)

    @checked
    def clear(self, key: str, *, reason: str | None = None, dry_run: bool = False) -> Change:
        """Forget a dataset's state: the next run reads it from its beginning."""
        from pz.state import verbs

        return verbs.clear(self.state_dir, key, reason=reason, dry_run=dry_run, appends=self._appends(key))


def _require_positive(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise ProjectError(Problem(Code.PZ0534, f"the limit is {limit}"))


def _bus(on_event: EventHandler | None) -> EventBus:
    bus = EventBus()
    if on_event is not None:
        bus.subscribe(on_event)
    return bus
