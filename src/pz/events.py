"""What happens in a run, as typed events on one bus; console, live tree and NDJSON are three views of it.

The wire form of an event is one JSON object: the envelope ``version``, ``event``, ``at`` (UTC, ISO 8601, milliseconds,
``Z``) and ``runId``, then the event's own fields in camelCase. Fields are only ever added. Events never carry
partition ids, tokens, option values, hosts or row values (check samples in ``errorMessage`` are the one exception).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, ClassVar

from pz.frozen import frozen

__all__ = [
    "AmbiguousDateInferenceDetected",
    "BreakerStateChanged",
    "ConnectionWaiting",
    "ConnectorLog",
    "Event",
    "EventBus",
    "LockAwaited",
    "LossyIntegerInferenceDetected",
    "MergeKeyDuplicatesDetected",
    "NodeCompleted",
    "NodeProgress",
    "NodeStarted",
    "Notice",
    "OutlineNode",
    "RetentionSwept",
    "RetryScheduled",
    "RunCompleted",
    "RunRefused",
    "RunStarted",
    "SourceDriftDetected",
]

ENVELOPE_VERSION = 1


def now() -> datetime:
    """The present moment, in UTC."""
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """Spell a moment as every artifact and event does: UTC, milliseconds, ``Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@frozen(slots=False, kw_only=True)
class Event:
    """Base of all events. ``name`` is the wire name; subclasses add their fields.

    What is not ``on_wire`` is for views and handlers in this process, and no part of the NDJSON stream.
    """

    name: ClassVar[str] = "event"
    on_wire: ClassVar[bool] = True
    run_id: str
    at: datetime = field(default_factory=now)

    def to_wire(self) -> dict[str, Any]:
        """The event as a JSON-ready mapping, envelope first.

        Fields declared ``omit_none`` are left out when None, ``in_process`` ones always.
        """
        wire: dict[str, Any] = {
            "version": ENVELOPE_VERSION,
            "event": self.name,
            "at": timestamp(self.at),
            "runId": self.run_id,
        }
        for spec in dataclasses.fields(self):
            if spec.name in {"run_id", "at"} or spec.metadata.get("in_process"):
                continue
            if spec.metadata.get("omit_none") and getattr(self, spec.name) is None:
                continue
            wire[_camel(spec.name)] = getattr(self, spec.name)
        return wire


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def _optional() -> Any:
    return field(default=None, metadata={"omit_none": True})


@frozen
class OutlineNode:
    """A node that a run is going to execute; ``flow`` names the connected component that it belongs to.

    Not ``counted`` are views and checks: their 0 rows say nothing about how many there are.
    """

    node_id: str
    kind: str
    name: str
    flow: str = ""
    counted: bool = True


@frozen(slots=False, kw_only=True)
class LockAwaited(Event):
    """The run waits until another one lets go of a dataset or an output; comes before `RunStarted`, if at all."""

    name: ClassVar[str] = "lock_awaited"
    on_wire: ClassVar[bool] = False
    message: str


@frozen(slots=False, kw_only=True)
class RunStarted(Event):
    """A run began; before it stands at most a `retry_scheduled` of a system that could not be asked what it has.

    ``outline`` is for views in this process and no part of the wire form.
    """

    name: ClassVar[str] = "run_started"
    project_name: str
    node_count: int
    outline: tuple[OutlineNode, ...] = field(default=(), metadata={"in_process": True})


@frozen(slots=False, kw_only=True)
class NodeStarted(Event):
    """A node was dispatched."""

    name: ClassVar[str] = "node_started"
    node_id: str
    kind: str
    node_name: str

    def to_wire(self) -> dict[str, Any]:
        """As the base, with the node's name under ``name``."""
        wire = super().to_wire()
        wire["name"] = wire.pop("nodeName")
        return wire


@frozen(slots=False, kw_only=True)
class NodeProgress(Event):
    """Rows moved so far by a node; ``total`` where it is known."""

    name: ClassVar[str] = "node_progress"
    node_id: str
    rows: int
    bytes: int
    batches: int
    total: int | None = _optional()


@frozen(slots=False, kw_only=True)
class RetryScheduled(Event):
    """A transient failure will be tried again after ``delay_ms``: of the node, or of one ``operation`` of its connector.

    ``node_name`` is for views in this process, which know no names before the first `NodeStarted`.
    """

    name: ClassVar[str] = "retry_scheduled"
    node_id: str
    attempt: int
    max_attempts: int
    delay_ms: int
    reason: str
    operation: str | None = _optional()
    node_name: str = field(default="", metadata={"in_process": True})


@frozen(slots=False, kw_only=True)
class NodeCompleted(Event):
    """A node ended; published exactly once per node. Of what does not apply, error and timings are null, the rest is absent.

    ``skipped_for`` is the name of the failed node without which a skipped one could not run; absent where the run was stopped.
    """

    name: ClassVar[str] = "node_completed"
    node_id: str
    kind: str
    node_name: str
    status: str
    rows: int
    duration_ms: int
    error_code: str | None = None
    error_message: str | None = None
    timings: Mapping[str, int] | None = None
    provenance: str | None = _optional()
    fused: bool | None = _optional()
    skipped_for: str | None = _optional()
    ops: Mapping[str, int] | None = _optional()
    partitions: Mapping[str, int] | None = _optional()
    delivery: Mapping[str, Any] | None = _optional()
    cdc: Mapping[str, Any] | None = _optional()

    def to_wire(self) -> dict[str, Any]:
        """As the base, with the node's name under ``name``."""
        wire = super().to_wire()
        wire["name"] = wire.pop("nodeName")
        return wire


@frozen(slots=False, kw_only=True)
class RunCompleted(Event):
    """The run's totals; only ``retention_swept`` may follow."""

    name: ClassVar[str] = "run_completed"
    status: str
    succeeded: int
    failed: int
    skipped: int
    duration_ms: int


@frozen(slots=False, kw_only=True)
class RunRefused(Event):
    """The command ended by an error (or a stop) instead of by ``run_completed``, with this ``exit_code``; one per problem.

    Where no run had begun, ``runId`` is empty. ``file`` and ``line`` are absent where the problem has no place.
    """

    name: ClassVar[str] = "run_refused"
    severity: str
    code: str
    message: str
    hint: str
    exit_code: int
    file: str | None = _optional()
    line: int | None = _optional()


@frozen(slots=False, kw_only=True)
class RetentionSwept(Event):
    """Old staging databases were removed after the run."""

    name: ClassVar[str] = "retention_swept"
    runs: int
    bytes: int


@frozen(slots=False, kw_only=True)
class SourceDriftDetected(Event):
    """A source's columns differ from the accepted baseline."""

    name: ClassVar[str] = "source_drift_detected"
    node_id: str
    dataset: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    retyped: tuple[str, ...]


@frozen(slots=False, kw_only=True)
class MergeKeyDuplicatesDetected(Event):
    """The input of a merge held several rows for a key; all but one per key were dropped."""

    name: ClassVar[str] = "merge_key_duplicates_detected"
    node_id: str
    keys: tuple[str, ...]
    groups: int
    extra_rows: int


@frozen(slots=False, kw_only=True)
class LossyIntegerInferenceDetected(Event):
    """Whole numbers beyond 2^53 were inferred as floating point."""

    name: ClassVar[str] = "lossy_integer_inference_detected"
    node_id: str
    columns: tuple[str, ...]


@frozen(slots=False, kw_only=True)
class AmbiguousDateInferenceDetected(Event):
    """A date format was guessed and no value ever told day from month."""

    name: ClassVar[str] = "ambiguous_date_inference_detected"
    node_id: str
    columns: tuple[str, ...]
    format: str


@frozen(slots=False, kw_only=True)
class BreakerStateChanged(Event):
    """A connection's circuit breaker opened, half-opened or closed."""

    name: ClassVar[str] = "breaker_state_changed"
    connection: str
    state: str


@frozen(slots=False, kw_only=True)
class ConnectionWaiting(Event):
    """The next operation of a connection waits for seconds: its server asked for that (``server``), or ``rate_limit`` does.

    ``wait_ms`` is how much longer, where that is known. A wait is told once; one of ``rate_limit`` once per run.
    """

    name: ClassVar[str] = "connection_waiting"
    connection: str
    reason: str
    wait_ms: int | None = _optional()


@frozen(slots=False, kw_only=True)
class ConnectorLog(Event):
    """Something a connector wants the operator to know; at most once per run and text."""

    name: ClassVar[str] = "connector_log"
    connection: str
    message: str


@frozen(slots=False, kw_only=True)
class Notice(Event):
    """A note or warning of the engine, in the words that the console prints."""

    name: ClassVar[str] = "notice"
    severity: str
    message: str
    code: str | None = _optional()
    hint: str | None = _optional()


Handler = Callable[[Event], None]


class EventBus:
    """Delivers each event to every handler, one event at a time, in the publisher's thread.

    A handler that raises is dropped and remembered in ``broken``; it never disturbs the run or the other handlers.
    """

    def __init__(self) -> None:
        self._handlers: list[Handler] = []
        self._lock = threading.RLock()
        self.broken: list[BaseException] = []

    def subscribe(self, handler: Handler) -> None:
        """Add a handler; it sees the events published from now on."""
        with self._lock:
            self._handlers.append(handler)

    def publish(self, event: Event) -> None:
        """Hand an event to all handlers."""
        with self._lock:
            for handler in list(self._handlers):
                try:
                    handler(event)
                except Exception as failure:  # noqa: BLE001 - a view must not be able to break the run
                    self._handlers.remove(handler)
                    self.broken.append(failure)
