"""What a run leaves behind, as records: `RunRecord` (what it is to do) and `RunResults` (what became of it).

``run.json`` is written durably before dispatch; ``run_results.json`` is a view that is rewritten after every node. What
is durable is decided by ``pz_meta``, ``run.json`` and the destinations, never by the view alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from pz.frozen import frozen

__all__ = ["NodeError", "NodeResult", "NodeStatus", "RecordedNode", "RunRecord", "RunResults", "RunStatus"]


class RunStatus(StrEnum):
    """``running`` until the last durable write of the run; ``fatal``: cancelled before any node failed."""

    RUNNING = "running"
    SUCCESS = "success"
    COMPLETED_WITH_FAILURES = "completed_with_failures"
    FATAL = "fatal"


class NodeStatus(StrEnum):
    """Exactly one per node of the execution set."""

    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


@frozen
class RecordedNode:
    """A node of the execution set as ``run.json`` holds it. ``location`` is the location digest of its connection."""

    id: str
    kind: str
    name: str
    location: str | None = None


@frozen
class RunRecord:
    """``run.json``: what the run is to do.

    ``number`` rises by one per run of the project and is taken under a lock. ``origin`` is the first run of a chain of
    retries (itself when there is none), ``retry_of`` the run directly continued. ``stored`` and ``used`` hold, per
    dataset key, the state found and the state that the run read from (a full refresh stores 100 and uses nothing),
    ``places`` the digests of where it read.
    """

    run_id: str
    number: int
    project: str
    started_at: str
    verb: str
    nodes: tuple[RecordedNode, ...]
    origin: str
    retry_of: str | None = None
    origin_started_at: str = ""
    flags: Mapping[str, bool] = field(default_factory=dict)
    vars: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, Any] = field(default_factory=dict)
    used: Mapping[str, Any] = field(default_factory=dict)
    probes: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    host: str = ""
    pid: int = 0


@frozen
class NodeError:
    """Code and message of a failed node, secret-free."""

    code: str
    message: str


@frozen
class NodeResult:
    """What became of one node. Blocks that do not apply are None and absent on disk.

    ``materialization`` is "view" where ``rows`` says nothing: the rows are computed when they are read. ``skipped_for`` is the
    name of the failed node without which this one could not run; None where the run was stopped.
    """

    id: str
    kind: str
    name: str
    status: NodeStatus
    rows: int = 0
    duration_ms: int = 0
    error: NodeError | None = None
    provenance: str | None = None
    fused: bool | None = None
    materialization: str | None = None
    skipped_for: str | None = None
    timings: Mapping[str, int] | None = None
    ops: Mapping[str, int] | None = None
    partitions: Mapping[str, int] | None = None
    delivery: Mapping[str, Any] | None = None
    cdc: Mapping[str, Any] | None = None
    observed_schema: Mapping[str, Any] | None = None
    watermark: Mapping[str, Any] | None = None


@frozen
class RunResults:
    """``run_results.json``, version 1."""

    run_id: str
    origin: str
    status: RunStatus
    started_at: str
    finished_at: str | None = None
    nodes: tuple[NodeResult, ...] = ()
