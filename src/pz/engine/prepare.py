"""Everything before a run touches anything: load, compile, dry-compile, select, plan. All refusals happen here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from pz.connectors.contract import ReadShape
from pz.connectors.registry import Registry
from pz.errors import Code, Problem, Problems, Severity
from pz.frozen import frozen
from pz.graph.compiler import Compiled, compile_project
from pz.graph.dry_compile import dry_compile
from pz.graph.model import Graph, NodeKind
from pz.graph.selection import select
from pz.graph.slice_lint import lint_slices
from pz.graph.sqltree import Parser
from pz.plan.artifact import write_plan
from pz.plan.configuration import check_configuration
from pz.plan.connections import Connections
from pz.plan.model import Plan
from pz.plan.planner import plan_graph
from pz.project.loader import Loaded, load
from pz.project.model import Project
from pz.project.nearmiss import near_miss

__all__ = ["Prepared", "Request", "plan_for", "prepare"]


@frozen(slots=False)
class Request:
    """What the user asked for."""

    verb: str
    flows: tuple[str, ...] = ()
    select: str | None = None
    everything: bool = False
    vars: Mapping[str, Any] = field(default_factory=dict)
    full_refresh: bool = False
    fail_fast: bool = False


@frozen(slots=False)
class Prepared:
    """A project that may run: compiled, selected, planned. ``execution`` is the selection with all its ancestors."""

    project: Project
    graph: Graph
    registry: Registry
    plan: Plan
    execution: frozenset[str]
    warnings: tuple[Problem, ...]

    @property
    def connections(self) -> Connections:
        """The connections, to be opened."""
        return Connections(self.project, self.registry, self.graph)


def prepare(
    root: Path,
    environ: Mapping[str, str],
    request: Request,
    *,
    choose: Callable[[Graph], frozenset[str]] | None = None,
    adapt: Callable[[Project], Project] | None = None,
) -> Prepared:
    """Load to plan. Raises ProjectError with all problems of the first stage that has any.

    ``choose`` replaces the request's selection (a retry knows what to run again), ``adapt`` changes the loaded project.
    """
    registry = Registry.default()
    loaded = load(root, vars_override=request.vars or None, environ=environ)
    if adapt is not None:
        loaded = replace(loaded, project=adapt(loaded.project))
    compiled = compile_project(loaded.project, environ)
    _validate_options(loaded.project, compiled.graph, registry)
    dry = Problems()
    dry.extend(dry_compile(compiled.graph))
    dry.raise_errors()
    execution = choose(compiled.graph) if choose else _execution_set(compiled.graph, request)
    plan = plan_graph(loaded.project, compiled.graph, registry, execution)
    unused = _unused_variables(loaded, compiled)
    idle = _nothing_to_do(request, compiled.graph, execution)
    # Nothing can be done about a note on what was not tried offline while a run is going on: those who look are told.
    offline = (*_told_by_compiler(compiled, plan), *dry.warnings)
    tried = (problem for problem in offline if request.verb in _LOOKING or not _untried(problem))
    warnings = (*loaded.warnings, *tried, *plan.warnings, *unused, *idle)
    return Prepared(loaded.project, compiled.graph, registry, plan, execution, warnings)


def _untried(problem: Problem) -> bool:
    """A note on SQL, or a cursor, of which nothing is known before the source is read."""
    return problem.severity is Severity.NOTE and problem.code in (Code.PZ0212, Code.PZ0401)


_LOOKING = frozenset({"plan", "validate"})


def _told_by_compiler(compiled: Compiled, plan: Plan) -> tuple[Problem, ...]:
    """Its warnings; those of slices are found anew where there are feeds, which only a connector can tell."""
    shapes = {node.node_id: node.read_shape for node in plan.nodes}
    if compiled.understood is None or ReadShape.FEED not in shapes.values():
        return compiled.warnings
    with Parser() as parser:
        found = tuple(lint_slices(parser, compiled.graph, compiled.understood, shapes))
    return (*(problem for problem in compiled.warnings if problem.code is not Code.PZ0711), *found)


def _unused_variables(loaded: Loaded, compiled: Compiled) -> Iterator[Problem]:
    """PZ0716 for what was given with ``--vars`` and is neither declared nor asked for: most likely misspelt."""
    known = set(loaded.project.vars).difference(loaded.undeclared) | compiled.variables
    for name in loaded.undeclared:
        if name not in known:
            close = near_miss(name, sorted(known))
            meant = f"; did you mean '{close}'?" if close else ""
            message = f"--vars gives '{name}', which the project neither declares nor uses{meant}"
            yield Problem(Code.PZ0716, message, severity=Severity.WARNING)


def _nothing_to_do(request: Request, graph: Graph, execution: frozenset[str]) -> Iterator[Problem]:
    """The note that success means nothing here."""
    message = None
    if not graph.nodes:
        message = "the project has no pipelines, so there is nothing to run: add pipelines/<name>.sql"
    elif request.verb == "test" and not execution:
        where = "the selection" if request.select is not None else "the project"
        message = f"{where} has no checks, so nothing was tested: add `checks:` in pipelines/configs/<name>.yml"
    if message is not None:
        yield Problem(Code.PZ0717, message, severity=Severity.NOTE)


def _validate_options(project: Project, graph: Graph, registry: Registry) -> None:
    problems = Problems()
    problems.extend(check_configuration(project, graph, registry))
    problems.raise_errors()


def _execution_set(graph: Graph, request: Request) -> frozenset[str]:
    if request.verb == "test":
        chosen = select(graph, select=request.select, everything=request.select is None)
        checks = [node.id for node in graph.in_order(chosen) if node.kind is NodeKind.CHECK]
        return graph.ancestors(checks)
    return graph.ancestors(select(graph, flows=request.flows, select=request.select, everything=request.everything))


def plan_for(root: Path, environ: Mapping[str, str], request: Request, *, connect: bool) -> Plan:
    """The plan of what is named, of everything when nothing is; ``connect`` adds the probe phase and stored state.

    ``plan.json`` gets the nodes outside of the selection as well.
    """
    nothing_named = not request.flows and request.select is None
    prepared = prepare(
        root, environ, Request("plan", request.flows, request.select, request.everything or nothing_named)
    )
    plan = replace(prepared.plan, warnings=prepared.warnings)
    if connect:
        from pz.engine.live_plan import live_plan

        plan = live_plan(prepared)
    write_plan(prepared.project.state_dir / "target", plan)
    chosen = tuple(node for node in plan.nodes if node.node_id in prepared.execution)
    return replace(plan, nodes=chosen)
