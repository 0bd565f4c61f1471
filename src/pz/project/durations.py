"""Durations as they are written everywhere in a project: a whole number and one unit, ``250ms`` ``30s`` ``2h`` ``1d``."""

from __future__ import annotations

import re
from datetime import timedelta

__all__ = ["DURATION_FORM", "DURATION_PATTERN", "parse_duration"]

DURATION_PATTERN = r"^[0-9]+(ms|s|m|h|d)$"
DURATION_FORM = "a whole number and one of ms, s, m, h, d, such as 30s"

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_SHAPE = re.compile(r"([0-9]+)(ms|s|m|h|d)")


def parse_duration(text: str) -> timedelta | None:
    """Return the duration, or None when ``text`` is none (or longer than a timedelta can hold)."""
    match = _SHAPE.fullmatch(text)
    if match is None or len(match[1]) > 15:
        return None
    try:
        return int(match[1]) * _UNITS[match[2]]
    except OverflowError:
        return None
