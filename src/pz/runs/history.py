"""Looking back: which runs there were, which was the last, which chain of retries a run belongs to.

Runs are ordered by their number, never by a clock. A run whose file is damaged keeps its place and says so: an older run
is never taken for the last one because a file of the last cannot be read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pz.errors import Problem, ProjectError, StateError
from pz.frozen import frozen
from pz.runs.directory import RunDirectory, counted, is_live, number_of, run_paths, runs_root
from pz.runs.ids import is_run_id
from pz.runs.model import RunRecord, RunResults, RunStatus
from pz.runs.records import RECORD, RESULTS, read_record, read_results

__all__ = ["RunEntry", "chain", "find", "latest", "leave_trace", "list_runs", "load", "newest_first", "unbegun_after"]

T = TypeVar("T")


@frozen
class RunEntry:
    """One run as its directory shows it. ``damage`` holds a PZ0707 for each file that cannot be used."""

    run_id: str
    path: Path
    number: int | None
    record: RunRecord | None
    results: RunResults | None
    damage: tuple[Problem, ...]
    live: bool

    def __repr__(self) -> str:
        """One short line; the fields would be pages."""
        return f"<RunEntry {self.run_id}: {self.status}>"

    @property
    def began(self) -> bool:
        """Whether the run came as far as to say what it was to do; before that nothing can have moved."""
        return self.record is not None or self.results is not None or bool(self.damage)

    @property
    def status(self) -> RunStatus:
        """The recorded status; ``running`` as long as no terminal status is readable."""
        return RunStatus.RUNNING if self.results is None else self.results.status

    @property
    def dead(self) -> bool:
        """Whether the run stopped without saying how it ended, and nobody holds it any more."""
        return self.began and not self.live and not self.damage and self.status is RunStatus.RUNNING

    @property
    def cancelled(self) -> bool:
        """Whether the run was told to stop, and stopped in order."""
        return self.status is RunStatus.FATAL

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be done about this run."""
        return self.status is RunStatus.SUCCESS

    @property
    def origin(self) -> str:
        """The run that began the chain of retries; the run itself when it is none or cannot be told."""
        if self.record is not None:
            return self.record.origin
        return self.run_id if self.results is None else self.results.origin


def list_runs(state_dir: Path, limit: int | None = None) -> tuple[RunEntry, ...]:
    """The runs that began or are live, newest first."""
    entries = (entry for entry in map(load, newest_first(run_paths(state_dir))) if entry.began or entry.live)
    return tuple(islice(entries, None if limit is None else min(limit, sys.maxsize)))


def later_than(state_dir: Path, entry: RunEntry) -> Iterator[RunEntry]:
    """The runs that began after this one, newest first."""
    for found in map(load, newest_first(run_paths(state_dir))):
        if found.run_id == entry.run_id:
            return
        if found.began:
            yield found


def unbegun_after(state_dir: Path, entry: RunEntry) -> str | None:
    """The newest run that took its number after this one and ended before it began: refused, or dead, with nothing moved."""
    for found in map(load, newest_first(run_paths(state_dir))):
        if found.run_id == entry.run_id:
            return None
        if not (found.began or found.live):
            return found.run_id
    return None


def leave_trace(state_dir: Path) -> None:
    """Keep a directory without a record of a run that was refused, so that `unbegun_after` tells of it.

    Only where runs were before, and one trace for any number of refusals in a row. It is never a failure of its own.
    """
    newest = next(map(load, newest_first(run_paths(state_dir))), None)
    if newest is None or not (newest.began or newest.live):
        return
    with suppress(ProjectError):
        RunDirectory.create(state_dir).close()


def newest_first(paths: Iterable[Path]) -> list[Path]:
    """Order run directories by number; a run whose number is lost, although it began, counts as the newest."""
    return sorted(paths, key=_place, reverse=True)


def latest(state_dir: Path) -> RunEntry | None:
    """The run with the highest number, whatever state its files are in; None when no run ever began.

    The counter knows it without looking through all runs; a run that died before it began is passed over.
    """
    last = counted(state_dir)
    if last is not None:
        entry = find(state_dir, last[1])
        if entry is not None and (entry.began or entry.live):
            return entry
    return next(iter(list_runs(state_dir, 1)), None)


def find(state_dir: Path, run_id: str) -> RunEntry | None:
    """The run with this id, None when there is no such directory."""
    path = runs_root(state_dir) / run_id
    return load(path) if is_run_id(run_id) and path.is_dir() else None


def chain(state_dir: Path, entry: RunEntry) -> tuple[RunEntry, ...]:
    """The run and those that it continues, newest first, as far as they still exist."""
    found = [entry]
    while (record := found[-1].record) is not None and record.retry_of is not None:
        earlier = find(state_dir, record.retry_of)
        if earlier is None or earlier.run_id in {run.run_id for run in found}:
            break
        found.append(earlier)
    return tuple(found)


def load(path: Path) -> RunEntry:
    """Read one run's directory. Liveness first: a run that ends meanwhile must not look dead."""
    live = is_live(path)
    damage: list[Problem] = []
    record = _or_damage(read_record, path, damage)
    results = _or_damage(read_results, path, damage)
    number = record.number if record is not None else number_of(path)
    return RunEntry(path.name, path, number, record, results, tuple(damage), live)


def _or_damage(read: Callable[[Path], T | None], path: Path, damage: list[Problem]) -> T | None:
    try:
        return read(path)
    except StateError as failure:
        damage.extend(failure.problems)
        return None


def _place(path: Path) -> tuple[int, int, str]:
    number = number_of(path)
    if number is None:
        record = _or_damage(read_record, path, [])
        number = None if record is None else record.number
    if number is not None:
        return (1, number, path.name)
    return (2 if (path / RECORD).exists() or (path / RESULTS).exists() else 0, 0, path.name)
