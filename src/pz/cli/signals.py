"""Stop signals: the first one winds the run down, the second ends the process at once.

The interpreter runs a Python handler only between byte codes of the main thread, which may sit in a long native call.
So the handlers do nothing; the signal's number reaches a watching thread through the wake-up descriptor, which the
system-level handler writes at once, whatever the main thread does.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType

from pz.connectors.contract import CancelToken

__all__ = ["StopSignals"]

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _leave_it_to_the_watcher(number: int, frame: FrameType | None) -> None:
    """Replace the default action; see the module's docstring."""


class StopSignals:
    """Context manager that turns SIGINT, SIGTERM and SIGHUP into ``cancel``.

    A signal that the parent process told us to ignore (``nohup``, a background job) stays ignored. ``announce`` is called
    after the first signal, ``last_words`` before a second one ends the process with 128 + its number. Both and ``cancel``
    have a thread of their own, so that neither a blocked terminal nor a server that does not take the request to stop can
    hold up the second signal. ``end`` is replaceable for tests.
    """

    def __init__(
        self,
        cancel: CancelToken,
        *,
        announce: Callable[[], None] = lambda: None,
        last_words: Callable[[], None] = lambda: None,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._cancel = cancel
        self._announce = announce
        self._last_words = last_words
        self._end = end
        self._before: dict[signal.Signals, object] = {}
        self._previous_fd = -1
        self._reader, self._writer = -1, -1

    def __enter__(self) -> StopSignals:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._previous_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="pz-signals", daemon=True).start()
        for number in _STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, _leave_it_to_the_watcher)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]  # what signal() itself returned
        signal.set_wakeup_fd(self._previous_fd, warn_on_full_buffer=False)
        os.close(self._writer)

    def _watch(self) -> None:
        seen = 0
        while chunk := os.read(self._reader, 1):
            if chunk[0] not in _STOPS:
                continue
            seen += 1
            if seen == 1:
                _aside(self._cancel.cancel)
                _aside(self._announce)
            else:
                _aside(self._last_words).join(0.2)
                self._end(128 + chunk[0])
        with suppress(OSError):
            os.close(self._reader)


def _aside(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread
