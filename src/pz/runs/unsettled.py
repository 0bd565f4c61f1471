"""Runs of which something may still come: their outputs have committed, perhaps, and their state was not stored.

Each run has an empty file ``.pz/runs/.open/<run id>`` from its birth to the moment when somebody has seen that no state
can come of it any more. So whoever looks for such runs looks at few, however many ran since. A file that is left, or comes
back after a power failure, costs a second look; only a missing one would lose something.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pz.runs.directory import OPEN, runs_root
from pz.runs.history import RunEntry, load, newest_first
from pz.runs.ids import is_run_id

__all__ = ["settle", "unsettled", "unsettled_ids"]


def unsettled_ids(state_dir: Path) -> frozenset[str]:
    """The ids of these runs, live ones among them."""
    with suppress(FileNotFoundError):
        return frozenset(path.name for path in (runs_root(state_dir) / OPEN).iterdir() if is_run_id(path.name))
    return frozenset()


def unsettled(state_dir: Path) -> tuple[RunEntry, ...]:
    """The runs, newest first; what is left of a removed one is cleared away."""
    root = runs_root(state_dir)
    known = unsettled_ids(state_dir)
    there = [root / run_id for run_id in known if (root / run_id).is_dir()]
    for run_id in known - {path.name for path in there}:
        settle(state_dir, run_id)
    return tuple(map(load, newest_first(there)))


def settle(state_dir: Path, run_id: str) -> None:
    """Nothing can come of this run any more; harmless when said twice."""
    with suppress(OSError):
        (runs_root(state_dir) / OPEN / run_id).unlink(
            missing_ok=True
        )  # durable: ok - if it comes back it is looked at again
