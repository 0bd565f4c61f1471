"""``pz cdc``: how captured datasets stand, and giving one up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pz.connectors.contract import CapturingSource, DatasetSpec, ReadShape
from pz.durable import Step, step
from pz.engine.capture import captured, left_captures
from pz.engine.prepare import Prepared, Request, prepare
from pz.errors import Code, ConnectorError, Problem, ProjectError, StateError
from pz.frozen import frozen
from pz.graph.model import SourceNode
from pz.plan.specs import dataset_spec
from pz.runs.directory import is_live, run_paths
from pz.state.entries import Binding, Entry, Token
from pz.state.locks import RunLocks, dataset_lock
from pz.state.sync_state import SNAPSHOT_PENDING, is_pending, token_store

__all__ = ["ShownCapture", "drop_capture", "show_captures"]


@frozen
class ShownCapture:
    """One captured dataset. ``position`` is what is captured from, ``stored`` where the next run continues.

    One that was not run yet has nothing stored and is healthy unless its source lacks something.
    """

    key: str
    position: str
    stored: str | None
    retained_bytes: int | None
    healthy: bool
    details: tuple[str, ...] = ()

    @property
    def health(self) -> str:
        """In a word or three."""
        if not self.healthy:
            return "unhealthy"
        return "not run yet" if self.stored is None else "healthy"


def show_captures(root: Path, environ: Mapping[str, str]) -> tuple[ShownCapture, ...]:
    """Every captured dataset of the project, asked of its source. Raises ProjectError when it does not compile."""
    prepared = prepare(root, environ, Request("cdc status", everything=True))
    stored = token_store(prepared.project.state_dir).read()
    kept = tuple(
        _shown(prepared, _spec(node, stored.get(node.key)), stored.get(node.key)) for node in captured(prepared)
    )
    left = left_captures(prepared, stored)
    return (*kept, *(shown for key, entry in sorted(left.items()) for shown in _left(prepared, key, entry)))


def _shown(prepared: Prepared, dataset: DatasetSpec, entry: Entry | None) -> ShownCapture:
    key = f"{dataset.connection}.{dataset.entity}"
    try:
        with prepared.connections.source(dataset.connection) as source:
            if not isinstance(source, CapturingSource):
                return ShownCapture(key, "-", None, None, entry is not None, ("the connector tells nothing",))
            found = source.capture_status(dataset)
    except ConnectorError as failure:
        return ShownCapture(key, "-", None, None, False, (failure.message,))
    details = (*found.details, *(("a snapshot is pending",) if entry is not None and is_pending(entry) else ()))
    return ShownCapture(key, found.position, found.stored, found.retained_bytes, found.healthy, details)


def _left(prepared: Prepared, key: str, entry: Entry) -> Iterator[ShownCapture]:
    """How the source of a dataset stands that is not captured any more: never healthy, as its log is kept for nobody."""
    dataset = _left_spec(key, entry)
    if dataset.connection not in prepared.project.connections:
        yield ShownCapture(key, entry.binding.slot or "-", None, None, False, (_unreachable(dataset),))
    elif _captures(prepared, dataset.connection):
        shown = _shown(prepared, dataset, entry)
        told = f"is not read by change capture any more; let go of it with `pz cdc drop {key}`"
        unasked = shown.details if shown.position == "-" else ()  # what else is wrong does not matter any more
        yield replace(shown, healthy=False, details=(told, *unasked))


def _unreachable(dataset: DatasetSpec) -> str:
    return f"is not in the project any more, nor is connection '{dataset.connection}', which could let go of it"


def _captures(prepared: Prepared, connection: str) -> bool:
    try:
        with prepared.connections.source(connection) as source:
            return isinstance(source, CapturingSource)
    except ConnectorError:
        return True  # it will say so itself


def drop_capture(root: Path, environ: Mapping[str, str], key: str, *, dry_run: bool = False) -> str:
    """Give up the position of a dataset, at the source and in state; the next run reads the whole table again.

    Returns what was done; with ``dry_run`` what would be.

    State says so before anything is dropped, so that no run can poll with the token of a slot that is gone.

    Raises:
        ProjectError: PZ0508 for a dataset that is not captured.
        StateError: PZ0517 a run is in flight.
        ConnectorError: the source refused; the state then says that a snapshot is pending.
    """
    prepared = prepare(root, environ, Request("cdc drop", everything=True))
    state_dir = prepared.project.state_dir
    try:
        locks = RunLocks.acquire(state_dir, f"pz cdc drop {key}", [dataset_lock(key)], wait=0)
    except StateError as failure:
        raise StateError(Problem(Code.PZ0517, failure.problems[0].message)) from failure
    with locks:
        live = sorted(path.name for path in run_paths(state_dir) if is_live(path))
        if live:
            raise StateError(Problem(Code.PZ0517, f"run {live[0]} is in flight", hint="try again when it ended"))
        return _would_drop(prepared, key, state_dir) if dry_run else _drop(prepared, key, state_dir)


def _would_drop(prepared: Prepared, key: str, state_dir: Path) -> str:
    entry = token_store(state_dir).read().get(key)
    dataset, others = _to_drop(prepared, key, entry)
    if others:
        return f"keep slot {dataset.slot} for {', '.join(others)} and forget the stored position"
    shown = _shown(prepared, dataset, entry)
    if shown.position == "-":
        return "forget the stored position"
    if shown.retained_bytes is None:
        what = f"find no slot {shown.position}"
    else:
        what = f"drop slot {shown.position}, for which {shown.retained_bytes} bytes of log are kept,"
    return f"{what} and forget the stored position{_next_run(prepared, key)}"


def _drop(prepared: Prepared, key: str, state_dir: Path) -> str:
    store = token_store(state_dir)
    entry = store.read().get(key)
    dataset, others = _to_drop(prepared, key, entry)
    if entry is not None and not is_pending(entry):
        pending = Entry(Token(SNAPSHOT_PENDING), entry.run_id, entry.binding)
        with step(Step.PEND_SNAPSHOT):
            store.save(key, pending, seen=entry)
    said = f"slot {dataset.slot} stays for {', '.join(others)}" if others else _let_go(prepared, dataset)
    raw = store.raw.read().get(key)
    if raw is not None:
        store.raw.remove(key, seen=raw)
    return f"{said}{_next_run(prepared, key)}"


def _next_run(prepared: Prepared, key: str) -> str:
    """What comes of it, for a dataset that is still captured."""
    still = any(node.key == key for node in captured(prepared))
    return "; the next run reads the whole table" if still else ""


def _to_drop(prepared: Prepared, key: str, entry: Entry | None) -> tuple[DatasetSpec, tuple[str, ...]]:
    """The dataset as it was captured, and which others still use the slot of one that is not captured (from there) now."""
    nodes = {node.key: node for node in captured(prepared)}
    node, earned = nodes.get(key), entry.binding if entry is not None else Binding()
    if node is not None and (not earned.shape or earned.slot == (node.read.sync.slot or "")):
        return _spec(node, None), ()
    if entry is None or (node is None and key not in left_captures(prepared, {key: entry})):
        raise ProjectError(Problem(Code.PZ0508, f"'{key}' is no dataset that is read by change capture"))
    dataset = _left_spec(key, entry)
    if dataset.connection not in prepared.project.connections:
        hint = "declare the connection again, and drop it then"
        raise ProjectError(Problem(Code.PZ0508, f"'{key}' {_unreachable(dataset)}", hint=hint))
    others = [n.key for n in nodes.values() if n.connection == dataset.connection and n.read.sync.slot == dataset.slot]
    return dataset, tuple(sorted(others)) if dataset.slot is not None else ()


def _let_go(prepared: Prepared, dataset: DatasetSpec) -> str:
    with prepared.connections.source(dataset.connection) as source:
        if isinstance(source, CapturingSource):
            return source.drop_capture(dataset)
    return "nothing is kept at the source"


def _left_spec(key: str, entry: Entry) -> DatasetSpec:
    """A dataset of which only the stored entry is left."""
    connection, _, entity = key.partition(".")
    return DatasetSpec(connection, entity, {}, change_capture=True, slot=entry.binding.slot or None)


def _spec(node: SourceNode, entry: Entry | None) -> DatasetSpec:
    usable = entry is not None and isinstance(entry.value, Token) and not is_pending(entry)
    token = entry.value.token if usable and entry is not None and isinstance(entry.value, Token) else None
    return dataset_spec(node, ReadShape.CDC, prior_sync_state=token)
