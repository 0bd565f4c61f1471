"""One state file: a mapping from dataset keys to entries, changed entry by entry, never believed when damaged.

Reading: an absent file means that nothing was ever stored. A damaged one is refused with PZ0706 and left in place: taking it for
a first run would load everything again and then overwrite the evidence.

Writing: under the OS lock on ``<file>.lock`` the file is read again, the entry is compared with what the writer has
seen, and the whole file is replaced atomically. Two writers of different entries both succeed; of two writers of one
entry, one gets PZ0520.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pz import jsonfile
from pz.durable import Step, left_aside, make_dirs, remove, write_atomic
from pz.errors import Code, Problem, StateError, os_problem
from pz.oslock import OsLock

__all__ = ["LocalStore"]

LOCK_WAIT = 30.0
_DAMAGED_HINT = "restore the file from a backup; removing it makes every dataset in it start over"

Entry = Mapping[str, Any]


class LocalStore:
    """The entries of one JSON file under ``.pz/state``."""

    def __init__(self, path: Path, section: str, lock_wait: float = LOCK_WAIT) -> None:
        self.path = path
        self._section = section
        self._lock_wait = lock_wait

    def read(self) -> dict[str, dict[str, Any]]:
        """All entries; empty when there is no file. Raises `StateError` PZ0706, or PZ0529 when it cannot be read."""
        try:
            content = jsonfile.read(self.path)
        except jsonfile.DamagedFile as damage:
            raise self._damaged(damage.reason) from damage
        except OSError as failure:
            raise StateError(os_problem(failure, self.path, Code.PZ0529)) from failure
        if content is None:
            return {}
        entries = content.get(self._section)
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise self._damaged(f"it holds no {self._section}")
        return entries

    def put(self, key: str, entry: Entry, *, seen: Entry | None) -> bool:
        """Store an entry if the stored one is still what the caller has ``seen`` (None: nothing); False: nothing to do.

        An entry that already equals the new one counts as stored: the acknowledgement of an earlier write may have been
        lost. Raises `StateError`: PZ0520 when another run was faster, PZ0518 when the lock was not to be had.
        """
        with self._changing() as entries:
            if entries.get(key) == dict(entry):
                return False
            self._check_seen(entries, key, seen)
            self._write({**entries, key: dict(entry)})
            return True

    def remove(self, key: str, *, seen: Entry | None) -> bool:
        """Remove an entry under the same check; False when it was not there any more."""
        with self._changing() as entries:
            if key not in entries:
                return False
            self._check_seen(entries, key, seen)
            self._write({name: entry for name, entry in entries.items() if name != key})
            return True

    @contextmanager
    def _changing(self) -> Iterator[dict[str, dict[str, Any]]]:
        """Hold the file's lock and hand out what the file holds; the lock file itself is never deleted."""
        lock = OsLock(self.path.with_name(self.path.name + ".lock"))
        try:
            make_dirs(self.path.parent)
            if not lock.acquire(self._lock_wait):
                raise StateError(
                    Problem(
                        Code.PZ0518, f"another process keeps the lock on {self.path}", hint="try again when it ended"
                    )
                )
            with lock:
                yield self.read()
        except OSError as failure:
            raise StateError(os_problem(failure, self.path, Code.PZ0529)) from failure

    def _write(self, entries: Mapping[str, Entry]) -> None:
        """Replace the file; only the holder of its lock writes, so what others left aside is of the dead."""
        for aside in left_aside(self.path):
            remove(aside, Step.ADVANCE_STATE)
        data = jsonfile.encode({self._section: entries}, sort_keys=True)
        write_atomic(self.path, data, Step.ADVANCE_STATE)

    def _check_seen(self, entries: Mapping[str, Entry], key: str, seen: Entry | None) -> None:
        stored = entries.get(key)
        if stored != (None if seen is None else dict(seen)):
            by = "" if stored is None else f" by run {stored.get('runId', 'unknown')}"
            raise StateError(
                Problem(
                    Code.PZ0520, f"the state of '{key}' was changed{by} after this run had read it; it is left as it is"
                )
            )

    def _damaged(self, reason: str) -> StateError:
        return StateError(Problem(Code.PZ0706, f"{self.path} cannot be used: {reason}", hint=_DAMAGED_HINT))
