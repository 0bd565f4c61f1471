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
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from pz.frozen import frozen

__all__ = ["OsLock", "Owner", "is_free"]

POLL = 0.02
"""Seconds between two looks at a lock that somebody else has."""


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


class OsLock:
    """One exclusive lock; also excludes other threads and other `OsLock` objects of this process.

    Keep the object: the lock goes with it. As a context manager it only releases; acquire it first and look at the
    answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._opened is not None

    def acquire(self, wait: float = 0.0, owner: Owner | None = None) -> bool:
        """Take the lock within ``wait`` seconds; False when somebody else keeps it. OSError when it cannot be opened."""
        latest = time.monotonic() + wait
        while self._opened is None:
            self._opened = _locked(self.path)
            if self._opened is None:
                if time.monotonic() >= latest:
                    return False
                time.sleep(POLL)
        if owner is not None:
            self._write_owner(owner)
        return True

    def release(self) -> None:
        """Free the lock, if this object holds it."""
        opened, self._opened = self._opened, None
        if opened is not None:
            os.close(opened)

    def __del__(self) -> None:
        self.release()

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


def _locked(path: Path) -> int | None:
    """The file, opened and locked; None while somebody else has it."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    except BaseException:
        os.close(opened)
        raise
    return opened


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock at ``path``; one that cannot even be opened counts as held.

    It is taken for an instant to find out, so whoever wants a lock for good waits a moment before giving up. Opened for
    reading only, so that a read-only disk can tell, too.
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
