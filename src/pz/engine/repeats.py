"""What an append would get a second time, because a dataset is read from its beginning although it was delivered before.

A replacement or a merge takes that as it is. An append adds every row once more, so what only looks like a first read is
refused, and what was asked for is told before it runs.
"""

from __future__ import annotations

from collections.abc import Collection

from pz.errors import Code, Problem, Severity
from pz.graph.model import SinkNode, SourceNode
from pz.state.entries import Binding, Entry
from pz.state.kinds import Found, StateFiles
from pz.state.sync_state import is_pending

__all__ = ["delivered_as_another", "full_read_over_state", "refreshed"]


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
