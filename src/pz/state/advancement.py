"""When state may move: the one commit-gated walk, for watermarks and tokens alike.

A dataset's state advances to what its load offers iff every output structurally below it, judged on the full graph, has
everything: each `SinkWrite` descendant is present among the results and succeeded. An output left out by a selection
blocks; a dataset without outputs advances on its load alone. What was carried forward from an earlier run counts only
if this run's load is that run's: a load that was read anew may differ from what the carried output holds.

`decide` is pure, so a takeover can replay it over what a dead run left behind; `store` writes each dataset for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import StrEnum

from pz.cursors import compare
from pz.errors import Code, Problem, StateError
from pz.frozen import frozen
from pz.graph.model import Graph, SinkNode, SourceNode
from pz.runs.model import NodeResult, NodeStatus
from pz.state.entries import Binding, Entry, EntryStore, Token, Value, Watermark, entry_to_json
from pz.state.sync_state import SNAPSHOT_PENDING, is_pending

__all__ = ["CARRIED_FORWARD", "REUSED", "Decision", "Stored", "Verdict", "decide", "outputs_below", "store"]

REUSED = "reused"
CARRIED_FORWARD = "carried_forward"
_ATTEMPTS = 3


class Verdict(StrEnum):
    """What becomes of a dataset's state."""

    ADVANCE = "advance"
    NOTHING = "nothing"
    BLOCKED = "blocked"


@frozen
class Decision:
    """One dataset's verdict. ``reason`` says why it is blocked; ``code`` is set where that is more than a failed node.

    ``delivered``: every output below has everything that was read, also where that offers no new value.
    """

    key: str
    verdict: Verdict
    value: Value | None = None
    reason: str | None = None
    code: Code | None = None
    delivered: bool = False


@frozen
class Stored:
    """What `store` did: keys written, keys whose value was stored already, and a PZ0527 when some could not be stored."""

    written: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    problem: Problem | None = None
    failures: Mapping[str, Problem] = field(default_factory=dict)


def outputs_below(graph: Graph, source: SourceNode) -> tuple[SinkNode, ...]:
    """All outputs structurally below a source, on the full graph."""
    below = graph.descendants([source.id])
    return tuple(sink for sink in graph.sinks() if sink.id in below)


def decide(
    graph: Graph,
    results: Mapping[str, NodeResult],
    candidates: Mapping[str, Value],
) -> tuple[Decision, ...]:
    """Decide for every dataset whose load is among the results.

    ``results`` and ``candidates`` are by node id; a load that offers nothing (an empty read, a caught-up window, no
    fresh token) has no candidate.
    """
    return tuple(
        _decide_one(source, outputs_below(graph, source), results, candidates.get(source.id))
        for source in graph.sources()
        if source.id in results
    )


def _decide_one(
    source: SourceNode,
    outputs: tuple[SinkNode, ...],
    results: Mapping[str, NodeResult],
    candidate: Value | None,
) -> Decision:
    load = results[source.id]
    if load.status is not NodeStatus.SUCCESS:
        return Decision(source.key, Verdict.NOTHING)
    blocked = _blocked(outputs, results, load)
    if candidate is None:
        return Decision(source.key, Verdict.NOTHING, delivered=blocked is None)
    if blocked is not None:
        return Decision(source.key, Verdict.BLOCKED, candidate, *blocked)
    return Decision(source.key, Verdict.ADVANCE, candidate, delivered=True)


def _blocked(
    outputs: tuple[SinkNode, ...],
    results: Mapping[str, NodeResult],
    load: NodeResult,
) -> tuple[str, Code | None] | None:
    """Why an output does not have everything that was read, with a code where that is more than a failed node."""
    for sink in outputs:
        reason = _not_committed(sink, results.get(sink.id))
        if reason is not None:
            return reason, None
    for sink in outputs:
        reason = _other_slice(sink, results[sink.id], load)
        if reason is not None:
            return reason, Code.PZ0709
    return None


def _not_committed(sink: SinkNode, result: NodeResult | None) -> str | None:
    if result is None:
        return f"output '{sink.name}' was not part of this run"
    if result.status is not NodeStatus.SUCCESS:
        return f"output '{sink.name}' {'failed' if result.status is NodeStatus.FAILED else 'was skipped'}"
    return None


def _other_slice(sink: SinkNode, result: NodeResult, load: NodeResult) -> str | None:
    if result.provenance == CARRIED_FORWARD and load.provenance != REUSED:
        return f"output '{sink.name}' was carried forward, but the dataset was read anew"
    return None


def store(
    decisions: Iterable[Decision],
    watermarks: EntryStore,
    tokens: EntryStore,
    *,
    run_id: str,
    seen: Mapping[str, Entry | None],
    bindings: Mapping[str, Binding],
    full_refresh: bool = False,
) -> Stored:
    """Write what may advance, each dataset for itself: one that cannot be stored does not hold up the others.

    Where a dataset offered nothing new, only its binding is renewed.

    ``seen`` is what the run read before it began, by key; if that is no longer stored, another run has moved on and this
    one is refused (PZ0520), unless what is stored is the candidate itself. A watermark never moves back, except by
    a full refresh, which means to start over: one that read nothing leaves no state, and what another way of reading the
    dataset has stored is replaced, or forgotten where it is read in full now. All failures are collected in one PZ0527;
    none is raised.
    """
    written: list[str] = []
    unchanged: list[str] = []
    failures: dict[str, Problem] = {}
    for decision in decisions:
        key, value = decision.key, decision.value
        over = full_refresh and decision.delivered  # an empty read starts over too
        binding, before, changed = bindings.get(key, Binding()), seen.get(key), False
        stays = before is not None and value is not None and not full_refresh and _would_move_back(before.value, value)
        try:
            if decision.verdict is not Verdict.ADVANCE and not over:
                if decision.delivered and before is not None:
                    _rebind(_store_of(before.value, watermarks, tokens), key, before, binding)
                continue
            if value is not None and not stays:
                changed = _save(_store_of(value, watermarks, tokens), key, Entry(value, run_id, binding), before)
            elif value is None and before is not None and not is_pending(before):
                changed = _clear(_store_of(before.value, watermarks, tokens), key, before)
            (written if changed else unchanged).append(key)
            keeps_token = bool(binding.shape) or isinstance(value, Token)
            # What was not looked up keeps nothing (any more): it is read in full.
            for token in (True, False) if key not in seen and value is None else (keeps_token,):
                _replace_other(key, watermarks, tokens, run_id, token=token)
        except StateError as failure:
            failures[key] = failure.problems[0]
    return Stored(tuple(written), tuple(unchanged), _not_stored(failures), failures)


def _replace_other(key: str, watermarks: EntryStore, tokens: EntryStore, run_id: str, *, token: bool) -> None:
    """Remove what another way of reading has stored of a dataset that keeps a ``token`` now, or else a watermark.

    After the own value is durable: a death in between leaves both, of which the own one counts. Of a captured dataset the
    mark stays that a snapshot would be next, so that the slot which its source still keeps is not lost from sight.
    """
    other = (watermarks if token else tokens).raw
    try:
        left = other.read().get(key)
    except StateError:
        return  # no run can begin until that file is mended
    if left is None:
        return
    if token or left.get("shape") == "feed":
        other.remove(key, seen=left)
    elif left.get("token") != SNAPSHOT_PENDING:
        other.put(key, {**left, "token": SNAPSHOT_PENDING, "runId": run_id}, seen=left)


def _rebind(target: EntryStore, key: str, stored: Entry, here: Binding) -> None:
    """Where nothing new came, the value stays, but the outputs have it as they are now: what changed was told once."""
    if stored.binding != here and not is_pending(stored):
        _save(target, key, Entry(stored.value, stored.run_id, here), stored)


def _store_of(value: Value, watermarks: EntryStore, tokens: EntryStore) -> EntryStore:
    return tokens if isinstance(value, Token) else watermarks


def _save(target: EntryStore, key: str, entry: Entry, before: Entry | None) -> bool:
    return _tried(lambda: target.save(key, entry, seen=before))


def _clear(target: EntryStore, key: str, before: Entry) -> bool:
    return _tried(lambda: target.raw.remove(key, seen=entry_to_json(before)))


def _tried(change: Callable[[], bool]) -> bool:
    """Change state, trying three times while the store cannot be reached; a lost race is final at once."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return change()
        except StateError as failure:
            if failure.code is not Code.PZ0518:
                raise
    return change()


def _would_move_back(stored: Value, candidate: Value) -> bool:
    if not isinstance(stored, Watermark) or not isinstance(candidate, Watermark):
        return False
    same_axis = (stored.cursor, stored.type) == (candidate.cursor, candidate.type)
    return same_axis and compare(candidate.value, stored.value, stored.type) < 0


def _not_stored(failures: Mapping[str, Problem]) -> Problem | None:
    if not failures:
        return None
    each = "; ".join(f"'{key}': {problem.message} ({problem.code})" for key, problem in sorted(failures.items()))
    return Problem(
        Code.PZ0527,
        f"the outputs are committed, but the state of {len(failures)} dataset(s) was not stored: {each}",
        hint="the next `pz run` stores it, or reads the same rows again",
    )
