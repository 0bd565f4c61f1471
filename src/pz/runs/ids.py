"""Run ids: ``yyyyMMddTHHmmssfffZ-<4 hex>``. They name and date a run; they never order runs (the run number does)."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

__all__ = ["is_run_id", "new_run_id", "started_at"]

_SHAPE = re.compile(r"([0-9]{8}T[0-9]{9})Z-[0-9a-f]{4}")


def new_run_id(moment: datetime) -> str:
    """Return a run id for a run that starts at ``moment`` (aware)."""
    utc = moment.astimezone(UTC)
    return f"{utc:%Y%m%dT%H%M%S}{utc.microsecond // 1000:03}Z-{secrets.token_hex(2)}"


def is_run_id(text: str) -> bool:
    """Whether ``text`` is spelled like a run id."""
    return started_at(text) is not None


def started_at(run_id: str) -> datetime | None:
    """The moment that a run id carries, None for text that is no run id."""
    match = _SHAPE.fullmatch(run_id)
    if match is None:
        return None
    try:
        return datetime.strptime(match[1] + "000", "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)
    except ValueError:
        return None
