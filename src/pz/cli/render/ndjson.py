"""The machine's view: one JSON object per line, nothing else on standard output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pz.cli.output import Stream
from pz.events import Event

__all__ = ["NdjsonRenderer", "to_line"]


def to_line(event: Event) -> str:
    """The event as one line of ASCII JSON: no locale and no line separator inside a text can break it."""
    return json.dumps(event.to_wire(), separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


class NdjsonRenderer:
    """Writes every event of the wire as it happens."""

    def __init__(self, out: Stream) -> None:
        self._out = out

    def handle(self, event: Event) -> None:
        """Write the event's line."""
        if event.on_wire:
            self._out.line(to_line(event))

    def tick(self) -> None:
        """Nothing moves."""

    def finish(self) -> None:
        """Nothing is left to do: each line was flushed."""
