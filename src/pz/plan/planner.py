"""From a graph to a plan: for every node the way its rows move and why, for every sink edge what is guaranteed.

Planning is offline: it opens connectors but never touches a network. Refusals are collected and raised together. A
refusal that comes from a connector's own native path for a node outside the execution set is recorded in the plan and
only raised for nodes that will run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pz.connectors.contract import (
    Capability,
    ChecksDatasets,
    ChecksOutputs,
    Connector,
    CopyingSink,
    CopyingSource,
    DatasetSpec,
    LiveScanningSource,
    LocatesOutputs,
    NamesCaptures,
    OnDelete,
    ReadHints,
    ReadShape,
    Source,
    WriteStrategy,
)
from pz.connectors.localpath import os_refusals
from pz.connectors.registry import Registry
from pz.errors import Code, ConnectorError, Problem, Problems
from pz.graph import delivery
from pz.graph.delivery import Guarantee, merges_everywhere
from pz.graph.model import CheckNode, Graph, Node, PipelineNode, SinkNode, SourceNode
from pz.plan import read_shape
from pz.plan.captures import shared_by_accident
from pz.plan.connections import Connections
from pz.plan.fusion import fuse
from pz.plan.memory import budget
from pz.plan.model import Plan, PlannedNode, Way
from pz.plan.own_outputs import read_in_no_order
from pz.plan.specs import dataset_spec, output_spec, read_hints
from pz.project.model import DriftPolicy, Project, RetryPolicy, RetrySettings

__all__ = ["plan_graph"]

MAX_PARTITIONS = 16


def plan_graph(project: Project, graph: Graph, registry: Registry, execution: frozenset[str] | None = None) -> Plan:
    """Plan the whole graph; ``execution`` are the nodes that will run (None: all).

    Raises:
        ProjectError: with every refusal of the stage.
    """
    planner = _Planner(project, graph, registry)
    for node in graph.nodes:
        planner.add(node)
    planner.problems.extend(
        planned.refusal
        for planned in planner.planned.values()
        if planned.refusal is not None and (execution is None or planned.node_id in execution)
    )
    planner.problems.extend(shared_by_accident(planner.captures))
    planner.problems.raise_errors()
    nodes = tuple(planner.planned[node.id] for node in graph.nodes)
    if project.on_source_drift is DriftPolicy.IGNORE and not project.engine.force_universal:
        nodes = fuse(graph, nodes, execution, planner.formats)
    memory = budget(project.engine)
    chosen = frozenset(graph.by_id) if execution is None else execution
    return Plan(
        nodes,
        memory,
        tuple(thread_notes(project.engine.duckdb.threads, memory.duckdb, os.cpu_count() or 1)),
        tuple(read_in_no_order(planner.connections, graph, chosen)),
    )


def thread_notes(threads: int | None, memory: int, cores: int) -> Iterator[str]:
    """A note where DuckDB would use so many cores that each has little of the ``memory``; wide tables need more."""
    share = memory // cores
    if threads is None and share < LEAST_PER_THREAD:
        each = f"{share // 2**20} MiB of memory for each"
        yield f"engine.duckdb.threads is not set: DuckDB uses {cores} cores, with {each}; wide tables may need fewer threads"


LEAST_PER_THREAD = 256 * 2**20
"""Bytes for each thread below which a plan says so; DuckDB's guide asks for at least 125 MB, and more for wide tables."""


@dataclass
class _Planner:
    project: Project
    graph: Graph
    registry: Registry

    def __post_init__(self) -> None:
        self.problems = Problems()
        self.connections = Connections(self.project, self.registry, self.graph)
        self.planned: dict[str, PlannedNode] = {}
        self.places: dict[tuple[str, str], SinkNode] = {}
        self.shapes: dict[str, ReadShape] = {}
        self.formats: dict[str, str] = {}
        self.captures: dict[str, tuple[SourceNode, str]] = {}

    def add(self, node: Node) -> None:
        if isinstance(node, SourceNode):
            self.planned[node.id] = self._source(node)
        elif isinstance(node, SinkNode):
            self.planned[node.id] = self._sink(node)
        elif isinstance(node, PipelineNode):
            how = "a view upon the staged table that it hands on" if node.passes_through else node.materialization
            self.planned[node.id] = PlannedNode(node.id, node.kind, node.name, Way.DUCK_SQL, f"materialized as {how}")
        elif isinstance(node, CheckNode):
            self.planned[node.id] = PlannedNode(node.id, node.kind, node.name, Way.DUCK_SQL, "check")

    # --- sources

    def _source(self, node: SourceNode) -> PlannedNode:
        connector = self.connections.connector(node.connection)
        shape, native, refusal = ReadShape.FULL, None, None
        try:
            with os_refusals(), self.connections.source(node.connection) as source:
                shape = read_shape.resolve(node.declared_shape, source, dataset_spec(node))
                if isinstance(source, ChecksDatasets):
                    source.check_dataset(dataset_spec(node, shape))
                native = _native_read(source, connector, dataset_spec(node, shape), read_hints(node))
                if shape is ReadShape.CDC and isinstance(source, NamesCaptures):
                    self.captures[node.id] = (node, source.capture_name(dataset_spec(node, shape)))
                if isinstance(source, CopyingSource):
                    self._speaks(node, source.copy_format(dataset_spec(node, shape)))
        except ConnectorError as failure:
            refusal = _refusal(node, failure)
        self.shapes[node.id] = shape
        self._check_read(node, connector, shape)
        way, mechanism = self._read_way(node, connector, shape, native)
        cursor = f" cursor={node.read.sync.cursor}{self._boundary(node)}" if shape is ReadShape.INCREMENTAL else ""
        return PlannedNode(
            node.id,
            node.kind,
            node.name,
            way,
            f"read={shape}{cursor}; {mechanism}{_pushed(node, connector)}",
            read_shape=shape,
            retry=self._retry(node.connection, node.read.retry),
            partitions=_partitions(node),
            refusal=refusal,
        )

    def _boundary(self, node: SourceNode) -> str:
        """Whether rows equal to the stored value come again; what ``watermark()`` in SQL compares says it there."""
        if node.bounds:
            return ""
        again = merges_everywhere(self.graph, node) and node.read.sync.boundary is None
        return f" boundary={'inclusive' if again else 'exclusive'}"

    def _read_way(
        self, node: SourceNode, connector: Connector, shape: ReadShape, native: str | None
    ) -> tuple[Way, str]:
        native_only = Capability.NATIVE_SCAN in connector.capabilities and not getattr(connector, "reads_batches", True)
        if self.project.engine.force_universal:
            if native_only:
                self._refuse(node, Code.PZ0312, "engine.force_universal needs the batch path, which it does not have")
            return Way.ARROW_STREAM, "engine.force_universal"
        if shape in (ReadShape.FEED, ReadShape.CDC):
            if native_only:
                self._refuse(node, Code.PZ0363, "its token needs the batch path, which it does not have")
            return Way.ARROW_STREAM, "resumes from a token"
        if native is not None:
            return Way.NATIVE_SCAN, native
        return Way.ARROW_STREAM, "the connector reads in batches"

    def _check_read(self, node: SourceNode, connector: Connector, shape: ReadShape) -> None:
        can, sync = connector.capabilities, node.read.sync
        bounded = sync.max_window is not None or any(not bound.floor for bound in node.bounds)
        if bounded and Capability.BOUNDED_WINDOW not in can:
            self._refuse(node, Code.PZ0313, "cannot read up to an upper bound")
        if shape is ReadShape.CDC and Capability.CHANGE_CAPTURE not in can:
            self._refuse(node, Code.PZ0338, "has no change capture")
        if shape is ReadShape.FEED and Capability.SYNC_STATE not in can:
            self._refuse(node, Code.PZ0338, "reads a feed but has no sync state to resume it from")
        if Capability.CHECKPOINTABLE_READS in can and Capability.STABLE_PARTITION_IDS not in can:
            self._refuse(node, Code.PZ0319, "promises checkpoints without stable partition ids")
        if shape in (ReadShape.FEED, ReadShape.CDC) and (_partitions(node) or 1) > 1:
            self._refuse(node, Code.PZ0316, "resumes from one token, which cannot span partitions")
        self._check_pacing(node, connector)

    # --- sinks

    def _sink(self, node: SinkNode) -> PlannedNode:
        connector = self.connections.connector(node.connection)
        copy, refusal = None, None
        unsupported = self._check_write(node, connector)
        try:
            with os_refusals(), self.connections.sink(node.connection) as sink:
                if isinstance(sink, ChecksOutputs):
                    sink.check_output(output_spec(node))
                if isinstance(sink, LocatesOutputs):
                    self._claim(node, connector, sink.place_of(output_spec(node)))
                if Capability.NATIVE_COPY in connector.capabilities:
                    copy = sink.native_copy(output_spec(node))
                if isinstance(sink, CopyingSink):
                    self._speaks(node, sink.copy_format(output_spec(node)))
        except ConnectorError as failure:
            told = unsupported and failure.code is Code.PZ0324
            refusal = None if told else _refusal(node, failure)
        if copy is not None and not self.project.engine.force_universal:
            way, mechanism = Way.NATIVE_COPY, copy.mechanism
        else:
            way, mechanism = Way.ARROW_STREAM, "the connector takes batches"
        return PlannedNode(
            node.id,
            node.kind,
            node.name,
            way,
            f"write={node.write.strategy}; {mechanism}",
            guarantees=self._guarantees(node),
            retry=self._retry(node.connection, node.write.retry),
            refusal=refusal,
        )

    def _claim(self, node: SinkNode, connector: Connector, place: str | None) -> None:
        """Two names for one output: the second write would undo the first, or run into it."""
        if place is None:
            return
        first = self.places.setdefault((connector.name, place), node)
        if first is not node:
            message = (
                f"output '{node.name}' is the same place as '{first.name}', which pipeline '{first.pipeline}' loads"
            )
            where = node.location
            self.problems.error(
                Code.PZ0206,
                message,
                file=where.file if where else None,
                line=where.line if where else None,
                hint="keep one of the two, or give one another name, `path` or connection",
            )

    def _check_write(self, node: SinkNode, connector: Connector) -> bool:
        """Refuse what the capabilities do not hold; whether the strategy itself is that."""
        can, write = connector.capabilities, node.write
        needed = {
            WriteStrategy.MERGE: Capability.MERGE_WRITES,
            WriteStrategy.REPLACE: Capability.REPLACE_WRITES,
        }.get(write.strategy)
        unsupported = needed is not None and needed not in can
        if unsupported:
            self._refuse(node, Code.PZ0324, f"does not support write strategy '{write.strategy}'")
        if write.on_delete in (OnDelete.DELETE, OnDelete.SOFT) and Capability.APPLY_DELETES not in can:
            able = ", ".join(self.registry.able(Capability.APPLY_DELETES))
            hint = f"use `on_delete: ignore`, or write by a connector that applies deletes: {able}"
            self._refuse(node, Code.PZ0339, f"cannot apply deletes (on_delete: {write.on_delete})", hint)
        if "partition_by" in write.options and not can & (
            Capability.COLUMN_PARTITIONED_WRITES | Capability.PATH_TEMPLATING
        ):
            self._refuse(node, Code.PZ0314, "cannot write partitioned output")
        self._check_pacing(node, connector)
        return unsupported

    def _guarantees(self, node: SinkNode) -> Mapping[str, Guarantee]:
        """What holds for each dataset above the sink, by dataset name; for a pipeline that reads none, by the pipeline's."""
        found: dict[str, Guarantee] = {}
        can = self.connections.connector(node.connection).capabilities
        above = self.graph.ancestors([node.id])
        for source in self.graph.sources():
            if source.id in above:
                shape = self.shapes[source.id]
                refused = delivery.refusal(shape, source, node)
                if refused is not None:
                    self.problems.add(refused)
                promised = delivery.guarantee(shape, node.write, ghosts=Capability.SNAPSHOT_DELETES not in can)
                if promised is not None:
                    found[source.key] = promised
        if not any(source.id in above for source in self.graph.sources()):
            computed = delivery.guarantee(ReadShape.FULL, node.write)  # the same anew each time, as a full read is
            return {} if computed is None else {node.pipeline: computed}
        return found

    # --- both

    def _speaks(self, node: SourceNode | SinkNode, copy_format: str | None) -> None:
        """Keep the format in which the node's side gives or takes rows as they are."""
        if copy_format is not None:
            self.formats[node.id] = copy_format

    def _check_pacing(self, node: SourceNode | SinkNode, connector: Connector) -> None:
        limited = self.project.connections[node.connection].rate_limit is not None
        if limited and Capability.GATED_OPERATIONS not in connector.capabilities:
            self._refuse(node, Code.PZ0317, "does not pace its operations, so rate_limit cannot hold")

    def _retry(self, connection: str, own: RetrySettings | None) -> RetryPolicy:
        return RetryPolicy.cascade(own, self.project.connections[connection].retry)

    def _refuse(self, node: SourceNode | SinkNode, code: Code, what: str, hint: str | None = None) -> None:
        where = node.location
        connector = self.project.connections[node.connection].connector
        self.problems.error(
            code,
            f"'{node.connection}.{node.entity}': connector '{connector}' {what}",
            file=where.file if where else None,
            line=where.line if where else None,
            hint=hint,
        )


def _native_read(source: Source, connector: Connector, dataset: DatasetSpec, hints: ReadHints) -> str | None:
    """What DuckDB will read the dataset by; None where it cannot."""
    if isinstance(source, LiveScanningSource):
        return source.scan_mechanism(dataset, hints)
    scan = source.native_scan(dataset, hints) if Capability.NATIVE_SCAN in connector.capabilities else None
    return scan.mechanism if scan else None


def _refusal(node: SourceNode | SinkNode, failure: ConnectorError) -> Problem:
    problem = Problem(failure.code or Code.PZ0353, f"'{node.connection}.{node.entity}': {failure.message}")
    where = node.location
    problem = problem.at(where.file if where else None, where.line if where else None)
    return problem if failure.hint is None else replace(problem, hint=failure.hint)


def _partitions(node: SourceNode) -> int | None:
    """The declared number of partitions, clamped to 1..16; None where none is declared."""
    declared = node.read.options.get("partitions")
    return min(max(declared, 1), MAX_PARTITIONS) if isinstance(declared, int) else None


def _pushed(node: SourceNode, connector: Connector) -> str:
    parts = []
    if node.pushdown.columns is not None and Capability.COLUMN_PRUNING in connector.capabilities:
        parts.append(f"{len(node.pushdown.columns)} columns")
    if node.pushdown.predicate is not None and Capability.PREDICATE_PUSHDOWN in connector.capabilities:
        parts.append("filter")
    return f" [pushed: {' + '.join(parts)}]" if parts else ""
