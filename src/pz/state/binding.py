"""State counts only where it was earned: the same source, the same cursor, the same outputs.

Running dev's project against prod, or adding an output to a dataset that already has a watermark, would otherwise
silently skip everything before it.
"""

from __future__ import annotations

from collections.abc import Collection

from pz.errors import Code, Problem
from pz.state.entries import Binding, Entry, Watermark

__all__ = ["check_binding", "check_slot", "redefined"]

_START_OVER = "run with --full-refresh to read everything again"
_MOVED = (
    f"{_START_OVER}, or declare `sync: {{ start: from_state }}` where the new place goes on where the old one ended"
)
_FROM_NOW_ON = "declare `sync: { start: from_state }` to deliver only what comes from now on"


def check_binding(
    key: str,
    stored: Entry,
    here: Binding,
    *,
    cursor: str | None = None,
    to_create: Collection[str] = (),
    appends: Collection[str] = (),
    from_state: bool = False,
) -> tuple[Problem, ...]:
    """Say why the stored state of dataset ``key`` must not be used ``here``; empty when it may (all are PZ0705).

    ``to_create`` names the outputs whose target does not exist yet, ``appends`` those that append; ``from_state`` is the
    consent to get only what comes from now on: in new outputs, at another path, from another path. A full refresh uses no
    state, so there is nothing to check then.
    """
    problems: list[Problem] = []
    earned = stored.binding
    if earned.location != here.location:
        problems.append(_refusal(f"the state of '{key}' was stored for another source location", _START_OVER))
    if earned.dataset and earned.dataset != here.dataset and not from_state:
        problems.append(_refusal(f"the state of '{key}' was stored when it read another path", _MOVED))
    if (slot := check_slot(key, stored, here)) is not None:
        problems.append(slot)
    if isinstance(stored.value, Watermark) and cursor is not None and stored.value.cursor != cursor:
        said = f"the state of '{key}' was stored for cursor '{stored.value.cursor}', not '{cursor}'"
        problems.append(_refusal(said, _START_OVER))
    for output, digest in sorted(here.outputs.items()):
        if output in earned.outputs and earned.outputs[output] != digest:
            said = f"the state of '{key}' was stored for another location of output '{output}'"
            problems.append(_refusal(said, _START_OVER))
        elif from_state:
            continue
        elif output in earned.paths and earned.paths[output] != here.paths.get(output):
            said = f"the state of '{key}' was stored when output '{output}' was written to another path"
            problems.append(_refusal(said, _MOVED))
        elif output not in earned.outputs:
            said = f"output '{output}' never got what '{key}' had delivered before its stored state"
            problems.append(_refusal(said, _backfill(output, here, appends, known=False)))
        elif output in to_create:
            said = f"the target of output '{output}' does not exist, but '{key}' has stored state"
            problems.append(_refusal(said, _backfill(output, here, appends, known=True)))
    return tuple(problems)


def _backfill(output: str, here: Binding, appends: Collection[str], *, known: bool) -> str:
    """How an output comes to what was delivered before it: alone, where others beside it have that already."""
    beside = sorted(here.outputs.keys() - {output})
    if not beside:
        return f"{_START_OVER}, or {_FROM_NOW_ON}"
    consent = "" if known else ", then run once with `sync: { start: from_state }`"
    twice = ", ".join(f"'{name}'" for name in beside if name in appends)
    warning = f"; --full-refresh for all would add every row once more to {twice}" if twice else ""
    alone = f"run `pz run --select {output} --full-refresh`, which gives it everything and leaves the state{consent}"
    return f"{alone}; or {_FROM_NOW_ON}{warning}"


def redefined(stored: Entry, here: Binding) -> tuple[str, ...]:
    """The outputs whose rows of before were made by another definition than the present one: SQL, read, or options changed.

    Not those that were moved along with that. An entry from before definitions were kept says nothing.
    """
    earned = stored.binding
    return tuple(
        name
        for name, now in sorted(here.definitions.items())
        if earned.definitions.get(name, now) != now and earned.paths.get(name) == here.paths.get(name)
    )


def check_slot(key: str, stored: Entry, here: Binding) -> Problem | None:
    """PZ0705 for a captured dataset that was given another slot: nobody would know of the old one any more.

    Also said to a full refresh, which would overwrite the only trace of it.
    """
    earned = stored.binding
    if not earned.shape or earned.shape != here.shape or earned.slot == here.slot:
        return None
    said = f"the state of '{key}' was stored when it was captured from {_slot(earned)}, not from {_slot(here)}"
    return _refusal(said, f"let go of the old one with `pz cdc drop {key}`; the next run then reads the whole table")


def _slot(binding: Binding) -> str:
    return f"slot '{binding.slot}'" if binding.slot else "the slot of its own name"


def _refusal(message: str, hint: str) -> Problem:
    return Problem(Code.PZ0705, message, hint=hint)
