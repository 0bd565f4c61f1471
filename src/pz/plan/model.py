"""A plan: small frozen records that say, before anything runs, what will be done, how, and what is guaranteed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pz.connectors.contract import ReadShape
from pz.errors import Problem
from pz.frozen import frozen
from pz.graph.delivery import Guarantee
from pz.graph.model import NodeKind
from pz.project.model import RetryPolicy

__all__ = ["Budget", "Guarantee", "Plan", "PlannedNode", "Way"]


class Way(StrEnum):
    """How a node moves its rows."""

    NATIVE_SCAN = "native_scan"
    NATIVE_COPY = "native_copy"
    SPOOL = "spool"
    ARROW_STREAM = "arrow_stream"
    DUCK_SQL = "duck_sql"
    FUSED = "fused"
    COPY_THROUGH = "copy_through"


@frozen
class PlannedNode:
    """One row of the plan.

    ``reason`` explains the way in words without SQL, options or secrets. ``refusal`` is a problem that only matters if
    the node is executed. ``fused_with`` holds the ids of all nodes that run as one statement with this one.
    """

    node_id: str
    kind: NodeKind
    name: str
    way: Way
    reason: str
    read_shape: ReadShape | None = None
    guarantees: Mapping[str, Guarantee] | None = None
    retry: RetryPolicy | None = None
    partitions: int | None = None
    fused_with: tuple[str, ...] = ()
    refusal: Problem | None = None


@frozen
class Budget:
    """Memory and disk that a run may take, in bytes. ``duckdb`` is the limit that pz sets; the total is a promise."""

    duckdb: int
    channels: int
    overhead: int
    staging_disk: int | None = None

    @property
    def total(self) -> int:
        """Peak resident memory."""
        return self.duckdb + self.channels + self.overhead


@frozen
class Plan:
    """All nodes of the graph in topological order, and the budget. ``warnings`` were found on the way to the plan."""

    nodes: tuple[PlannedNode, ...]
    budget: Budget
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()

    def __getitem__(self, node_id: str) -> PlannedNode:
        return next(node for node in self.nodes if node.node_id == node_id)
