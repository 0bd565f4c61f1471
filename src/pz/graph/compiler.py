"""From a loaded project to its graph: nodes with ids, in topological order, every pairing judged.

The stages run in this order, and each reports all that it finds before the next one starts:

    render        templates to SQL and calls
    bind          one declaration per dataset and output; names, readers, writers, cursors, windows, keys
    understand    parse trees, ephemeral pipelines inlined, watermark() comparisons turned into bounds
    build         the order, then nodes with Merkle ids
    lint          SQL that is right over a whole dataset and not over a slice of it
    judge         the pairing matrix and the routes of deletes, over the whole graph
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pz.errors import Code, Problem, Problems
from pz.frozen import frozen
from pz.graph.bindings import Bindings, bind_declarations
from pz.graph.build import build_graph
from pz.graph.judge import judge
from pz.graph.model import Graph
from pz.graph.rules import check_dataset, check_output
from pz.graph.slice_lint import lint_slices
from pz.graph.sqltree import Parser
from pz.graph.understand import Understood, understand
from pz.project.model import Project
from pz.project.templates import Rendered, render

__all__ = ["Compiled", "compile_project"]


@frozen
class Compiled:
    """The graph of a project, what is worth saying about it, and the names that var() was called with.

    ``understood`` is what the graph was built from.
    """

    graph: Graph
    warnings: tuple[Problem, ...] = ()
    variables: frozenset[str] = frozenset()
    understood: Understood | None = None


def compile_project(project: Project, environ: Mapping[str, str] | None = None) -> Compiled:
    """Compile a project; nothing is opened, asked or written. Raises `ProjectError` with all errors of a stage.

    ``environ`` (default: the process's) is what env() sees.
    """
    problems = Problems()
    rendered = _render(project, os.environ if environ is None else environ, problems)
    bindings = _bind(project, rendered, problems)
    with Parser() as parser:
        understood = understand(parser, project, bindings, problems)
        problems.raise_errors()
        graph = build_graph(parser, project, understood, problems)
        problems.raise_errors()
        shapes = {source.id: source.declared_shape for source in graph.sources()}
        problems.extend(lint_slices(parser, graph, understood, shapes))
    judge(graph, understood, problems)
    _warn_of_unused(project, bindings, graph, problems)
    problems.raise_errors()
    variables = frozenset[str]().union(*(found.variables for found in rendered.values()))
    return Compiled(graph, problems.warnings, variables, understood)


def _render(project: Project, environ: Mapping[str, str], problems: Problems) -> dict[str, Rendered]:
    rendered = {name: render(project, pipeline, environ, problems) for name, pipeline in project.pipelines.items()}
    problems.raise_errors()
    return rendered


def _bind(project: Project, rendered: Mapping[str, Rendered], problems: Problems) -> Bindings:
    bindings = bind_declarations(project, rendered, problems)
    for dataset in bindings.datasets.values():
        check_dataset(dataset, project.connections[dataset.connection].connector, problems)
    for output in bindings.outputs:
        check_output(output, project.connections[output.connection].connector, problems)
    problems.raise_errors()
    return bindings


def _warn_of_unused(project: Project, bindings: Bindings, graph: Graph, problems: Problems) -> None:
    """PZ0223: a pipeline whose result nobody takes. A check is somebody."""
    inlined = {name for pipeline in bindings.pipelines.values() for name in pipeline.inlined}
    used = inlined | {graph.by_id[parent].name for node in graph.nodes for parent in node.parents}
    for pipeline in project.pipelines.values():
        if pipeline.name not in used:
            message = f"nobody uses the result of pipeline '{pipeline.name}'"
            hint = f"load it with INSERT INTO {{{{ sink(...) }}}}, use it with ref('{pipeline.name}'), or remove it"
            problems.warn(Code.PZ0223, message, file=pipeline.location.file, hint=hint)
