"""What an append would get a second time, because a dataset is read from its beginning although it was delivered before.

A replacement or a merge takes that as it is. An append adds every row once more, so what only looks like a first read is
refused, and what was asked for is told before it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from pz.connectors.contract import WriteStrategy
from pz.engine.prepare import Request, prepare
from pz.errors import Code, Problem, PzError, Severity
from pz.graph.model import NodeKind, SinkNode, SourceNode
from pz.runs.directory import run_paths
from pz.runs.history import RunEntry, load, newest_first
from pz.runs.model import NodeStatus
from pz.state.advancement import outputs_below
from pz.state.entries import Binding, Entry
from pz.state.kinds import Found, StateFiles
from pz.state.sync_state import is_pending, token_store
from pz.state.watermarks import watermark_store

__all__ = ["appends_of", "delivered_as_another", "full_read_over_state", "refreshed", "state_lost"]


def appends_of(root: Path, environ: Mapping[str, str], key: str) -> tuple[str, ...]:
    """The names of the outputs below a dataset that append; none where the project does not compile, and so does not run."""
    try:
        graph = prepare(root, environ, Request("state", everything=True)).graph
    except PzError:
        return ()
    below = [sink for node in graph.sources() if node.key == key for sink in outputs_below(graph, node)]
    return tuple(sorted({sink.name for sink in below if sink.write.strategy is WriteStrategy.APPEND}))


def full_read_over_state(node: SourceNode, found: Found, appends: Collection[SinkNode]) -> Problem | None:
    """PZ0705 for a dataset whose ``sync:`` is gone while its state says how far the outputs have it."""
    if not appends or not any(_counts(entry) for entry in (found.own, found.other)):
        return None
    return Problem(
        Code.PZ0705,
        f"'{node.key}' has stored state, but is read in full now: {_named(appends)} would get all of its rows again",
        hint="declare its `sync:` again; or run with --full-refresh, which forgets the state, where they are to come again",
    )


def refreshed(node: SourceNode, found: Found, appends: Collection[SinkNode]) -> Problem | None:
    """The warning that a full refresh adds what an output holds already; None where nothing was delivered before."""
    if not appends or not any(_counts(entry) for entry in (found.own, found.other)):
        return None
    return Problem(
        Code.PZ0713,
        f"--full-refresh reads dataset '{node.key}' from its beginning: {_named(appends)} gets all of its rows again, "
        "beside those that are there",
        hint="empty the output first, unless its rows are to be there twice",
        severity=Severity.WARNING,
    )


def delivered_as_another(
    node: SourceNode,
    here: Binding,
    appends: Collection[SinkNode],
    stored: StateFiles,
    keys: Collection[str],
    *,
    refresh: bool = False,
) -> tuple[Problem, ...]:
    """For a dataset without state: that its outputs have what a dataset had delivered which is not among ``keys`` any more.

    PZ0705 where that one read the same thing, so that it has only got another name; a warning for a full refresh, which asks
    for it, and where it may be other data.
    """
    names = {sink.name for sink in appends}
    left = {
        key: entry
        for entries in (stored.watermarks, stored.tokens)
        for key, entry in sorted(entries.items())
        if key not in keys and _counts(entry) and names & entry.binding.outputs.keys()
    }
    return tuple(_as_another(node, here, key, entry, appends, refresh) for key, entry in left.items())


def state_lost(node: SourceNode, appends: Collection[SinkNode], state_dir: Path) -> Problem | None:
    """The warning for a dataset without state where no state is kept at all, although a run has delivered rows of it.

    What `pz state clear` has removed is meant; it leaves the files. All runs are looked at only where both are gone.
    """
    if not appends or any(store(state_dir).raw.path.exists() for store in (watermark_store, token_store)):
        return None
    runs = (run for run in map(load, newest_first(run_paths(state_dir))) if run.results is not None)
    had, given = next(((run.run_id, got) for run in runs if (got := _delivered(run, node, appends))), (None, ()))
    if had is None:
        return None
    return Problem(
        Code.PZ0713,
        f"there is no stored state, but run {had} had delivered '{node.key}': {_named(given)} gets all of its rows again",
        hint="a run that failed is gone on with by `pz retry`; if .pz/state was removed, restore it from a backup",
        severity=Severity.WARNING,
    )


def _delivered(run: RunEntry, node: SourceNode, appends: Collection[SinkNode]) -> tuple[SinkNode, ...]:
    done = [found for found in (run.results.nodes if run.results else ()) if found.status is NodeStatus.SUCCESS]
    if not any(found.kind == NodeKind.SOURCE_LOAD and found.name == node.name and found.rows for found in done):
        return ()
    written = {found.name for found in done if found.kind == NodeKind.SINK_WRITE}
    return tuple(sink for sink in appends if sink.name in written)


def _as_another(
    node: SourceNode, here: Binding, key: str, entry: Entry, appends: Collection[SinkNode], refresh: bool
) -> Problem:
    got = _named([sink for sink in appends if sink.name in entry.binding.outputs])
    if _same_thing(node, here, key, entry):
        return Problem(
            Code.PZ0705,
            f"'{node.key}' is what was called '{key}', and has no stored state under its new name: "
            f"{got} {'gets' if refresh else 'would get'} all of its rows again",
            hint="give it its old name back; or run with --full-refresh where they are to come again",
            severity=Severity.WARNING if refresh else Severity.ERROR,
        )
    return Problem(
        Code.PZ0713,
        f"dataset '{node.key}' is read from its beginning; {got} has what '{key}', which is no longer in the project, "
        "had delivered",
        hint="if that was the same data, its rows come twice: give the dataset its old name and place back",
        severity=Severity.WARNING,
    )


def _same_thing(node: SourceNode, here: Binding, key: str, entry: Entry) -> bool:
    earned = entry.binding
    if earned.location != here.location or earned.dataset != here.dataset:
        return False
    return bool(earned.dataset) or key.partition(".")[2] == node.entity


def _counts(entry: Entry | None) -> bool:
    return entry is not None and not is_pending(entry)


def _named(sinks: Collection[SinkNode]) -> str:
    names = ", ".join(f"'{name}'" for name in sorted(sink.name for sink in sinks))
    return f"{'output' if len(sinks) == 1 else 'outputs'} {names}"
