"""Exclusive locks between processes that the operating system frees when their holder dies.

A lock is an open file, so a killed process frees it and a stopped one keeps it: holding it is proof of life, which a
process id is not. The lock file is never deleted (a waiter would be left with a file that nobody else locks). Who holds
it stands in ``<lock>.owner`` beside it: information for a message, never evidence.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from pz.frozen import frozen

__all__ = ["OsLock", "Owner", "is_free"]


@frozen
class Owner:
    """Who holds a lock."""

    run: str
    host: str
    pid: int

    @classmethod
    def this_process(cls, run: str) -> Owner:
        """This process, on behalf of ``run``."""
        return cls(run, socket.gethostname(), os.getpid())

    def __str__(self) -> str:
        return f"run {self.run} on host {self.host} (process {self.pid})"

    @property
    def place(self) -> str:
        """The process alone, where the run is named already."""
        return f"process {self.pid} on host {self.host}"


class OsLock:
    """One exclusive lock; also excludes other threads and other `OsLock` objects of this process.

    Keep the object: the lock goes with it. As a context manager it only releases; acquire it first and look at the
    answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path, thread_local=False)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return bool(self._lock.is_locked)

    def acquire(self, wait: float = 0.0, owner: Owner | None = None) -> bool:
        """Take the lock within ``wait`` seconds; False when somebody else keeps it. OSError when it cannot be opened."""
        try:
            self._lock.acquire(timeout=wait, poll_interval=0.02)
        except Timeout:
            return False
        if owner is not None:
            self._write_owner(owner)
        return True

    def release(self) -> None:
        """Free the lock, if this object holds it."""
        self._lock.release(force=True)

    def owner(self) -> Owner | None:
        """Who took the lock last, as far as that can be told."""
        try:
            return Owner(**json.loads(self._owner_path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def __enter__(self) -> OsLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def _owner_path(self) -> Path:
        return self.path.with_name(self.path.name + ".owner")

    def _write_owner(self, owner: Owner) -> None:
        aside = self._owner_path.with_name(f".{self._owner_path.name}.{owner.pid}.tmp")
        aside.write_text(json.dumps(asdict(owner)))  # durable: ok - only ever named in a message
        aside.replace(self._owner_path)  # durable: ok - as above


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock at ``path``; one that cannot even be opened counts as held.

    It is taken for an instant to find out, so whoever wants a lock for good waits a moment before giving up. Opened for
    reading only, so that a read-only disk can tell, too; `filelock` takes the same ``flock``.
    """
    try:
        opened = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(opened)
    return True
