"""Carries events from the run to a view without ever letting the view hold the run up."""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from pz.events import Event, NodeProgress

__all__ = ["EventPump", "Renderer"]

_TICK_SECONDS = 0.1


class Renderer(Protocol):
    """A view of the event stream. Called from one thread; may be slow, may fail."""

    def handle(self, event: Event) -> None:
        """Show one event."""
        ...

    def tick(self) -> None:
        """Time has passed, about a tenth of a second: redraw what moves."""
        ...

    def finish(self) -> None:
        """The stream has ended: leave the screen in order."""
        ...


class EventPump:
    """A bounded queue and a thread in front of a `Renderer`.

    ``publish`` returns at once. When the view falls behind, progress is thinned first (only the newest figure of a node
    matters); other events are dropped only beyond ``limit`` and counted in ``dropped``. A view that raises is left alone
    from then on; its error is in ``failure``.
    """

    def __init__(self, renderer: Renderer, *, limit: int = 100_000, progress_limit: int = 1_000) -> None:
        self._renderer = renderer
        self._limit = limit
        self._progress_limit = progress_limit
        self._queue: deque[Event] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self.dropped = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="pz-render", daemon=True)
        self._thread.start()

    def publish(self, event: Event) -> None:
        """Take one event; the handler that a run's bus gets."""
        with self._changed:
            bound = self._progress_limit if isinstance(event, NodeProgress) else self._limit
            if len(self._queue) < bound:
                self._queue.append(event)
            elif not isinstance(event, NodeProgress):
                self.dropped += 1
            self._changed.notify()

    def close(self, timeout: float = 5.0) -> bool:
        """Wait for the view to show what is left; False when it did not within ``timeout`` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _next(self) -> tuple[Event, ...] | None:
        """The events that have arrived, possibly none after a tick's time; None when the stream has ended."""
        with self._changed:
            if not self._queue and not self._closing:
                self._changed.wait(_TICK_SECONDS)
            if not self._queue and self._closing:
                return None
            events = tuple(self._queue)
            self._queue.clear()
            return events

    def _work(self) -> None:
        try:
            while (events := self._next()) is not None:
                for event in events:
                    self._renderer.handle(event)
                self._renderer.tick()
            self._renderer.finish()
        except Exception as failure:  # noqa: BLE001 - whatever a view does wrong, the run goes on without it
            self.failure = failure
            with self._changed:
                self._limit = self._progress_limit = 0
                self._queue.clear()
