"""What a node gets to see while it runs: the run's shared parts, and its own cancel token and progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pz.connectors.contract import (
    Cancellable,
    CancelToken,
    Capability,
    Gated,
    LogsMessages,
    Partition,
    PiecewiseSnapshot,
    SharesDatabase,
    Sink,
    Source,
    SpoolsToDisk,
)
from pz.engine.failures import describe
from pz.engine.resilience.gate import Gate, Pacer
from pz.events import ConnectionWaiting, ConnectorLog, EventBus, NodeProgress, Notice, RetryScheduled
from pz.frozen import frozen
from pz.graph.model import Graph, Node
from pz.plan.connections import Connections
from pz.plan.model import Plan, PlannedNode
from pz.project.model import Project, RetryPolicy
from pz.runs.model import RunRecord

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from pz.connectors.registry import Registry
    from pz.engine.prior import PriorRun
    from pz.engine.reading import DatasetSlice
    from pz.staging.session import StagingSession

__all__ = ["HeldSnapshot", "NodeContext", "RunContext"]


@frozen(slots=False)
class RunContext:
    """The shared parts of one run. ``slices`` and ``tokens`` say, per dataset node, what this run reads.

    ``totals`` are expected rows per node, where a probe could tell.
    """

    project: Project
    graph: Graph
    plan: Plan
    registry: Registry
    record: RunRecord
    staging: StagingSession
    bus: EventBus
    cancel: CancelToken
    slices: Mapping[str, DatasetSlice] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    watermarks: Mapping[str, str] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    prior: PriorRun | None = None
    pacers: dict[str, Pacer] = field(default_factory=dict)
    noticed: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def run_id(self) -> str:
        """This run's id."""
        return self.record.run_id

    def pacer(self, connection: str) -> Pacer:
        """The connection's token bucket, shared by all its nodes of this run."""
        with self.lock:
            if connection not in self.pacers:
                limit = self.project.connections[connection].rate_limit
                self.pacers[connection] = Pacer(limit, lambda seconds: self._waits(connection, seconds))
            return self.pacers[connection]

    def _waits(self, connection: str, seconds: float | None) -> None:
        reason, wait_ms = ("rate_limit", None) if seconds is None else ("server", round(seconds * 1000))
        self.bus.publish(ConnectionWaiting(run_id=self.run_id, connection=connection, reason=reason, wait_ms=wait_ms))

    @property
    def connections(self) -> Connections:
        """The connections, to be opened; a node opens its own through `NodeContext`, which gates them."""
        return Connections(self.project, self.registry, self.graph)

    def log(self, connection: str, message: str) -> None:
        """Pass on what a connector tells the operator, once per run and text."""
        if self._first_time(f"{connection}: {message}"):
            self.bus.publish(ConnectorLog(run_id=self.run_id, connection=connection, message=message))

    def note(self, message: str, severity: str = "note", code: str | None = None) -> None:
        """Tell the operator something, once per run and text."""
        if self._first_time(message):
            self.bus.publish(Notice(run_id=self.run_id, severity=severity, message=message, code=code))

    def _first_time(self, text: str) -> bool:
        with self.lock:
            known = text in self.noticed
            self.noticed.add(text)
        return not known


@dataclass
class HeldSnapshot:
    """A snapshot that has been begun, and which of its pieces have landed in the run's staging."""

    partition: PiecewiseSnapshot
    pieces: Sequence[Partition]
    landed: set[int] = field(default_factory=set)


@dataclass
class NodeContext:
    """One node, from its first attempt to its last. ``snapshot`` outlives an attempt; whoever makes a context releases it."""

    run: RunContext
    node: Node
    planned: PlannedNode
    cancel: CancelToken
    ordinal: int = 1
    gate: Gate | None = None
    rows: int = 0
    bytes: int = 0
    batches: int = 0
    total: int | None = None
    snapshot: HeldSnapshot | None = None

    def release(self) -> None:
        """Let go of what was kept over the attempts."""
        if self.snapshot is not None:
            self.snapshot.partition.close()
            self.snapshot = None

    @contextmanager
    def cursor(self) -> Iterator[DuckDBPyConnection]:
        """A staging cursor whose running statement is interrupted when this node is cancelled."""
        with self.run.staging.cursor() as cursor, self.run.staging.interruptible(cursor, self.cancel):
            yield cursor

    @contextmanager
    def source(self, connection: str) -> Iterator[Source]:
        """The opened read side, gated and closed exactly once."""
        with self.run.connections.source(connection) as source:
            self._equip(source, connection)
            yield source

    @contextmanager
    def sink(self, connection: str) -> Iterator[Sink]:
        """The opened write side, gated and closed exactly once."""
        with self.run.connections.sink(connection) as sink:
            self._equip(sink, connection)
            yield sink

    def capabilities(self, connection: str) -> Capability:
        """What the connector behind a connection can do."""
        return self.run.connections.connector(connection).capabilities

    def progress(self, rows: int, size: int = 0, *, every: int = 10) -> None:
        """Count a moved batch; tells the bus every tenth one."""
        with self.run.lock:
            self.rows += rows
            self.bytes += size
            self.batches += 1
            due = self.batches % every == 0
        if due:
            self.publish_progress()

    def publish_progress(self) -> None:
        """Tell the bus where this node stands."""
        self.run.bus.publish(
            NodeProgress(
                run_id=self.run.run_id,
                node_id=self.node.id,
                rows=self.rows,
                bytes=self.bytes,
                batches=self.batches,
                total=self.total,
            )
        )

    def _equip(self, side: Source | Sink, connection: str) -> None:
        if isinstance(side, SharesDatabase):
            side.use_database(self._open_cursor)
        if isinstance(side, SpoolsToDisk):
            side.use_spool(self.run.staging.path.parent / "spool")
        if isinstance(side, Cancellable):
            side.use_cancel(self.cancel)
        if isinstance(side, LogsMessages):
            side.use_log(lambda message: self.run.log(connection, message))
        if isinstance(side, Gated):
            policy = self.planned.retry or RetryPolicy()
            self.gate = Gate(self.run.pacer(connection), policy, self.cancel, self._tries_again)
            side.use_gate(self.gate)

    def _tries_again(self, label: str, attempt: int, most: int, delay: float, failure: BaseException) -> None:
        self.run.bus.publish(
            RetryScheduled(
                run_id=self.run.run_id,
                node_id=self.node.id,
                attempt=attempt,
                max_attempts=most,
                delay_ms=round(delay * 1000),
                reason=describe(failure).message,
                operation=label,
            )
        )

    def _open_cursor(self) -> DuckDBPyConnection:
        """A staging cursor that the connector closes itself."""
        return self.run.staging.open_cursor()
