"""What goes wrong, and what was asked: faults that fire at the nth call, and a log of every call.

Both live in files beside the far side's data, so that a killed process and the retry after it count as one story. The log
is appended with one `write` per call, which survives SIGKILL and needs no lock.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from pz.connectors.contract import CancelToken
from pz.errors import OutcomeUnknown, PermanentError, TransientError
from pz.frozen import frozen

__all__ = ["ACTIONS", "CONVERSING", "Call", "Fault", "Script", "UnexpectedFault"]

ACTIONS = ("transient", "permanent", "unknown", "unexpected", "hang", "kill", "late", "wrong")

# Held by whoever talks to a far side. A process that is about to stand still takes it first: SQLite's lock would stay with
# it, whichever of its threads was at work, while a real server goes on serving the others.
CONVERSING = threading.RLock()

# One row per scripted fault; `seen` counts the matching calls of all processes so far.
_CREATE = """
CREATE TABLE IF NOT EXISTS faults (
    id INTEGER PRIMARY KEY, op TEXT NOT NULL, moment TEXT NOT NULL, entity TEXT NOT NULL, partition TEXT NOT NULL,
    nth INTEGER NOT NULL, times INTEGER NOT NULL, action TEXT NOT NULL, message TEXT NOT NULL, retry_after REAL,
    seen INTEGER NOT NULL DEFAULT 0
)
"""

# Counts this call against every fault that matches it and returns those with their new count.
_COUNT = """
UPDATE faults SET seen = seen + 1
WHERE op = ? AND moment = ? AND entity IN ('*', ?) AND partition IN ('*', ?)
RETURNING id, action, message, retry_after, seen, nth, times
"""


class UnexpectedFault(RuntimeError):
    """What an ``unexpected`` fault raises: an exception type that the contract does not name."""


@frozen
class Fault:
    """One scripted fault: at the ``nth`` matching call (from 1), and at the ``times - 1`` after it (0: at all after it).

    ``op`` is a call of the contract (``plan_read``, ``read``, ``batch``, ``begin_write``, ``write_batch``, ``commit``,
    ``close`` ...). ``moment`` says whether it fires ``before`` the call has its effect or ``after``: an ``unknown`` before
    a commit was not applied, one after it was. ``partition`` is a number of the plan, as text. Actions: ``transient``,
    ``permanent``, ``unknown``, ``unexpected`` raise; ``hang`` waits until cancelled or released; ``kill`` ends the process
    by SIGKILL; ``late`` (commit only) loses the call now and lets `Server.deliver_late` apply it afterwards; ``wrong``
    (settle only) makes the answer the opposite of the truth.
    """

    op: str
    action: str
    entity: str = "*"
    partition: str = "*"
    nth: int = 1
    times: int = 1
    moment: str = "before"
    message: str = ""
    retry_after: float | None = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"unknown action {self.action!r}; one of {', '.join(ACTIONS)}")
        if self.moment not in {"before", "after"}:
            raise ValueError("moment is before or after")


@frozen
class Call:
    """One logged call. ``rows`` is how many rows it carried, ``partition`` the number of the partition or empty."""

    op: str
    entity: str
    partition: str = ""
    rows: int = 0
    pid: int = 0


class Script:
    """The faults and the call log of one far side."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._faults = root / "faults.sqlite"
        self._log = root / "calls.log"

    def add(self, fault: Fault) -> None:
        """Script a fault; it counts from now on."""
        named = asdict(fault)
        with self._open() as connection:
            connection.execute(_CREATE)  # durable: ok - the far side's own store
            connection.execute(
                f"INSERT INTO faults ({', '.join(named)}) VALUES ({', '.join('?' * len(named))})", tuple(named.values())
            )

    def clear(self) -> None:
        """Forget all faults."""
        self._faults.unlink(missing_ok=True)  # durable: ok - the far side's own store

    def calls(self, op: str | None = None, entity: str | None = None) -> list[Call]:
        """The calls so far, oldest first, of one kind or entity where given."""
        if not self._log.exists():
            return []
        found = (Call(**json.loads(line)) for line in self._log.read_text(encoding="utf-8").splitlines())
        return [c for c in found if (op is None or c.op == op) and (entity is None or c.entity == entity)]

    def reads(self, entity: str) -> Counter[str]:
        """How often each partition of a dataset was read (begun), by its number."""
        return Counter(call.partition for call in self.calls("read", entity))

    def forget_calls(self) -> None:
        """Start the log anew."""
        self._log.unlink(missing_ok=True)  # durable: ok - the far side's own store

    @contextmanager
    def call(
        self, op: str, entity: str, *, partition: str = "", rows: int = 0, cancel: CancelToken | None = None
    ) -> Iterator[str | None]:
        """Log a call and run its body between the faults scripted before and after it.

        Yields the action that the body itself has to play (``late``, ``wrong``), else None.
        """
        self._append(Call(op, entity, partition, rows, os.getpid()))
        special = self._fire(op, "before", entity, partition, cancel)
        yield special
        self._fire(op, "after", entity, partition, cancel)

    def release(self) -> None:
        """Let every hanging call go on."""
        (self._root / "release").touch()

    def hanging(self) -> bool:
        """Whether some call hangs now or has hung."""
        return (self._root / "hanging").exists()

    def _append(self, call: Call) -> None:
        line = json.dumps(asdict(call)) + "\n"
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def _fire(self, op: str, moment: str, entity: str, partition: str, cancel: CancelToken | None) -> str | None:
        if not self._faults.exists():
            return None
        with self._open() as connection:
            rows = connection.execute(_COUNT, (op, moment, entity, partition)).fetchall()
        for identity, action, message, retry_after, seen, nth, times in rows:
            if seen >= nth and (times == 0 or seen < nth + times):
                text = message or f"scripted fault {identity} at {op}"
                return self._act(action, text, retry_after, cancel)
        return None

    def _act(self, action: str, message: str, retry_after: float | None, cancel: CancelToken | None) -> str | None:
        if action == "transient":
            raise TransientError(message, retry_after=retry_after)
        if action == "permanent":
            raise PermanentError(message)
        if action == "unknown":
            raise OutcomeUnknown(message)
        if action == "unexpected":
            raise UnexpectedFault(message)
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "hang":
            self._hang(cancel)
        return action if action in {"late", "wrong"} else None

    def _hang(self, cancel: CancelToken | None) -> None:
        (self._root / "hanging").touch()
        while not (self._root / "release").exists():
            if cancel is not None:
                cancel.raise_if_set()
            time.sleep(0.01)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with CONVERSING, closing(sqlite3.connect(self._faults, timeout=60)) as connection:
            yield connection
            connection.commit()  # durable: ok - the far side's own store
