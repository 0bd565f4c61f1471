"""Removing what old runs left: their staging databases, or with `purge` their whole directories.

A run that somebody holds is never touched; the lock of each run is held while it is removed. A chain of retries that has not
succeeded counts as one run, as its next retry needs the staging of all its members. State, ``target/`` and, without
`purge`, records and results are never touched. Nothing here fails a run: what could not be removed is reported.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pz.durable import Step, fsync_dir, remove, step
from pz.durations import parse_duration
from pz.errors import Code, Problem, ProjectError, os_problem
from pz.events import now
from pz.frozen import frozen
from pz.oslock import OsLock, is_free
from pz.runs.directory import GONE, LOCK, UNBORN, is_live, run_paths, runs_root
from pz.runs.history import RunEntry, load, newest_first
from pz.runs.ids import is_run_id, started_at
from pz.runs.unsettled import unsettled

__all__ = ["CleanReport", "CleanedRun", "clean", "clean_selection", "sweep"]

_DEFAULT_KEEP = 1
_DATA = ("staging.duckdb", ".staging")
_DATA_DIRECTORIES = frozenset({"tmp", "spool"})


@frozen
class CleanedRun:
    """A run of which something was removed, or would be; ``purged``: the whole directory."""

    run_id: str
    bytes: int
    purged: bool


@frozen
class CleanReport:
    """What a clean-up did, or with ``dry_run`` would do."""

    cleaned: tuple[CleanedRun, ...] = ()
    live: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    dry_run: bool = False

    @property
    def bytes(self) -> int:
        """What was given back to the disk."""
        return sum(run.bytes for run in self.cleaned)


def sweep(state_dir: Path, keep_last: int | None) -> CleanReport:
    """Remove the staging of all but the newest ``keep_last`` runs after a run (None: retention is off).

    Runs of which state may still come keep theirs: what they have delivered would be delivered again.
    """
    if keep_last is None:
        return CleanReport()
    return clean(
        state_dir, keep_last=keep_last, spare=frozenset(run.run_id for run in unsettled(state_dir) if not run.finished)
    )


def clean_selection(keep_last: str | None, older_than: str | None) -> tuple[int | None, timedelta | None]:
    """Read the selectors of `pz clean`. Raises `ProjectError`: PZ0511 for both at once, PZ0512 for an unusable value."""
    if keep_last is not None and older_than is not None:
        raise ProjectError(Problem(Code.PZ0511, "--keep-last and --older-than exclude each other"))
    if keep_last is not None and not (keep_last.isascii() and keep_last.isdecimal() and len(keep_last) < 10):
        raise ProjectError(Problem(Code.PZ0512, "--keep-last takes a whole number of runs, 0 or more"))
    try:
        age = None if older_than is None else parse_duration(older_than)
    except ValueError as failure:
        raise ProjectError(Problem(Code.PZ0512, f"--older-than: {failure}")) from failure
    return (None if keep_last is None else int(keep_last)), age


def clean(
    state_dir: Path,
    *,
    keep_last: int | None = None,
    older_than: timedelta | None = None,
    purge: bool = False,
    dry_run: bool = False,
    moment: datetime | None = None,
    spare: frozenset[str] = frozenset(),
) -> CleanReport:
    """Remove what the selector does not keep (by default all but the newest run); a dry run decides identically.

    ``older_than`` always keeps the newest run, ``keep_last=0`` keeps none. Directories that are no run have no date, so
    only ``keep_last`` reaches them, as the oldest of all, and only with ``purge``. ``spare`` are runs that are kept whatever
    the selector says.
    """
    units = _units(state_dir, purge)
    chosen = _by_age(units, older_than, moment or now()) if older_than is not None else _by_count(units, keep_last)
    report = _Removal(purge, dry_run)
    for unit in chosen:
        if spare.isdisjoint(path.name for path in unit):
            report.unit(unit)
    if not dry_run:
        report.leftovers(runs_root(state_dir))
    return report.result()


# A unit is what is kept or removed together: a run, or an unfinished chain of retries; newest first.
_Unit = tuple[Path, ...]


def _units(state_dir: Path, purge: bool) -> list[_Unit]:
    """What may be kept or removed, newest first. Without `purge` only what still has data counts: a project with thousands of
    old runs pays for the few whose staging is still there."""
    paths = [path for path in run_paths(state_dir) if purge or _data_of(path)]
    entries = [load(path) for path in newest_first(paths)]
    began = [entry for entry in entries if entry.began or entry.live]
    unbegun = [(entry.path,) for entry in entries if not (entry.began or entry.live)]
    foreign = [(path,) for path in _foreign(runs_root(state_dir))] if purge else []
    return _chains(began) + unbegun + foreign


def _chains(runs: Sequence[RunEntry]) -> list[_Unit]:
    by_origin: dict[str, list[RunEntry]] = {}
    for run in runs:
        by_origin.setdefault(run.origin, []).append(run)
    units: list[_Unit] = []
    for run in runs:
        members = by_origin[run.origin]
        if members[0].finished:
            units.append((run.path,))
        elif run is members[0]:
            units.append(tuple(member.path for member in members))
    return units


def _foreign(root: Path) -> list[Path]:
    return sorted(
        path for path in _children(root) if path.is_dir() and path.name[:1] != "." and not is_run_id(path.name)
    )


def _children(root: Path) -> list[Path]:
    try:
        return list(root.iterdir())
    except FileNotFoundError:
        return []


def _by_count(units: list[_Unit], keep_last: int | None) -> list[_Unit]:
    return units[_DEFAULT_KEEP if keep_last is None else keep_last :]


def _by_age(units: list[_Unit], older_than: timedelta, moment: datetime) -> list[_Unit]:
    chosen = []
    for unit in units[1:]:
        start = started_at(unit[0].name)
        if start is not None and moment - start > older_than:
            chosen.append(unit)
    return chosen


class _Removal:
    """One pass over the chosen units, collecting what it did."""

    def __init__(self, purge: bool, dry_run: bool) -> None:
        self._purge = purge
        self._dry_run = dry_run
        self._cleaned: list[CleanedRun] = []
        self._live: list[str] = []
        self._problems: list[Problem] = []

    def result(self) -> CleanReport:
        return CleanReport(tuple(self._cleaned), tuple(self._live), tuple(self._problems), self._dry_run)

    def unit(self, unit: _Unit) -> None:
        """Remove a unit; one live member protects the others, as it may still read them."""
        if any(is_live(path) for path in unit):
            self._live.extend(path.name for path in unit)
            return
        for path in unit:
            try:
                self._run(path)
            except OSError as failure:
                self._problems.append(os_problem(failure, path, Code.PZ0531))

    def _run(self, path: Path) -> None:
        doomed = [path] if self._purge else _data_of(path)
        size = sum(_size(item) for item in doomed)
        if not doomed:
            return
        if not self._dry_run and not self._remove(path, doomed):
            self._live.append(path.name)
            return
        self._cleaned.append(CleanedRun(path.name, size, self._purge))

    def _remove(self, path: Path, doomed: Iterable[Path]) -> bool:
        """Remove under the run's lock; False when somebody took it meanwhile."""
        lock = OsLock(path / LOCK)
        if not lock.acquire():
            return False
        with lock:
            if self._purge:
                _purge(path)
            else:
                for item in doomed:
                    _delete(item)
        return True

    def leftovers(self, root: Path) -> None:
        """Finish what a crash interrupted: directories half removed, or never named because their run died first."""
        for path in _children(root):
            unborn = path.name.startswith(UNBORN) and is_free(path / LOCK)
            if path.name.startswith(GONE) or unborn:
                with step(Step.SWEEP_RETENTION):
                    shutil.rmtree(path, ignore_errors=True)


def _purge(path: Path) -> None:
    """Remove a run's directory: out of sight by one rename first, so that no half of a run is ever looked at."""
    gone = path.with_name(f"{GONE}{path.name}")
    with step(Step.SWEEP_RETENTION):
        path.rename(gone)
        fsync_dir(path.parent)
        shutil.rmtree(gone)


def _data_of(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        found = [e for e in entries if e.name.startswith(_DATA) or (e.name in _DATA_DIRECTORIES and e.is_dir())]
    return sorted(Path(entry.path) for entry in found)


def _delete(item: Path) -> None:
    if item.is_dir() and not item.is_symlink():
        with step(Step.SWEEP_RETENTION):
            shutil.rmtree(item)
    else:
        remove(item, Step.SWEEP_RETENTION)


def _size(item: Path) -> int:
    if item.is_dir() and not item.is_symlink():
        return sum(_size(child) for child in item.iterdir())
    return item.lstat().st_size
