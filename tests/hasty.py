"""The command line with short patience: who finds a lock taken says so after a moment, not after half a minute.

And who is stopped at a failpoint stops between two conversations with the far side.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pz import durable
from pz.engine import locking, run
from pz.runs import directory
from pz.state.locks import RunLocks
from pz.state.stores.local import LocalStore
from pz.testing.child import cli
from pz.testing.script import CONVERSING

__all__ = ["SLEEPY", "TARGET", "main", "sleepy"]

TARGET = "hasty:main"
SLEEPY = "hasty:sleepy"
PATIENCE = 0.2


def main(arguments: Sequence[str]) -> int:
    """A target for `WarmInterpreter.run`: every wait for a lock is short, in the fork alone."""
    vars(run)["hold_locks"] = functools.partial(locking.hold_locks, wait=PATIENCE)
    directory._LOCK_WAIT = PATIENCE
    LocalStore.__init__.__defaults__ = (PATIENCE,)
    vars(durable)["_act"] = functools.partial(_between_conversations, durable._act)
    return cli(arguments)


def _between_conversations(act: Callable[[str, str], None], action: str, point: str) -> None:
    with CONVERSING:
        act(action, point)


def sleepy(arguments: Sequence[str]) -> int:
    """A target whose run is stopped after it got its directory, before it takes the locks of its datasets and outputs."""

    def stop_first(*positional: Any, **named: Any) -> RunLocks:
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return locking.hold_locks(*positional, **named)

    vars(run)["hold_locks"] = stop_first
    return cli(arguments)
