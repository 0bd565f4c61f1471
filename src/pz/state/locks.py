"""One OS lock per stateful dataset and per output of a run, taken before any state is read, kept to its terminal status.

So a slow or stopped run can never put an old value over a newer one, and no output is written by two runs at once. Locks
are taken in one order by everybody, so that two runs cannot wait for each other; they are freed by the operating system
when the holder dies. Runs with disjoint datasets and outputs do not meet.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from pz.connectors.contract import CancelToken
from pz.durable import make_dirs
from pz.errors import Code, Problem, StateError, os_problem
from pz.oslock import OsLock, Owner

__all__ = ["RunLocks", "dataset_lock", "output_lock"]

WAIT = 30.0
_POLL = 0.1


def dataset_lock(key: str) -> str:
    """The name of the lock of a dataset's state."""
    return f"dataset:{key}"


def output_lock(key: str) -> str:
    """The name of the lock of an output; ``key`` is ``connection.entity``, or the digest of where it really is."""
    return f"output:{key}"


class RunLocks:
    """The locks of one run. Release them after the terminal status is written."""

    def __init__(self, locks: tuple[OsLock, ...]) -> None:
        self._locks = locks

    @classmethod
    def acquire(
        cls,
        state_dir: Path,
        run_id: str,
        names: Iterable[str],
        *,
        wait: float = WAIT,
        cancel: CancelToken | None = None,
        tell: Callable[[str], None] = lambda message: None,
    ) -> RunLocks:
        """Take all locks within ``wait`` seconds altogether, or none.

        ``tell`` hears, once for each lock that is not free, what is waited for and how long at most. Raises `StateError`
        PZ0701 naming the dataset or output and who holds it, and `Cancelled`.
        """
        patience = _Patience(wait, cancel, tell)
        owner = Owner.this_process(run_id)
        taken: list[OsLock] = []
        try:
            make_dirs(state_dir / "locks")
            for name in sorted(set(names)):
                lock = OsLock(_path(state_dir, name))
                taken.append(lock)
                patience.take(lock, name, owner)
        except BaseException as failure:
            cls(tuple(taken)).release()
            if isinstance(failure, OSError):
                raise StateError(os_problem(failure, _named(failure, state_dir / "locks"), Code.PZ0529)) from failure
            raise
        return cls(tuple(taken))

    def release(self) -> None:
        """Free all locks; harmless when done twice."""
        for lock in reversed(self._locks):
            lock.release()

    def __enter__(self) -> RunLocks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _Patience:
    """Waits for locks, for so many seconds in all."""

    def __init__(self, wait: float, cancel: CancelToken | None, tell: Callable[[str], None]) -> None:
        self._wait = wait
        self._deadline = time.monotonic() + wait
        self._cancel = cancel
        self._tell = tell

    def take(self, lock: OsLock, name: str, owner: Owner) -> None:
        """Take one lock, or raise."""
        told = False
        while not lock.acquire(min(_POLL, self._left), owner):
            if self._cancel is not None:
                self._cancel.raise_if_set()
            kind, _, key = name.partition(":")
            holder = lock.owner() or "another run"
            if self._left <= 0:
                waited = f"; waited {self._wait:g} s" if self._wait else ""
                raise StateError(Problem(Code.PZ0701, f"{kind} '{key}' is held by {holder}{waited}"))
            if not told:
                self._tell(f"waiting up to {self._left:.0f} s for {kind} '{key}', held by {holder}")
                told = True

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


def _named(failure: OSError, otherwise: Path) -> Path:
    """The path that was refused, where the error tells."""
    return Path(os.fsdecode(failure.filename)) if isinstance(failure.filename, str | bytes) else otherwise


def _path(state_dir: Path, name: str) -> Path:
    """A file name that any file system takes, different for names that differ in any way."""
    readable = re.sub(r"[^A-Za-z0-9]+", "_", name)[:60]
    return state_dir / "locks" / f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock"
