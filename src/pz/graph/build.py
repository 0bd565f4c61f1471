"""Nodes in topological order, with ids that cover their parents'."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

from pz.connectors.contract import ReadShape
from pz.errors import Code, Problems
from pz.frozen import frozen
from pz.graph.bindings import Dataset, Output
from pz.graph.identity import NotCanonical, check_id, pipeline_id, sink_id, source_id
from pz.graph.lineage import passes_through
from pz.graph.model import CheckNode, Graph, Node, NodeKind, PipelineNode, Pushdown, SinkNode, SourceNode
from pz.graph.pushdown import infer_pushdown
from pz.graph.sqltree import Parser
from pz.graph.understand import Understood, UnderstoodPipeline
from pz.project.model import CheckDecl, CheckKind, DriftPolicy, Location, Materialization, Project, SyncMode

__all__ = ["build_graph"]

_SHAPES = {SyncMode.AUTO: None, SyncMode.INCREMENTAL: ReadShape.INCREMENTAL, SyncMode.CDC: ReadShape.CDC}

Key = tuple[NodeKind, str]
"""A node before it has an id."""


@frozen(slots=False, eq=False)
class _Draft:
    key: Key
    parents: tuple[Key, ...]
    content: Dataset | UnderstoodPipeline | CheckDecl | Output


def build_graph(parser: Parser, project: Project, understood: Understood, problems: Problems) -> Graph:
    """The graph. Reports PZ0202 for a cycle and PZ0137 for options that have no exact form."""
    drafts = {draft.key: draft for draft in _drafts(understood)}
    ordered = _sorted(drafts, understood, problems)
    problems.raise_errors()
    builder = _Builder(parser, project, understood, problems)
    for key in ordered:
        builder.add(drafts[key])
    ephemeral = {name: rendered.sql for name, rendered in understood.bindings.ephemeral.items()}
    return Graph(tuple(builder.nodes.values()), ephemeral)


def _drafts(understood: Understood) -> Iterator[_Draft]:
    for dataset in understood.datasets.values():
        yield _Draft((NodeKind.SOURCE_LOAD, dataset.relation), (), dataset)
    for name, pipeline in understood.pipelines.items():
        key = (NodeKind.PIPELINE, name)
        sources = [(NodeKind.SOURCE_LOAD, relation) for relation in pipeline.bound.reads.values()]
        refs = [(NodeKind.PIPELINE, ref.pipeline) for ref in pipeline.bound.refs]
        yield _Draft(key, tuple(dict.fromkeys([*sources, *refs])), pipeline)
        for check_name, check in _named_checks(name, pipeline.bound.decl.checks):
            yield _Draft((NodeKind.CHECK, check_name), (key,), check)
    for output in understood.bindings.outputs:
        yield _Draft((NodeKind.SINK_WRITE, output.name), ((NodeKind.PIPELINE, output.pipeline),), output)


def _named_checks(pipeline: str, checks: Iterable[CheckDecl]) -> Iterator[tuple[str, CheckDecl]]:
    """Checks with their node names; a name that is taken gets ``_2``, ``_3`` and so on."""
    taken: set[str] = set()
    for check in checks:
        own = check.name if check.kind is CheckKind.CUSTOM_SQL else "_".join([check.kind, *check.columns])
        base = name = f"check_{pipeline}_{own}"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        yield name, check


def _sorted(drafts: Mapping[Key, _Draft], understood: Understood, problems: Problems) -> list[Key]:
    """Parents first; ties by kind, then by name, so that the order is the same on every machine."""
    waiting = {key: len(draft.parents) for key, draft in drafts.items()}
    children: dict[Key, list[Key]] = {key: [] for key in drafts}
    for draft in drafts.values():
        for parent in draft.parents:
            children[parent].append(draft.key)
    ready = [(key[0].rank, key[1], key) for key, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    ordered = []
    while ready:
        *_, key = heapq.heappop(ready)
        ordered.append(key)
        for child in children[key]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, (child[0].rank, child[1], child))
    if len(ordered) < len(drafts):
        _report_cycle(drafts, set(drafts) - set(ordered), understood, problems)
    return ordered


def _report_cycle(drafts: Mapping[Key, _Draft], stuck: set[Key], understood: Understood, problems: Problems) -> None:
    """Walk up from a stuck pipeline until one comes again: that stretch, each referring to the next, is a cycle."""
    path = [min(key for key in stuck if any(parent in stuck for parent in drafts[key].parents))]
    while path[-1] not in path[:-1]:
        path.append(min(parent for parent in drafts[path[-1]].parents if parent in stuck))
    cycle = [name for _, name in path[path.index(path[-1]) :]]
    first = min(cycle)
    turned = cycle[:-1][cycle.index(first) :] + cycle[:-1][: cycle.index(first)]
    location = understood.pipelines[first].bound.decl.location
    message = f"pipelines depend on each other in a cycle: {' -> '.join([*turned, first])}"
    problems.error(Code.PZ0202, message, file=location.file, hint="break the cycle at one of its ref() calls")


class _Builder:
    """Turns drafts into nodes, parents first."""

    def __init__(self, parser: Parser, project: Project, understood: Understood, problems: Problems) -> None:
        self._parser = parser
        self._project = project
        self._understood = understood
        self._problems = problems
        self.nodes: dict[Key, Node] = {}

    def add(self, draft: _Draft) -> None:
        """Build the node of a draft whose parents are built; reports PZ0137 instead when it has no id."""
        if any(parent not in self.nodes for parent in draft.parents):
            return
        try:
            self.nodes[draft.key] = self._node(draft)
        except NotCanonical as fault:
            where = _where(draft.content)
            message = f"'{draft.key[1]}': option '{fault.path}' has a value without an exact form"
            hint = "use text, a finite number, true or false, a list or a mapping"
            self._problems.error(Code.PZ0137, message, file=where.file, line=where.line, hint=hint)

    def _node(self, draft: _Draft) -> Node:
        parents = tuple(self.nodes[key].id for key in draft.parents)
        content = draft.content
        if isinstance(content, Dataset):
            return self._source(content)
        if isinstance(content, UnderstoodPipeline):
            return self._pipeline(content, parents)
        if isinstance(content, Output):
            return self._sink(content, parents)
        return self._check(draft, content, parents)

    def _source(self, dataset: Dataset) -> SourceNode:
        bounds = self._understood.bounds.get(dataset.key, ())
        return SourceNode(
            id=source_id(dataset.connection, dataset.entity, dataset.read, bounds),
            kind=NodeKind.SOURCE_LOAD,
            name=dataset.relation,
            location=dataset.where,
            connection=dataset.connection,
            entity=dataset.entity,
            relation=dataset.relation,
            read=dataset.read,
            declared_shape=_SHAPES[dataset.read.sync.mode],
            pushdown=self._pushdown(dataset),
            bounds=bounds,
        )

    def _pushdown(self, dataset: Dataset) -> Pushdown:
        """Nothing for change capture. Drift is watched on whole tables, so there the columns stay."""
        sync = dataset.read.sync
        if sync.mode is SyncMode.CDC or len(dataset.readers) != 1:
            return Pushdown()
        statement = self._understood.pipelines[dataset.readers[0]].statement
        keep = () if sync.cursor is None else (sync.cursor,)
        columns = dataset.read.columns
        found = infer_pushdown(self._parser, statement, dataset.relation, keep=keep, columns=columns)
        watched = columns is None and self._project.on_source_drift is not DriftPolicy.IGNORE
        return Pushdown(None, found.predicate) if watched else found

    def _pipeline(self, pipeline: UnderstoodPipeline, parents: tuple[str, ...]) -> PipelineNode:
        bound = pipeline.bound
        bodies = {name: self._understood.bindings.ephemeral[name].sql for name in bound.inlined}
        kind = bound.decl.materialization
        return PipelineNode(
            id=pipeline_id(bound.decl.name, kind, bound.rendered.sql, bodies, parents),
            kind=NodeKind.PIPELINE,
            name=bound.decl.name,
            parents=parents,
            location=bound.decl.location,
            sql=pipeline.sql,
            materialization=kind,
            tags=bound.decl.tags,
            lines=pipeline.lines,
            unsteady=pipeline.unsteady,
            passes_through=self._passes_through(pipeline),
        )

    def _passes_through(self, pipeline: UnderstoodPipeline) -> bool:
        """Whether it hands on one staged table. Upon a view it does not: every reader would compute that anew."""
        table = None if pipeline.unsteady else passes_through(pipeline.statement)
        if table is None or pipeline.bound.decl.materialization is not Materialization.TABLE:
            return False
        views = {
            f"staging.{name.lower()}"
            for name, known in self._understood.pipelines.items()
            if known.bound.decl.materialization is Materialization.VIEW
        }
        return table not in views

    def _check(self, draft: _Draft, check: CheckDecl, parents: tuple[str, ...]) -> CheckNode:
        pipeline = draft.parents[0][1]
        decl = self._understood.pipelines[pipeline].bound.decl
        return CheckNode(
            id=check_id(check, parents[0]),
            kind=NodeKind.CHECK,
            name=draft.key[1],
            parents=parents,
            location=check.location or decl.location,
            pipeline=pipeline,
            check=check,
        )

    def _sink(self, output: Output, parents: tuple[str, ...]) -> SinkNode:
        return SinkNode(
            id=sink_id(output.connection, output.entity, output.write, parents[0]),
            kind=NodeKind.SINK_WRITE,
            name=output.name,
            parents=parents,
            location=output.location,
            connection=output.connection,
            entity=output.entity,
            pipeline=output.pipeline,
            write=output.write,
        )


def _where(content: Dataset | UnderstoodPipeline | CheckDecl | Output) -> Location:
    if isinstance(content, Dataset | Output):
        return content.where
    if isinstance(content, UnderstoodPipeline):
        return content.bound.decl.location
    return content.location or Location("pipelines")
