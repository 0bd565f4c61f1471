"""A run's directory ``.pz/runs/<run id>``: born whole and locked, locked to the run's end.

    run.lock (+ .owner)   held by the run, and by a retry that continues it: proof of life
    number                the run's place in the order of all runs
    run.json              what the run is to do
    run_results.json      what became of it
    staging.duckdb        its data

``.pz/runs/.open/<run id>`` is there until no state can come of the run any more (`runs.unsettled`).
``.pz/runs/.counter.json`` holds the last number given and its run; it changes under ``.pz/runs/.lock``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType

from pz import jsonfile
from pz.durable import Step, fsync_dir, fsync_file, make_dirs, step, write_atomic
from pz.errors import Code, Problem, ProjectError, os_problem
from pz.events import now
from pz.oslock import OsLock, Owner, is_free
from pz.runs.ids import is_run_id, new_run_id

__all__ = ["RunDirectory", "counted", "hold", "is_live", "number_of", "owner_of", "removed", "run_paths", "runs_root"]

LOCK = "run.lock"
NUMBER = "number"
UNBORN = ".new-"
GONE = ".gone-"
OPEN = ".open"
_LOCK_WAIT = 30.0
_HOLD_WAIT = 2.0


def runs_root(state_dir: Path) -> Path:
    """``.pz/runs`` of the project whose state directory (``.pz``) is given."""
    return state_dir / "runs"


def run_paths(state_dir: Path) -> tuple[Path, ...]:
    """The directories of all runs, unordered. Foreign directories are left out, as are unborn and half-removed runs."""
    try:
        with os.scandir(runs_root(state_dir)) as entries:
            return tuple(Path(e.path) for e in entries if is_run_id(e.name) and e.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return ()


def is_live(run_path: Path) -> bool:
    """Whether a process, running or stopped, holds the run: the run itself, or a retry that continues it."""
    return not is_free(run_path / LOCK)


def owner_of(run_path: Path) -> Owner | None:
    """Who held the run's lock last, for messages."""
    return OsLock(run_path / LOCK).owner()


def number_of(run_path: Path) -> int | None:
    """The run's number, None when it cannot be read."""
    try:
        text = (run_path / NUMBER).read_text("ascii")
    except (OSError, ValueError):
        return None
    return int(text) if text.endswith("\n") and text[:-1].isdecimal() and len(text) < 20 else None


def counted(state_dir: Path) -> tuple[int, str] | None:
    """The last number given and the run that got it; None when the counter is absent or damaged."""
    try:
        content = jsonfile.read(_counter(state_dir))
    except (OSError, jsonfile.DamagedFile):
        return None
    return None if content is None else (int(content["number"]), str(content["runId"]))


def hold(run_path: Path, run_id: str) -> OsLock | None:
    """Take the lock of a finished or dead run on behalf of ``run_id``; None when somebody else has it.

    A retry keeps the lock of the run that it continues, so that no clean-up and no second retry touches it.
    """
    lock = OsLock(run_path / LOCK)
    return lock if lock.acquire(_HOLD_WAIT, Owner.this_process(run_id)) else None


def removed(run_path: Path) -> Problem | None:
    """The error that somebody took the directory of a recorded run away while it was going on; None where it is there."""
    if (run_path / "run.json").exists():
        return None
    return Problem(
        Code.PZ0708,
        f"{run_path} was removed while the run was going on: what became of it is told here alone",
        hint="leave .pz alone while a run is going on; run again, as `pz retry` has nothing to continue",
    )


class RunDirectory:
    """The directory of the run that this process executes, and the lock that says so. Close it last of all.

    As a context it removes itself where the run is refused before it has a record.
    """

    def __init__(self, path: Path, number: int, lock: OsLock) -> None:
        self.path = path
        self.number = number
        self.run_id = path.name
        self._lock = lock

    @classmethod
    def create(cls, state_dir: Path, moment: datetime | None = None) -> RunDirectory:
        """Create the directory of a new run and lock it; the next number is taken under a lock.

        Nobody ever sees the directory without its lock held: it gets its name by a rename. Raises `ProjectError` with
        PZ0702 (or PZ0531 to PZ0533), naming the path.
        """
        root = runs_root(state_dir)
        try:
            make_dirs(root)
            with _numbering(root):
                run_id = _unused_id(root, moment or now())
                number = _next_number(state_dir, run_id)
                return cls(root / run_id, number, _give_birth(root, run_id, number))
        except OSError as failure:
            raise ProjectError(os_problem(failure, root, Code.PZ0702)) from failure

    @property
    def staging(self) -> Path:
        """Where the run's staging database is, or will be."""
        return self.path / "staging.duckdb"

    def close(self) -> None:
        """Free the lock; from now on the run is finished, or dead if its results do not say how it ended."""
        self._lock.release()

    def discard(self) -> None:
        """Remove the directory of a run that was refused before anything moved: it is no part of the history.

        Its number is not given again. What cannot be removed is passed over by whoever looks at runs.
        """
        root, gone = self.path.parent, self.path.with_name(f"{GONE}{self.run_id}")
        with suppress(OSError):
            self.path.rename(gone)  # durable: ok - a directory without a record counts as none
            for leftover in gone.iterdir():
                leftover.unlink()  # durable: ok - the same
            gone.rmdir()  # durable: ok - the same
            (root / OPEN / self.run_id).unlink(missing_ok=True)  # durable: ok - the same

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, Exception) and not (self.path / "run.json").exists():
            self.discard()
        self.close()


@contextmanager
def _numbering(root: Path) -> Iterator[None]:
    lock = OsLock(root / ".lock")
    if not lock.acquire(_LOCK_WAIT):
        raise ProjectError(Problem(Code.PZ0702, f"another process keeps the lock {lock.path}"))
    with lock:
        yield


def _counter(state_dir: Path) -> Path:
    return runs_root(state_dir) / ".counter.json"


def _unused_id(root: Path, moment: datetime) -> str:
    while True:
        run_id = new_run_id(moment)
        if not any((root / f"{prefix}{run_id}").exists() for prefix in ("", UNBORN, GONE)):
            return run_id


def _next_number(state_dir: Path, run_id: str) -> int:
    """Take the next number. The runs are only looked through when the counter is lost; then it is rebuilt."""
    last = counted(state_dir)
    known = [last[0]] if last else [n for n in map(number_of, run_paths(state_dir)) if n is not None]
    number = max(known, default=0) + 1
    write_atomic(_counter(state_dir), jsonfile.encode({"number": number, "runId": run_id}), Step.CREATE_RUN_DIR)
    return number


def _open_all(root: Path) -> None:
    """Where older versions have run: each of their runs is looked at once."""
    if (root / OPEN).is_dir():
        return
    known = [path.name for path in run_paths(root.parent)]
    aside = root / f"{UNBORN}{OPEN}"
    aside.mkdir(exist_ok=True)
    for run_id in known:
        (aside / run_id).touch()
    fsync_dir(aside)
    aside.rename(root / OPEN)  # durable: ok - the caller's step


def _give_birth(root: Path, run_id: str, number: int) -> OsLock:
    unborn, final = root / f"{UNBORN}{run_id}", root / run_id
    with step(Step.CREATE_RUN_DIR):
        unborn.mkdir()
        lock = OsLock(unborn / LOCK)
        try:
            lock.acquire(owner=Owner.this_process(run_id))
            (unborn / NUMBER).write_text(f"{number}\n", "ascii")
            fsync_file(unborn / NUMBER)
            fsync_dir(unborn)
            _open_all(root)
            unborn.rename(final)
            fsync_dir(root)
            (root / OPEN / run_id).touch()
            fsync_dir(root / OPEN)
        except BaseException:
            lock.release()
            with suppress(OSError):
                for leftover in unborn.iterdir():
                    leftover.unlink()
                unborn.rmdir()
            raise
    return lock
