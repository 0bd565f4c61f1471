"""``pz cdc``: how captured datasets stand, and giving one up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pz.connectors.contract import CapturingSource, DatasetSpec, ReadShape
from pz.durable import Step, step
from pz.engine.capture import captured
from pz.engine.prepare import Prepared, Request, prepare
from pz.errors import Code, ConnectorError, Problem, ProjectError, StateError
from pz.frozen import frozen
from pz.graph.model import SourceNode
from pz.plan.specs import dataset_spec
from pz.runs.directory import is_live, run_paths
from pz.state.entries import Entry, Token
from pz.state.locks import RunLocks, dataset_lock
from pz.state.sync_state import SNAPSHOT_PENDING, is_pending, token_store

__all__ = ["ShownCapture", "drop_capture", "show_captures"]


@frozen
class ShownCapture:
    """One captured dataset. ``position`` is what is captured from, ``stored`` where the next run continues."""

    key: str
    position: str
    stored: str | None
    retained_bytes: int | None
    healthy: bool
    details: tuple[str, ...] = ()


def show_captures(root: Path, environ: Mapping[str, str]) -> tuple[ShownCapture, ...]:
    """Every captured dataset of the project, asked of its source. Raises ProjectError when it does not compile."""
    prepared = prepare(root, environ, Request("cdc status", everything=True))
    stored = token_store(prepared.project.state_dir).read()
    return tuple(_shown(prepared, node, stored.get(node.key)) for node in captured(prepared))


def _shown(prepared: Prepared, node: SourceNode, entry: Entry | None) -> ShownCapture:
    try:
        with prepared.connections.source(node.connection) as source:
            if not isinstance(source, CapturingSource):
                return ShownCapture(node.key, "-", None, None, entry is not None, ("the connector tells nothing",))
            found = source.capture_status(_spec(node, entry))
    except ConnectorError as failure:
        return ShownCapture(node.key, "-", None, None, False, (failure.message,))
    details = (*found.details, *(("a snapshot is pending",) if entry is not None and is_pending(entry) else ()))
    return ShownCapture(node.key, found.position, found.stored, found.retained_bytes, found.healthy, details)


def drop_capture(root: Path, environ: Mapping[str, str], key: str) -> str:
    """Give up the position of a dataset, at the source and in state; the next run reads the whole table again.

    State says so before anything is dropped, so that no run can poll with the token of a slot that is gone.

    Raises:
        ProjectError: PZ0508 for a dataset that is not captured.
        StateError: PZ0517 a run is in flight.
        ConnectorError: the source refused; the state then says that a snapshot is pending.
    """
    prepared = prepare(root, environ, Request("cdc drop", everything=True))
    node = next((node for node in captured(prepared) if node.key == key), None)
    if node is None:
        raise ProjectError(Problem(Code.PZ0508, f"'{key}' is no dataset that is read by change capture"))
    state_dir = prepared.project.state_dir
    try:
        locks = RunLocks.acquire(state_dir, f"pz cdc drop {key}", [dataset_lock(key)], wait=0)
    except StateError as failure:
        raise StateError(Problem(Code.PZ0517, failure.problems[0].message)) from failure
    with locks:
        live = sorted(path.name for path in run_paths(state_dir) if is_live(path))
        if live:
            raise StateError(Problem(Code.PZ0517, f"run {live[0]} is in flight", hint="try again when it ended"))
        return _drop(prepared, node, state_dir)


def _drop(prepared: Prepared, node: SourceNode, state_dir: Path) -> str:
    store = token_store(state_dir)
    entry = store.read().get(node.key)
    if entry is not None and not is_pending(entry):
        pending = Entry(Token(SNAPSHOT_PENDING), entry.run_id, entry.binding)
        with step(Step.PEND_SNAPSHOT):
            store.save(node.key, pending, seen=entry)
    with prepared.connections.source(node.connection) as source:
        said = "nothing is kept at the source"
        if isinstance(source, CapturingSource):
            said = source.drop_capture(_spec(node, None))
    raw = store.raw.read().get(node.key)
    if raw is not None:
        store.raw.remove(node.key, seen=raw)
    return said


def _spec(node: SourceNode, entry: Entry | None) -> DatasetSpec:
    usable = entry is not None and isinstance(entry.value, Token) and not is_pending(entry)
    token = entry.value.token if usable and entry is not None and isinstance(entry.value, Token) else None
    return dataset_spec(node, ReadShape.CDC, prior_sync_state=token)
