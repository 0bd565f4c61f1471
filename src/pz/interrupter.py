"""Ending what waits: a request that comes between two statements is forgotten, so it is made again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

__all__ = ["Interrupter"]


class Interrupter:
    """Makes a request from a thread of its own, every so many seconds, from `start` until `end`.

    ``exclusive``: once `end` returns, none is under way any more, because what is asked is about to be closed. A request that
    fails, say because its server is gone, is made again like any other.
    """

    def __init__(self, request: Callable[[], object], every: float, *, exclusive: bool = False) -> None:
        self._request = request
        self._every = every
        self._over = threading.Event()
        self._turn: AbstractContextManager[object] = threading.Lock() if exclusive else nullcontext()

    def start(self) -> None:
        """Begin, without waiting for anything."""
        threading.Thread(target=self._insist, name="pz-interrupt", daemon=True).start()

    def end(self) -> None:
        """Not any more."""
        with self._turn:
            self._over.set()

    def _insist(self) -> None:
        while not self._over.is_set():
            with self._turn:
                if not self._over.is_set():
                    with suppress(Exception):  # what cannot be asked does not wait, or is asked again
                        self._request()
            self._over.wait(self._every)
