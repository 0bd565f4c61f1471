"""What the engine does around change capture: state says "snapshot pending" before a slot may be dropped, and the source is
told only after new positions are durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pz.connectors.contract import CapturingSource, DatasetSpec, ReadShape
from pz.durable import Step, step
from pz.engine.prepare import Prepared
from pz.engine.reading import Reading
from pz.errors import Code, ConnectorError, Problem, Severity
from pz.graph.model import SourceNode
from pz.plan.specs import dataset_spec
from pz.state.entries import Binding, Entry, Token
from pz.state.sync_state import SNAPSHOT_PENDING, is_pending, token_store

__all__ = ["acknowledge", "captured", "left_captures", "mark_pending_snapshots", "tell_left_captures"]


def captured(prepared: Prepared) -> tuple[SourceNode, ...]:
    """The datasets of the project that are read by change capture."""
    return tuple(node for node in prepared.graph.sources() if node.declared_shape is ReadShape.CDC)


def mark_pending_snapshots(
    prepared: Prepared, reading: Reading, run_id: str, bindings: Mapping[str, Binding]
) -> Reading:
    """Replace the token of every captured dataset that is about to be read from its beginning.

    Its slot is dropped then, so the old token leads nowhere: a run that dies in between is followed by a snapshot, never
    by a poll with a token of a slot that is gone. Said of a first read too: from now on the source keeps something, and
    `pz cdc` must know. A load that the retry inherits is finished; its token stays for it.
    """
    store = token_store(prepared.project.state_dir)
    seen = dict(reading.seen)
    for node in captured(prepared):
        entry = seen.get(node.key)
        if node.id not in prepared.execution or node.id in reading.tokens or node.id in reading.inherited:
            continue
        if entry is not None and (is_pending(entry) or entry.binding.shape == ReadShape.FEED):
            continue
        pending = Entry(Token(SNAPSHOT_PENDING), run_id, bindings[node.id])
        with step(Step.PEND_SNAPSHOT):
            store.save(node.key, pending, seen=entry)
        seen[node.key] = pending
    return replace(reading, seen=seen)


def left_captures(prepared: Prepared, entries: Mapping[str, Entry]) -> Mapping[str, Entry]:
    """Of the stored tokens those that change capture has left: their datasets are read otherwise now, or are gone.

    An entry from before the shape was kept counts unless its dataset may be a feed.
    """
    nodes = {node.key: node for node in prepared.graph.sources()}
    shapes = {key: prepared.plan[node.id].read_shape for key, node in nodes.items()}
    return {
        key: entry
        for key, entry in entries.items()
        if shapes.get(key) is not ReadShape.CDC
        and (
            entry.binding.shape == ReadShape.CDC or (not entry.binding.shape and shapes.get(key) is not ReadShape.FEED)
        )
    }


def tell_left_captures(prepared: Prepared) -> tuple[Problem, ...]:
    """PZ0718 for each position of change capture that nobody continues: its source keeps its log for ever."""
    left = left_captures(prepared, token_store(prepared.project.state_dir).read())
    return tuple(
        Problem(
            Code.PZ0718,
            f"'{key}' was read by change capture and is not any more: its deletes are not followed, and its source still "
            "keeps its log for it",
            hint=f"let go of it with `pz cdc drop {key}`, or declare `sync: {{ mode: cdc }}` again",
            severity=Severity.WARNING,
        )
        for key, entry in sorted(left.items())
        if entry.binding.shape  # of an older entry nobody knows for certain
    )


def acknowledge(prepared: Prepared, bindings: Mapping[str, Binding]) -> tuple[Problem, ...]:
    """Tell the sources of captured datasets what is durable, so that they need not keep it; a failure is a note.

    All captured datasets of a connection are told together, executed or not: they may share a slot.
    """
    executed = {node.connection for node in captured(prepared) if node.id in prepared.execution}
    if not executed:
        return ()
    stored = token_store(prepared.project.state_dir).read()
    notes: list[Problem] = []
    for connection in sorted(executed):
        nodes = [node for node in captured(prepared) if node.connection == connection]
        datasets = [_with_token(node, stored.get(node.key), bindings[node.id]) for node in nodes]
        try:
            with prepared.connections.source(connection) as source:
                if isinstance(source, CapturingSource):
                    source.acknowledge(datasets)
        except ConnectorError as failure:
            message = f"the source keeps its log of connection '{connection}' until the next run: {failure.message}"
            notes.append(Problem(failure.code or Code.PZ0714, message, severity=Severity.NOTE))
    return tuple(notes)


def _with_token(node: SourceNode, entry: Entry | None, here: Binding) -> DatasetSpec:
    """The dataset with the token that is stored for it; None where there is none for this place."""
    usable = entry is not None and not is_pending(entry) and entry.binding.location == here.location
    token = entry.value.token if usable and entry is not None and isinstance(entry.value, Token) else None
    return dataset_spec(node, ReadShape.CDC, prior_sync_state=token)
