"""Durations as the project spells them: ``<whole number><ms|s|m|h|d>``, without spaces, signs or fractions."""

from __future__ import annotations

import re
from datetime import timedelta

__all__ = ["format_duration", "parse_duration"]

_SPELLING = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


def parse_duration(text: str) -> timedelta:
    """Return the duration that ``text`` spells; ValueError, with a message fit for the user, if it spells none."""
    match = _SPELLING.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write a whole number and ms, s, m, h or d, like 30s or 7d")
    try:
        return int(match[1]) * _UNITS[match[2]]
    except (OverflowError, ValueError) as failure:  # int() itself refuses thousands of digits
        raise ValueError("the duration is too long") from failure


def format_duration(duration: timedelta) -> str:
    """Spell a duration in the largest unit that holds it without a fraction; below a millisecond is cut off."""
    for unit, size in reversed(_UNITS.items()):
        if duration % size == timedelta(0) and duration:
            return f"{duration // size}{unit}"
    return f"{duration // _UNITS['ms']}ms"
